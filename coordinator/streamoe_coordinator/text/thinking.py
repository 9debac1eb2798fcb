"""Telling a model's thinking from its answer while text arrives.

Owns the marks <think> and </think>, also where one is split over pieces. Refuses to know of tokens.
Thinking that never ends stays thinking: it is never passed off as the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

OPEN_MARK, CLOSE_MARK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of an answer; never empty."""

    text: str
    is_thinking: bool


class ThinkingSplitter:
    """Splits one answer. starts_inside: the prompt already ends inside an open <think>."""

    def __init__(self, starts_inside: bool = False) -> None:
        self._is_inside = starts_inside
        self._held = ""  # the beginning of a mark, perhaps

    @property
    def is_inside(self) -> bool:
        """Whether the text after the last mark is thinking."""
        return self._is_inside

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain now; an unfinished mark at the end is held back."""
        pieces: list[Piece] = []
        self._held += text
        while (at := self._held.find(mark := self._next_mark)) >= 0:
            self._take(pieces, at)
            self._held = self._held[len(mark) :]
            self._is_inside = not self._is_inside
        self._take(pieces, len(self._held) - num_begun(self._held, mark))
        return pieces

    def finish(self) -> list[Piece]:
        """What was held back: it was no mark after all."""
        pieces: list[Piece] = []
        self._take(pieces, len(self._held))
        return pieces

    @property
    def _next_mark(self) -> str:
        return CLOSE_MARK if self._is_inside else OPEN_MARK

    def _take(self, pieces: list[Piece], num_chars: int) -> None:
        if num_chars > 0:
            pieces.append(Piece(self._held[:num_chars], self._is_inside))
            self._held = self._held[num_chars:]


def starts_inside(prompt: str) -> bool:
    """Whether a rendered prompt leaves the model inside an open <think>, as some templates do."""
    return prompt.rstrip().endswith(OPEN_MARK)


def num_begun(text: str, mark: str) -> int:
    """How many characters at the end of `text` are a beginning of `mark`, all of it not counted."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)
