"""The leaner way to load a tokenizer makes the very same tokenizer, or leaves the file to the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from streamoe_coordinator.text.lean_bpe import lean_tokenizer
from streamoe_coordinator.text.tokenizer import TextTokenizer
from streamoe_engine.errors import TokenizerUnusable
from tests.tiny_tokenizer import write_tokenizer


@pytest.fixture(scope="module")
def content(embedded_checkpoint: Path) -> bytes:
    """The embedded model's file: merges, byte fallback, special tokens."""
    return (embedded_checkpoint / "tokenizer.json").read_bytes()


@pytest.fixture(scope="module")
def both(content: bytes) -> tuple[Tokenizer, Tokenizer]:
    lean = lean_tokenizer(content)
    assert lean is not None
    return lean, Tokenizer.from_buffer(content)


def changed(content: bytes, **of_model: Any) -> bytes:
    raw = json.loads(content)
    raw["model"] |= of_model
    return json.dumps(raw).encode()


def test_it_writes_the_same_file(both: tuple[Tokenizer, Tokenizer]) -> None:
    assert both[0].to_str() == both[1].to_str()
    assert both[0].get_vocab() == both[1].get_vocab()


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_it_says_the_same(both: tuple[Tokenizer, Tokenizer], text: str) -> None:
    ids = [tokenizer.encode(text).ids for tokenizer in both]
    assert ids[0] == ids[1]
    assert both[0].decode(ids[0]) == both[1].decode(ids[1])


@pytest.mark.parametrize("text", ["<|im_start|>user\nHi<|im_end|>\n", " <|endoftext|> x", "naïve 🙂 \u0000", ""])
def test_special_tokens_are_found_in_text(both: tuple[Tokenizer, Tokenizer], text: str) -> None:
    for flag in (False, True):
        assert both[0].encode(text, add_special_tokens=flag).ids == both[1].encode(text, add_special_tokens=flag).ids
    assert both[0].encode(text).tokens == both[1].encode(text).tokens


def test_merges_in_the_old_form(content: bytes, both: tuple[Tokenizer, Tokenizer]) -> None:
    pairs = json.loads(content)["model"]["merges"]
    old = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]
    new = [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs]
    for merges in (old, new):
        lean = lean_tokenizer(changed(content, merges=merges))
        assert lean is not None and lean.to_str() == both[1].to_str()


def test_the_tests_own_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 300)
    content = (tmp_path / "tokenizer.json").read_bytes()
    lean = lean_tokenizer(content)
    assert lean is None or lean.to_str() == Tokenizer.from_buffer(content).to_str()


@pytest.mark.parametrize(
    "of_model",
    [
        {"type": "WordPiece"},
        {"vocab": {}},
        {"merges": [["a", "no such word"]]},
        {"merges": ["a b c"]},
        {"continuing_subword_prefix": "##"},
        {"a_new_setting": True},
    ],
)
def test_what_it_does_not_know_is_left_to_the_library(content: bytes, of_model: dict[str, Any]) -> None:
    assert lean_tokenizer(changed(content, **of_model)) is None


def test_added_tokens_that_would_get_other_ids_are_left_to_the_library(content: bytes) -> None:
    raw = json.loads(content)
    raw["added_tokens"].append({**raw["added_tokens"][0], "id": 1_000_000, "content": "<|far|>"})
    assert lean_tokenizer(json.dumps(raw).encode()) is None


@pytest.mark.parametrize("text", ["{", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}', "[]"])
def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerUnusable, match="is not a tokenizer"):
        TextTokenizer(tmp_path)
