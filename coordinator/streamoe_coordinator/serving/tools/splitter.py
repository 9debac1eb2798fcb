"""Finding tool calls in an answer while its text arrives.

Owns one answer's search for the marks of calls. A call in JSON is sent on as it comes, others when they are whole. Text
that looks like a call and is none is text: nothing is dropped. Refuses to know of thinking and tokens.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from ...text.thinking import num_begun
from ..stream import ContentDelta, OutputDelta, ToolCallArguments, ToolCallBegun
from .call_reader import CallReader
from .formats import ToolFormat

# What mlx-lm's parsers raise on text that is no call.
_PARSE_ERRORS = (ValueError, KeyError, IndexError, TypeError, AttributeError, SyntaxError)


class ToolCallSplitter:
    """Splits one answer. Push text, then finish; the deltas come in order. functions: the tools, as the template got
    them.
    """

    def __init__(self, tool_format: ToolFormat, functions: list[dict[str, Any]]) -> None:
        self._format, self._functions = tool_format, functions
        self._held = ""  # white space that may be layout before a call, and the beginning of a mark, perhaps
        self._reader: CallReader | None = None  # inside a call
        self.num_calls = 0

    @property
    def is_inside(self) -> bool:
        """Whether a call has begun and not ended."""
        return self._reader is not None

    def push(self, text: str) -> list[OutputDelta]:
        """The deltas that are certain now."""
        deltas: list[OutputDelta] = []
        rest: str | None = text
        while rest is not None:
            rest = self._inside(deltas, rest) if self._reader else self._outside(deltas, rest)
        return deltas

    def finish(self) -> list[OutputDelta]:
        """What was held back, the answer being over."""
        deltas: list[OutputDelta] = []
        if self._reader is not None:
            self._end_call(deltas, "")
        elif not (self.num_calls and not self._held.strip()):
            _add_text(deltas, self._held)
        self._held = ""
        return deltas

    def _outside(self, deltas: list[OutputDelta], text: str) -> str | None:
        # The text after a start mark, None where there is none.
        before, mark, after = (self._held + text).partition(self._format.start)
        sure = before.rstrip() if mark else before[: len(before) - num_begun(before, self._format.start)].rstrip()
        _add_text(deltas, sure)
        self._held = "" if mark else before[len(sure) :]
        if not mark:
            return None
        self._reader = CallReader(self._format.end, streams=self._format.is_json)
        return after

    def _inside(self, deltas: list[OutputDelta], text: str) -> str | None:
        # The text after the end mark, None while the call goes on.
        reader = self._reader
        assert reader is not None
        had_name = reader.name is not None
        arguments = reader.push(text)
        if reader.name is not None and not had_name:
            deltas.append(ToolCallBegun(self.num_calls, _new_id(), reader.name))
            self.num_calls += 1
        if arguments:
            deltas.append(ToolCallArguments(self.num_calls - 1, arguments))
        if reader.rest is not None:
            self._end_call(deltas, self._format.end)
        return reader.rest

    def _end_call(self, deltas: list[OutputDelta], end_mark: str) -> None:
        reader, self._reader = self._reader, None
        assert reader is not None
        if reader.name is not None:
            return  # sent already; one that was cut short, as far as it came
        try:
            found = self._format.parse(reader.text, self._functions)
            calls = [_checked(entry) for entry in (found if isinstance(found, list) else [found])]
        except _PARSE_ERRORS:
            _add_text(deltas, self._format.start + reader.text + end_mark)
            return
        for call_id, name, arguments in calls:
            deltas += [ToolCallBegun(self.num_calls, call_id, name), ToolCallArguments(self.num_calls, arguments)]
            self.num_calls += 1


def _checked(entry: Any) -> tuple[str, str, str]:
    # Id, name and arguments; raises one of the parse errors for what is no call.
    name, arguments = entry["name"], entry.get("arguments", entry.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("no call")
    return str(entry.get("id") or _new_id()), name, json.dumps(arguments, ensure_ascii=False)


def _add_text(deltas: list[OutputDelta], text: str) -> None:
    if text:
        deltas.append(ContentDelta(text))


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
