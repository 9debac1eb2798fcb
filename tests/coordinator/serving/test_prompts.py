"""From what was asked to tokens, and where other prompts may begin the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.serving.errors import BadRequest
from streamoe_coordinator.serving.fittings import ModelFittings
from streamoe_coordinator.serving.prompts import prepare
from streamoe_coordinator.serving.request import AnswerRequest, Asked
from streamoe_coordinator.text import Text, load_text
from streamoe_engine.errors import ContextFull, UsageError
from tests.coordinator.fake_band import VOCAB
from tests.coordinator.serving.fake_sequences import Client, FakeSequences, serving
from tests.tiny_tokenizer import CHAT_TEMPLATE, write_tokenizer


def prepared(text: Text, *messages: tuple[str, str], ctx_tokens: int = 400, **more: Any) -> AnswerRequest:
    asked = Asked(SamplingParams(), tuple({"role": role, "content": content} for role, content in messages), **more)
    return prepare(asked, text, ModelFittings(text, None), vocab_size=VOCAB, ctx_tokens=ctx_tokens)


def test_boundaries_are_where_other_prompts_part(text: Text) -> None:
    one = prepared(text, ("system", "Be kind."), ("user", "Hello there."))
    other = prepared(text, ("system", "Be kind."), ("user", "Goodbye."), ("assistant", "So long."), ("user", "Wait!"))
    decode = text.tokenizer.decode
    (system, last) = one.prompt.boundaries
    assert other.prompt.boundaries[0] == system
    assert one.prompt.tokens[:system] == other.prompt.tokens[:system]
    assert decode(one.prompt.tokens[:system], keeps_special_tokens=True).endswith("Be kind.<|im_end|>\n<|im_start|>")
    assert decode(one.prompt.tokens[:last], keeps_special_tokens=True).endswith("Hello there.<|im_end|>")


def test_the_next_turn_begins_with_the_last_boundary(text: Text) -> None:
    first = prepared(text, ("user", "Hello."))
    second = prepared(text, ("user", "Hello."), ("assistant", "Hi."), ("user", "More."))
    at = first.prompt.boundaries[-1]
    assert second.prompt.tokens[:at] == first.prompt.tokens[:at] and at >= len(first.prompt.tokens) - 14


def test_a_template_that_insists_on_a_form_has_fewer_boundaries(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, VOCAB)
    insist = "{% if messages[-1].content != 'Hi' %}{{ raise_exception('no') }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(insist + CHAT_TEMPLATE)
    text, _ = load_text(tmp_path)
    assert len(prepared(text, ("system", "S"), ("user", "Hi")).prompt.boundaries) == 1


def test_a_switch_the_template_has_not_is_refused(text: Text, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no thinking"):
        prepared(text, ("user", "Hi"), thinking=True)
    assert prepared(text, ("user", "Hi"), thinking=False).prompt.tokens == prepared(text, ("user", "Hi")).prompt.tokens
    (tmp_path / "chat_template.jinja").write_text(CHAT_TEMPLATE + "{% if enable_thinking %}<think>\n{% endif %}")
    switched, _ = load_text(tmp_path)
    assert prepared(switched, ("user", "Hi"), thinking=True).prompt.starts_inside
    assert not prepared(switched, ("user", "Hi"), thinking=False).prompt.starts_inside


@pytest.mark.parametrize("prompt", ["", (), (5, VOCAB), (-1,)])
def test_prompts_that_are_none(text: Text, prompt: Any) -> None:
    with pytest.raises(BadRequest):
        prepare(
            Asked(SamplingParams(), prompt=prompt), text, ModelFittings(text, None), vocab_size=VOCAB, ctx_tokens=400
        )


def test_a_megabyte_is_refused_by_its_beginning(text: Text) -> None:
    with pytest.raises(ContextFull) as caught:
        prepared(text, ("user", "x" * 1_000_000), ctx_tokens=50)
    assert 50 < caught.value.needed_tokens <= 50 * 16


def test_text_that_is_no_unicode(text: Text) -> None:
    with pytest.raises(UsageError, match="Unicode"):
        prepared(text, ("user", "a\ud800b"))


def test_long_thinking_is_closed_at_its_bound(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, VOCAB)
    (tmp_path / "chat_template.jinja").write_text(CHAT_TEMPLATE.replace("assistant\n", "assistant\n<think>\n"))
    text, _ = load_text(tmp_path)
    (end_id,) = text.tokenizer.eos_ids
    band = FakeSequences(end_id)
    band.never_ends = True
    with serving(band, text.tokenizer) as scheduler:
        asked = Asked(
            SamplingParams(max_tokens=60), ({"role": "user", "content": "?"},), max_thinking_tokens=12, stop=("zzzz",)
        )
        request = prepare(asked, text, ModelFittings(text, None), vocab_size=VOCAB, ctx_tokens=400)
        client = Client(scheduler, request).finish()
    assert client.ended.tokens.reasoning_tokens in range(12, 16)
    assert len(client.text) > 30, "what comes after is the answer"
    assert "</think>" not in client.text and not client.text.startswith("\n")
