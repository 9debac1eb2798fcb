"""Deltas of an answer: stop sequences never show, thinking is apart, nothing is lost."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.serving.output import AnswerOutput, StopScanner
from streamoe_coordinator.serving.ports import ThinkingParser
from streamoe_coordinator.serving.stream import ContentDelta, OutputDelta, ReasoningDelta
from streamoe_coordinator.text import Text


@given(
    text=st.text("abc", max_size=40),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 40), max_size=8),
)
def test_what_comes_out_is_the_text_before_the_first_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    scanner, out, edges = StopScanner(stops), "", [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in itertools.pairwise(edges):
        out += scanner.push(text[begin:end])
    out += scanner.finish() if scanner.found is None else ""
    if scanner.found is None:
        assert out == text and not any(stop in text for stop in stops)
    else:
        assert text.startswith(out + scanner.found)
        assert not any(stop in out for stop in stops)


def test_one_character_at_a_time_nothing_of_a_stop_is_shown() -> None:
    scanner = StopScanner(["END."])
    assert [scanner.push(letter) for letter in "aENbEND.c"] == ["a", "", "", "ENb", "", "", "", "", ""]
    assert scanner.found == "END."


def run(text: Text, said: str, *, stops: tuple[str, ...] = (), inside: bool = False) -> tuple[str, str, AnswerOutput]:
    output = AnswerOutput(text.tokenizer, ThinkingParser(inside), stops)
    deltas: list[OutputDelta] = []
    for token in text.tokenizer.encode(said, with_special_tokens=False):
        deltas += output.push(token)
        if output.stop_text is not None:
            break
    deltas += output.finish()
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    return content, "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)), output


@pytest.mark.parametrize(
    ("said", "inside", "content", "thinking"),
    [
        ("plain é text", False, "plain é text", ""),
        ("<think>\nhm, so\n</think>\n\nyes", False, "yes", "hm, so\n"),
        ("hm</think>yes", True, "yes", "hm"),
        ("never closed", True, "", "never closed"),
        ("\n\nplain", False, "\n\nplain", ""),
        ("a <think>b</think> c", False, "a  c", "b"),
        ("", False, "", ""),
    ],
)
def test_thinking_and_content_are_apart(text: Text, said: str, inside: bool, content: str, thinking: str) -> None:
    assert run(text, said, inside=inside)[:2] == (content, thinking)


def test_a_stop_is_looked_for_in_the_content_alone(text: Text) -> None:
    content, thinking, output = run(text, "<think>a STOP b</think>c STOP d", stops=("STOP",))
    assert (content, thinking, output.stop_text) == ("c ", "a STOP b", "STOP")
    assert output.num_reasoning > 0


def test_half_a_character_at_the_end_is_not_lost(text: Text, tmp_path: Path) -> None:
    output = AnswerOutput(text.tokenizer, ThinkingParser(), ())
    first_byte = text.tokenizer.encode("é", with_special_tokens=False)[0]
    assert output.push(first_byte) == []
    assert output.finish() == [ContentDelta("\ufffd")]
