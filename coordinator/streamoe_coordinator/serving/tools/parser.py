"""An answer's text to thinking, content and tool calls: see ports.OutputParser."""

from __future__ import annotations

from typing import Any

from ...text import Piece, ThinkingSplitter
from ..ports import OutputKind
from ..stream import OutputDelta, ReasoningDelta
from .formats import ToolFormat
from .splitter import ToolCallSplitter


class ToolParser:
    """Thinking first, then content and calls; a call's mark inside thinking is thinking."""

    def __init__(
        self,
        tool_format: ToolFormat,
        functions: list[dict[str, Any]],
        *,
        starts_inside: bool,
        keeps_special_tokens: bool,
        hidden: frozenset[int],
    ) -> None:
        """hidden: special tokens that are shown inside a call only, even where special tokens are kept."""
        self._thinking = ThinkingSplitter(starts_inside)
        self._calls = ToolCallSplitter(tool_format, functions)
        self.keeps_special_tokens, self._hidden = keeps_special_tokens, hidden

    @property
    def kind(self) -> OutputKind:
        """What the next text would be part of."""
        if self._thinking.is_inside:
            return "reasoning"
        return "tool_call" if self._calls.is_inside else "content"

    @property
    def num_tool_calls(self) -> int:
        """Calls begun so far."""
        return self._calls.num_calls

    def push(self, text: str, token_id: int) -> list[OutputDelta]:
        """What this token makes certain."""
        if token_id in self._hidden and not self._calls.is_inside:
            return []
        return self._deltas(self._thinking.push(text))

    def finish(self, text: str) -> list[OutputDelta]:
        """What was held back, and the last text."""
        deltas = self._deltas([*self._thinking.push(text), *self._thinking.finish()])
        return [*deltas, *self._calls.finish()]

    def _deltas(self, parts: list[Piece]) -> list[OutputDelta]:
        deltas: list[OutputDelta] = []
        for part in parts:
            deltas += [ReasoningDelta(part.text)] if part.is_thinking else self._calls.push(part.text)
        return deltas
