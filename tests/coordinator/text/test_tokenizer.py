"""The tokenizer's files: which ids end an answer, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamoe_coordinator.text import TextTokenizer, load_text
from streamoe_engine.errors import ChatTemplateUnusable, TokenizerUnusable, UsageError
from tests.tiny_tokenizer import write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path, 260)
    return tmp_path


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def test_end_tokens_are_gathered_from_all_three_files(folder: Path) -> None:
    named = TextTokenizer(folder).raw.token_to_id("<|im_end|>")
    assert TextTokenizer(folder).eos_ids == {named}
    write(folder / "generation_config.json", {"eos_token_id": [3, 4]})
    write(folder / "config.json", {"eos_token_id": 5, "text_config": {"eos_token_id": 6}})
    assert TextTokenizer(folder).eos_ids == {named, 3, 4, 5, 6}


def test_a_special_token_may_be_written_as_an_object(folder: Path) -> None:
    write(folder / "tokenizer_config.json", {"bos_token": {"content": "<|im_start|>", "lstrip": False}})
    assert TextTokenizer(folder).special_tokens["bos_token"] == "<|im_start|>"


def test_a_prompt_is_neither_cut_nor_padded_by_settings_of_the_training(folder: Path) -> None:
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    raw["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    write(folder / "tokenizer.json", raw)
    tokenizer = TextTokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("hello", with_special_tokens=True)) == "hello"


@pytest.mark.parametrize("content", [None, "", "{}", "not JSON"])
def test_a_tokenizer_that_is_none_is_refused_by_name(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerUnusable, match=r"tokenizer\.json") as refusal:
        TextTokenizer(tmp_path)
    assert refusal.value.next_step


def test_a_broken_file_beside_it_is_named(folder: Path) -> None:
    (folder / "generation_config.json").write_text("[1, 2")
    with pytest.raises(TokenizerUnusable, match=r"generation_config\.json"):
        TextTokenizer(folder)


def test_text_that_is_no_unicode_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="not valid"):
        TextTokenizer(folder).encode("a\udcff", with_special_tokens=False)


def test_loading_says_what_it_costs(embedded_checkpoint: Path) -> None:
    _, num_bytes = load_text(embedded_checkpoint)
    # 49,152 words: 15 MiB where freed memory goes back to the system, 32 where it does not.
    assert 1 << 20 < num_bytes < 64 << 20


def test_a_model_without_a_template_says_so_when_it_is_to_chat(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    text, _ = load_text(folder)
    with pytest.raises(ChatTemplateUnusable, match="no chat template") as refusal:
        text.render([{"role": "user", "content": "hi"}])
    assert "--raw" in refusal.value.next_step
