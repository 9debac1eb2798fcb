"""Thinking and answer are told apart however the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.text.thinking import ThinkingSplitter, starts_inside

ANSWER = "before <think>I <b>wonder</b> </thin</think>\n\nafter <thinker"
THINKING, SPOKEN = "I <b>wonder</b> </thin", "before \n\nafter <thinker"


def split(pieces: list[str], inside: bool = False) -> tuple[str, str]:
    """(thinking, answer), as they came out."""
    splitter = ThinkingSplitter(inside)
    found = [piece for text in pieces for piece in splitter.push(text)] + splitter.finish()
    assert all(piece.text for piece in found)
    return tuple("".join(p.text for p in found if p.is_thinking == kind) for kind in (True, False))  # type: ignore[return-value]


@pytest.mark.parametrize("at", range(len(ANSWER) + 1))
def test_a_cut_anywhere_changes_nothing(at: int) -> None:
    assert split([ANSWER[:at], ANSWER[at:]]) == (THINKING, SPOKEN)


def test_one_character_at_a_time_changes_nothing() -> None:
    assert split(list(ANSWER)) == (THINKING, SPOKEN)


@given(
    parts=st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "</", "x", "<think", "é"]), max_size=12),
    cuts=st.lists(st.integers(0, 80), max_size=6),
    inside=st.booleans(),
)
def test_any_cuts_give_what_the_whole_gives(parts: list[str], cuts: list[int], inside: bool) -> None:
    text = "".join(parts)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert split(pieces, inside) == split([text], inside)


def test_nothing_but_a_possible_mark_is_held_back() -> None:
    splitter = ThinkingSplitter()
    assert [piece.text for piece in splitter.push("2 < 3 and <thi")] == ["2 < 3 and "]
    assert [piece.text for piece in splitter.push("s>")] == ["<this>"]


def test_thinking_that_never_ends_is_no_answer() -> None:
    assert split(["<think>on and on"]) == ("on and on", "")
    assert split(["on and on"], inside=True) == ("on and on", "")


def test_a_prompt_may_open_the_thinking() -> None:
    assert starts_inside("<|im_start|>assistant\n<think>\n")
    assert not starts_inside("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert split(["hm</think>yes"], inside=True) == ("hm", "yes")
