"""The typed events of a streamed response: items open, grow and close, each event numbered.

Owns the order of events. Refuses to know what a response repeats of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamoe_engine.errors import StreamoeError

from ..stream import (
    ContentDelta,
    Ended,
    OutputDelta,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegun,
)
from . import comment, openai_error, sse

MakeResponse = Callable[[list[dict[str, Any]], Ended | None, StreamoeError | None], dict[str, Any]]


def reasoning_item(item_id: str, text: str | None) -> dict[str, Any]:
    """Thinking; None: none yet."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    status = "in_progress" if text is None else "completed"
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def message_item(item_id: str, text: str | None, logprobs: Sequence[TokenLogprob] = ()) -> dict[str, Any]:
    """The answer's text; None: none yet."""
    content = [] if text is None else [_text_part(text, logprobs)]
    status = "in_progress" if text is None else "completed"
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def function_item(item_id: str, call_id: str, name: str, arguments: str, *, is_open: bool = False) -> dict[str, Any]:
    """A call."""
    return {
        "id": item_id,
        "type": "function_call",
        "status": "in_progress" if is_open else "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _text_part(text: str, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": _logprobs(logprobs)}


def _logprobs(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    def spelled(text: str, utf8: bytes, logprob: float) -> dict[str, Any]:
        return {"token": text, "bytes": list(utf8), "logprob": logprob}

    return [
        {**spelled(token.text, token.utf8, token.logprob), "top_logprobs": [spelled(*entry) for entry in token.top]}
        for token in tokens
    ]


class ResponseWriter:
    """One streamed response."""

    def __init__(self, make_response: MakeResponse, answer_id: str) -> None:
        self._make_response, self._answer_id = make_response, answer_id
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._kind = ""  # of the open item: "reasoning", "message", "call", or "" where none is
        self._text = ""
        self._logprobs: list[TokenLogprob] = []
        self._call = ("", "")  # call id, name

    def begin(self) -> bytes:
        """The response, empty."""
        response = self._make_response([], None, None)
        return self._say("response.created", response=response) + self._say("response.in_progress", response=response)

    def event(self, event: OutputDelta | Ended) -> bytes:
        """Typed events."""
        match event:
            case ReasoningDelta(text):
                opened = self._open("reasoning")
                self._text += text
                return opened + self._say("response.reasoning_text.delta", **self._place(0), delta=text)
            case ContentDelta(text, logprobs):
                opened = self._open("message")
                self._text += text
                self._logprobs += logprobs
                told = _logprobs(logprobs)
                return opened + self._say("response.output_text.delta", **self._place(0), delta=text, logprobs=told)
            case ToolCallBegun(_, id, name):
                closed = self._close()
                self._call = (id, name)
                return closed + self._open("call")
            case ToolCallArguments(_, text):
                self._text += text
                return self._say("response.function_call_arguments.delta", **self._place(), delta=text)
            case Ended():
                opened = self._open("message") if not self._output and not self._kind else b""
                closed = opened + self._close()
                is_cut = event.reason == "length"
                kind = "response.incomplete" if is_cut else "response.completed"
                return closed + self._say(kind, response=self._make_response(self._output, event, None))

    def failed(self, error: StreamoeError) -> bytes:
        """response.failed, and an error event for clients that look for that."""
        response = self._make_response(self._output, None, error)
        told = openai_error(error)["error"]
        return self._say("response.failed", response=response) + self._say("error", **told)

    def idle(self) -> bytes:
        """A comment."""
        return comment("keepalive")

    @property
    def _item_id(self) -> str:
        prefix = {"reasoning": "rs", "message": "msg", "call": "fc"}[self._kind]
        return f"{prefix}_{self._answer_id}_{len(self._output)}"

    def _place(self, content_index: int | None = None) -> dict[str, Any]:
        place = {"item_id": self._item_id, "output_index": len(self._output)}
        return place if content_index is None else {**place, "content_index": content_index}

    def _open(self, kind: str) -> bytes:
        if self._kind == kind and kind != "call":
            return b""
        said = self._close()
        self._kind, self._text, self._logprobs = kind, "", []
        said += self._say("response.output_item.added", output_index=len(self._output), item=self._item(is_open=True))
        if kind == "message":
            said += self._say("response.content_part.added", **self._place(0), part=_text_part("", ()))
        return said

    def _close(self) -> bytes:
        if not self._kind:
            return b""
        item, said = self._item(is_open=False), b""
        if self._kind == "reasoning":
            said += self._say("response.reasoning_text.done", **self._place(0), text=self._text)
        elif self._kind == "message":
            told = _logprobs(self._logprobs)
            said += self._say("response.output_text.done", **self._place(0), text=self._text, logprobs=told)
            said += self._say("response.content_part.done", **self._place(0), part=item["content"][0])
        else:
            name = self._call[1]
            said += self._say("response.function_call_arguments.done", **self._place(), name=name, arguments=self._text)
        said += self._say("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        self._kind = ""
        return said

    def _item(self, *, is_open: bool) -> dict[str, Any]:
        if self._kind == "reasoning":
            return reasoning_item(self._item_id, None if is_open else self._text)
        if self._kind == "message":
            return message_item(self._item_id, None if is_open else self._text, self._logprobs)
        return function_item(self._item_id, *self._call, "" if is_open else self._text, is_open=is_open)

    def _say(self, kind: str, **figures: Any) -> bytes:
        self._number += 1
        return sse({"type": kind, "sequence_number": self._number - 1, **figures}, kind)
