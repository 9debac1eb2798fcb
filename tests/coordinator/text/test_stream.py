"""Streamed text equals the whole decode, and no piece ends inside a character."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.text import StreamDecoder, TextTokenizer
from tests.tiny_tokenizer import write_tokenizer

UNKNOWN = "\ufffd"


@pytest.fixture(scope="module")
def tokenizer(embedded_checkpoint: Path) -> TextTokenizer:
    return TextTokenizer(embedded_checkpoint)


def stream(tokenizer: TextTokenizer, ids: list[int]) -> tuple[list[str], str]:
    decoder = StreamDecoder(tokenizer)
    return [decoder.push(token_id) for token_id in ids], decoder.finish()


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    """A token for each byte, which the embedded model's vocabulary has not."""
    folder = tmp_path_factory.mktemp("bytes")
    write_tokenizer(folder, 260)
    return TextTokenizer(folder)


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_pieces_join_to_the_text_and_none_is_half_a_character(byte_tokenizer: TextTokenizer, text: str) -> None:
    pieces, rest = stream(byte_tokenizer, byte_tokenizer.encode(text, with_special_tokens=False))
    assert "".join(pieces) + rest == text
    assert UNKNOWN in text or (UNKNOWN not in "".join(pieces) and rest == "")


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_words_of_a_real_vocabulary_stream_to_their_whole_decode(tokenizer: TextTokenizer, text: str) -> None:
    ids = tokenizer.encode(text, with_special_tokens=False)
    pieces, rest = stream(tokenizer, ids)
    assert "".join(pieces) + rest == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, 49_151), max_size=30))
def test_any_tokens_stream_to_their_whole_decode(tokenizer: TextTokenizer, ids: list[int]) -> None:
    pieces, rest = stream(tokenizer, ids)
    assert "".join(pieces) + rest == tokenizer.decode(ids)


def test_an_emoji_comes_out_whole_with_its_last_token(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("🦙", with_special_tokens=False)
    assert len(ids) > 1, "the test needs a character of several tokens"
    pieces, rest = stream(tokenizer, ids)
    assert pieces == [""] * (len(ids) - 1) + ["🦙"]
    assert rest == ""


def test_a_cut_character_is_shown_as_unknown_at_the_end(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("ok🦙", with_special_tokens=False)[:-1]
    pieces, rest = stream(tokenizer, ids)
    assert "".join(pieces) == "ok"
    assert set(rest) == {UNKNOWN}


def test_special_tokens_are_no_text(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>hello<|im_end|>", with_special_tokens=False)
    pieces, rest = stream(tokenizer, ids)
    assert "".join(pieces) + rest == "hello"
