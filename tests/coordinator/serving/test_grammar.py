"""Masks: whatever the model's logits say, the answer has the form that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.sampling import LogitsMask, SamplingParams
from streamoe_coordinator.serving.errors import BadRequest, NotBuiltIn
from streamoe_coordinator.serving.fittings import ModelFittings
from streamoe_coordinator.serving.grammar import Grammars, MaskAfterThinking
from streamoe_coordinator.serving.request import Asked, Prompt, ResponseFormat, Tool, ToolChoice
from streamoe_coordinator.serving.stream import ToolCallArguments, ToolCallBegun
from streamoe_coordinator.serving.tools.forced import forced_call_grammar
from streamoe_coordinator.serving.tools.formats import find_format
from streamoe_coordinator.text import Text, load_text
from streamoe_engine.errors import UsageError

pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
    },
    "required": ["kind", "legs", "tags"],
    "additionalProperties": False,
}
PAINT = Tool(
    "paint",
    "Paints.",
    {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
COUNT = Tool(
    "count",
    "Counts.",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string", "maxLength": 5},
            "upto": {"type": "integer", "maximum": 9, "minimum": 0},
        },
        "required": ["word", "upto"],
        "additionalProperties": False,
    },
)
PARAMS = SamplingParams(max_tokens=50)


@pytest.fixture(scope="module")
def text(embedded_checkpoint: Path) -> Text:
    return load_text(embedded_checkpoint)[0]


@pytest.fixture(scope="module")
def grammars(embedded_checkpoint: Path, text: Text) -> Grammars:
    return Grammars(embedded_checkpoint, 49152, sorted(text.tokenizer.eos_ids))


def written(mask: LogitsMask, text: Text, seed: int, most: int = 400) -> list[int]:
    """The tokens of a model that has no idea: random logits, the likeliest allowed one."""
    random, tokens = np.random.default_rng(seed), []
    for _ in range(most):
        logits = mask.mask(random.standard_normal(49152).astype(np.float32), tokens)
        token = int(logits.argmax())
        assert np.isfinite(logits[token])
        if token in text.tokenizer.eos_ids:
            return tokens
        mask.accept(token)
        tokens.append(token)
    raise AssertionError(f"no end: {text.tokenizer.decode(tokens[:100])}")


@pytest.mark.parametrize("seed", range(5))
def test_a_schema_makes_json_of_noise(grammars: Grammars, text: Text, seed: int) -> None:
    value = json.loads(text.tokenizer.decode(written(grammars.of_json_schema(SCHEMA), text, seed)))
    assert value["kind"] in ("cat", "dog") and 0 <= value["legs"] <= 8 and len(value["tags"]) <= 2


def test_masks_are_independent_of_each_other(grammars: Grammars, text: Text) -> None:
    one, other = grammars.of_json_schema(SCHEMA), grammars.of_json_schema(SCHEMA)
    alone = written(grammars.of_json_schema(SCHEMA), text, 7)
    for token in alone[:3]:
        one.accept(token)
    assert written(other, text, 7) == alone


def test_thinking_is_free_and_the_form_begins_after_it(grammars: Grammars, text: Text) -> None:
    mask = MaskAfterThinking(grammars.of_json_schema(SCHEMA), text.tokenizer, starts_inside=True)
    logits, tokens = np.zeros(49152, np.float32), []
    for token in text.tokenizer.encode("I wonder.</think>", with_special_tokens=False):
        assert mask.mask(logits, tokens) is logits
        mask.accept(token)
        tokens.append(token)
    allowed = np.isfinite(mask.mask(logits, tokens)).sum()
    assert 0 < allowed < 100


@pytest.mark.parametrize("template", [None, "tools <tool_call>\n<function=x>\n<parameter=y>"])
@pytest.mark.parametrize("seed", range(3))
def test_a_forced_call_is_a_call(grammars: Grammars, text: Text, template: str | None, seed: int) -> None:
    tool_format = find_format(template, lambda _: False)
    # Text in XML has no bound that a schema could give, and noise would not end it.
    tools = [PAINT, COUNT] if tool_format.is_json else [PAINT]
    grammar = forced_call_grammar(tool_format, tools, grammars.literal, only_one=True)
    answer = text.tokenizer.decode(written(grammars.of_lark(grammar), text, seed, most=3000))
    between = answer.removeprefix(tool_format.start).removesuffix(tool_format.end)
    call: dict[str, Any] = tool_format.parse(between, [])
    assert call["name"] in ("paint", "count") and call["arguments"]


def asked(**given: Any) -> Asked:
    return Asked(PARAMS, messages=({"role": "user", "content": "hi"},), **given)


def test_the_parser_finds_the_forced_call(grammars: Grammars, text: Text) -> None:
    fittings, prompt = ModelFittings(text, grammars), Prompt((1, 2))
    request = asked(tools=(PAINT, COUNT), tool_choice=ToolChoice("named", "paint"))
    fittings.check(request)
    mask = fittings.mask_of(request, prompt)()
    assert mask is not None
    parser = fittings.parser_of(request, prompt)()
    deltas = [
        delta
        for token in written(mask, text, 3)
        for delta in parser.push(text.tokenizer.decode([token], keeps_special_tokens=True), token)
    ]
    deltas += parser.finish("")
    assert parser.num_tool_calls == 1
    assert [delta.name for delta in deltas if isinstance(delta, ToolCallBegun)] == ["paint"]
    arguments = "".join(delta.text for delta in deltas if isinstance(delta, ToolCallArguments))
    assert json.loads(arguments)["colour"] in ("red", "blue")


@pytest.mark.parametrize(
    ("make", "param"),
    [
        (lambda: asked(tool_choice=ToolChoice("required")), "tool_choice"),
        (lambda: asked(tools=(PAINT,), tool_choice=ToolChoice("named", "draw")), "tool_choice"),
        (
            lambda: asked(
                tools=(PAINT,), tool_choice=ToolChoice("required"), response_format=ResponseFormat("json_object")
            ),
            "tool_choice",
        ),
    ],
)
def test_choices_that_cannot_be_are_refused_by_field(
    grammars: Grammars, text: Text, make: Callable[[], Asked], param: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        ModelFittings(text, grammars).check(make())
    assert caught.value.param == param


def test_without_the_extra_forms_are_refused_with_the_install_command(text: Text) -> None:
    fittings = ModelFittings(text, None)
    for request in (
        asked(response_format=ResponseFormat("json_object")),
        asked(tools=(PAINT,), tool_choice=ToolChoice("required")),
    ):
        with pytest.raises(NotBuiltIn, match=r"pip install 'streamoe\[grammar\]'"):
            fittings.check(request)
    fittings.check(asked(tools=(PAINT,)))


def test_a_schema_that_cannot_be_used_is_refused(grammars: Grammars, text: Text) -> None:
    with pytest.raises(UsageError, match="JSON schema"):
        ModelFittings(text, grammars).check(asked(response_format=ResponseFormat("json_schema", {"type": "foo"})))
