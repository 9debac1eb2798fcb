"""Where others plug in: what runs sequences, what reads an answer's text, what answers to tools and forms.

`LogitsMask` is in `..sampling`. Owns the protocols, and the parsers of answers without tools. Refuses
to know any tool format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..sampling import LogitsMask
from ..text import Piece, ThinkingSplitter
from .stream import ContentDelta, OutputDelta, ReasoningDelta

if TYPE_CHECKING:
    from .request import Asked, Message, Prompt

OutputKind = Literal["content", "reasoning", "tool_call"]


class OutputParser(Protocol):
    """Turns the text of one answer into content, thinking and tool calls. Nothing is dropped: what cannot be parsed
    comes out as content."""

    @property
    def kind(self) -> OutputKind:
        """What the next text would be part of."""
        ...

    @property
    def num_tool_calls(self) -> int:
        """Calls begun so far: with one, the answer ends with the reason "tool_calls"."""
        ...

    @property
    def keeps_special_tokens(self) -> bool:
        """Whether the text pushed must hold special tokens, because they mark tool calls."""
        ...

    def push(self, text: str, token_id: int) -> list[OutputDelta]:
        """What this token makes certain. text: what it adds, "" inside a character."""
        ...

    def finish(self, text: str) -> list[OutputDelta]:
        """What was held back, and `text`, the last of the answer."""
        ...


class Fittings(Protocol):
    """What answers to tools and response_format."""

    def check(self, asked: Asked) -> None:
        """Raises BadRequest for what cannot be honoured; before anything is computed."""
        ...

    def template_tools(self, asked: Asked) -> list[dict[str, Any]] | None:
        """What the chat template gets as `tools`."""
        ...

    def template_messages(self, asked: Asked) -> list[Message]:
        """The conversation as the chat template takes it."""
        ...

    def parser_of(self, asked: Asked, prompt: Prompt) -> Callable[[], OutputParser]:
        """Makes the answer's parser."""
        ...

    def mask_of(self, asked: Asked, prompt: Prompt) -> Callable[[], LogitsMask | None]:
        """Makes the answer's mask, or None."""
        ...


class ThinkingParser:
    """Content and thinking; knows no tools. Line breaks beside the marks belong to neither."""

    num_tool_calls = 0
    keeps_special_tokens = False

    def __init__(self, starts_inside: bool = False) -> None:
        self._splitter = ThinkingSplitter(starts_inside)
        self._last: OutputKind = "reasoning" if starts_inside else "content"
        self._is_at_mark = starts_inside

    @property
    def kind(self) -> OutputKind:
        """Thinking, between the marks."""
        return "reasoning" if self._splitter.is_inside else "content"

    def push(self, text: str, token_id: int) -> list[OutputDelta]:
        """Content and thinking apart."""
        return self._deltas(self._splitter.push(text))

    def finish(self, text: str) -> list[OutputDelta]:
        """The rest."""
        return self._deltas([*self._splitter.push(text), *self._splitter.finish()])

    def _deltas(self, pieces: Sequence[Piece]) -> list[OutputDelta]:
        deltas: list[OutputDelta] = []
        for piece in pieces:
            kind: OutputKind = "reasoning" if piece.is_thinking else "content"
            self._is_at_mark = self._is_at_mark or kind != self._last
            self._last = kind
            text = piece.text.lstrip("\n") if self._is_at_mark else piece.text
            if text:
                self._is_at_mark = False
                deltas.append(ReasoningDelta(text) if piece.is_thinking else ContentDelta(text))
        return deltas


class RawParser:
    """All is content: the answer continues a text."""

    kind: OutputKind = "content"
    num_tool_calls = 0
    keeps_special_tokens = False

    def push(self, text: str, token_id: int) -> list[OutputDelta]:
        """The text."""
        return [ContentDelta(text)] if text else []

    def finish(self, text: str) -> list[OutputDelta]:
        """The last of it."""
        return [ContentDelta(text)] if text else []
