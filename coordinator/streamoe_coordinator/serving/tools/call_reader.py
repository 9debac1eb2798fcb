"""One tool call while its text arrives, from after its start mark to its end mark.

Owns finding the arguments object in half a text of JSON, and the end mark where it is no part of a string. Refuses to
know what comes around a call.
"""

from __future__ import annotations

import json
import re

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)', re.DOTALL)


class CallReader:
    """Reads one call. text: all of it so far, without the end mark. rest: what came after the end mark, None before.

    streams: the call is JSON, and where it is {"name": ..., "arguments": {...}} in this order, `name` is set and
    `push` gives the arguments' text as it arrives. Otherwise name stays None.
    """

    def __init__(self, end_mark: str, *, streams: bool) -> None:
        self._end_mark, self._streams = end_mark, streams
        self.text = ""
        self.name: str | None = None
        self.rest: str | None = None
        self._num_read = 0  # characters of the text up to which the arguments have been looked at
        self._object = ObjectEnd()

    def push(self, text: str) -> str:
        """More text; returns what it adds to the arguments."""
        self.text += text
        if self.name is None and self._streams and (head := _HEAD.match(self.text)):
            self.name, self._num_read = json.loads(head[1]), head.end()
        arguments = "" if self.name is None else self._read_arguments()
        if self.name is None or self._object.is_ended:
            self._look_for_end()
        return arguments

    def _read_arguments(self) -> str:
        fresh = self.text[self._num_read :]
        num = self._object.push(fresh)
        self._num_read += num
        return fresh[:num]

    def _look_for_end(self) -> None:
        at = self.text.find(self._end_mark, self._num_read) if self._end_mark else -1
        if at >= 0:
            self.rest = self.text[at + len(self._end_mark) :]
            self.text = self.text[:at]


class ObjectEnd:
    """Where a JSON object that arrives in pieces ends."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = False
        self.is_ended = False

    def push(self, text: str) -> int:
        """How many characters of `text` still belong to the object."""
        for at, letter in enumerate(text):
            if self.is_ended:
                return at
            self._take(letter)
        return len(text)

    def _take(self, letter: str) -> None:
        if self._in_string:
            self._take_in_string(letter)
        elif letter == '"':
            self._in_string = True
        elif letter in "{[":
            self._depth += 1
        elif letter in "}]":
            self._depth -= 1
            self.is_ended = self._depth == 0

    def _take_in_string(self, letter: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif letter == "\\":
            self._is_escaped = True
        elif letter == '"':
            self._in_string = False
