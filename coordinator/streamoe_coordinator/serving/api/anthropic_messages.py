"""Anthropic's messages, and counting their tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamoe_engine.errors import StreamoeError

from ..answering import Collected
from ..errors import status_of
from ..fields import Anything, Either, Field, Flag, ListOf, Number, OneOf, Part, Text, Unsupported, Whole
from ..request import AnswerRequest, Asked
from ..served import Served
from ..stream import ContentDelta, Ended, OutputDelta, ReasoningDelta, ToolCallArguments, ToolCallBegun
from . import figures_of, sse, timings_of
from .anthropic_input import read_conversation, read_tool_choice, read_tools
from .openai_parts import MAX_STOPS, MAX_TOOLS, OBJECT, read_form

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "cancelled": "end_turn"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_TURN = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["user", "assistant"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    },
}
_COMMON: tuple[Field, ...] = (
    Field("model", Text(), "the name in /v1/models, or an --alias", is_needed=True),
    Field(
        "messages",
        ListOf(Anything(_TURN), 10_000, min_items=1),
        "blocks text, thinking, tool_use, tool_result; images are refused with 400; the last is the user's",
        is_needed=True,
    ),
    Field("system", Either((Text(), ListOf(OBJECT, 1000))), "a text or blocks of text"),
    Field("tools", ListOf(OBJECT, MAX_TOOLS), "those that the client runs"),
    Field("tool_choice", OBJECT, "auto, any, none, tool; disable_parallel_tool_use"),
    Field(
        "thinking",
        Part(
            (
                Field("type", OneOf(("enabled", "disabled", "adaptive")), "", is_needed=True),
                Field("budget_tokens", Whole(1), ""),
                Field("display", OneOf(("summarized",)), ""),
            )
        ),
        "the template's switch; budget_tokens is an upper bound; adaptive leaves it to the model",
    ),
    Field("cache_control", OBJECT, "prefixes are kept without being asked", "accepted"),
)


class AnthropicMessages:
    """POST /v1/messages."""

    media_type = "text/event-stream"
    fields: tuple[Field, ...] = (
        *_COMMON,
        Field("max_tokens", Whole(1), "prompt and answer share the context", is_needed=True),
        Field("stop_sequences", ListOf(Text(is_filled=True), MAX_STOPS), f"up to {MAX_STOPS}"),
        Field("temperature", Number(0, 1), "0 takes the likeliest token; left out: the model's own"),
        Field("top_p", Number(0, 1, has_least=False), "left out: the model's own"),
        Field("top_k", Whole(0), "0 is off"),
        Field("stream", Flag(), "server-sent events"),
        Field(
            "output_config",
            Part((Field("format", OBJECT, ""), Field("effort", OneOf(("low", "medium", "high", "max")), ""))),
            "format: json_schema (extra `grammar`); effort: as the model likes",
        ),
        Field("metadata", Anything({"type": "object"}), "user_id: whose turn it is"),
        Field("service_tier", OneOf(("auto", "standard_only")), "there is one", "accepted"),
        Field("container", Unsupported(), "nothing is run here"),
        Field("mcp_servers", Unsupported(), "nothing is called from here"),
        Field("context_management", Unsupported(), "too long a conversation is refused"),
    )

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, MessageReply]:
        """Raises BadRequest, NotServed."""
        served.check_name(values["model"])
        thinking = values.get("thinking", {})
        choice, may_call_several = read_tool_choice(values.get("tool_choice"))
        user = values.get("metadata", {}).get("user_id")
        asked = Asked(
            params=served.params(values),
            messages=read_conversation(values.get("system"), values["messages"]),
            stop=tuple(values.get("stop_sequences", ())),
            thinking={"enabled": True, "disabled": False}.get(thinking.get("type")),
            max_thinking_tokens=thinking.get("budget_tokens"),
            tools=read_tools(values.get("tools", ())),
            tool_choice=choice,
            may_call_several=may_call_several,
            response_format=read_form(
                values.get("output_config", {}).get("format"), "output_config.format", is_flat=True
            ),
            client=user if isinstance(user, str) else "",
        )
        return asked, MessageReply(served.model_id, values.get("stream", False))

    def error(self, error: StreamoeError) -> dict[str, Any]:
        """Anthropic's error object."""
        return anthropic_error(error)


class AnthropicCountTokens(AnthropicMessages):
    """POST /v1/messages/count_tokens: the same conversation, nothing is run."""

    fields: tuple[Field, ...] = _COMMON


def anthropic_error(error: StreamoeError) -> dict[str, Any]:
    """{"type": "error", "error": {...}} as Anthropic's clients read it."""
    return {"type": "error", "error": {**figures_of(error), "type": _ERRORS.get(status_of(error), "api_error")}}


@dataclass(frozen=True, slots=True)
class MessageReply:
    """A message, whole or as events."""

    model_id: str
    is_streamed: bool

    def whole(self, request: AnswerRequest, collected: Collected) -> dict[str, Any]:
        """A message."""
        ended = collected.ended
        assert ended is not None
        content: list[dict[str, Any]] = []
        if collected.reasoning:
            content.append({"type": "thinking", "thinking": collected.reasoning, "signature": ""})
        if collected.content:
            content.append({"type": "text", "text": collected.content})
        for call in collected.tool_calls:
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            content.append(block)
        return {
            **self.head(request),
            "content": content,
            **stop_of(ended),
            "usage": usage_of(ended),
            "timings": timings_of(ended),
        }

    def head(self, request: AnswerRequest) -> dict[str, Any]:
        """What a message begins with."""
        return {"id": f"msg_{request.id}", "type": "message", "role": "assistant", "model": self.model_id}

    def writer(self, request: AnswerRequest) -> MessageWriter:
        """Events."""
        return MessageWriter(self, request)


def stop_of(ended: Ended) -> dict[str, Any]:
    """Why it ended."""
    reason = "stop_sequence" if ended.stop_text is not None else _REASONS[ended.reason]
    return {"stop_reason": reason, "stop_sequence": ended.stop_text}


def usage_of(ended: Ended) -> dict[str, Any]:
    """Anthropic's usage: what came from the cache is not part of input_tokens."""
    tokens = ended.tokens
    return {
        "input_tokens": tokens.prompt_tokens - tokens.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached_tokens,
        "output_tokens": tokens.completion_tokens,
    }


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}  # not dropped: the client sees what the model wrote


class MessageWriter:
    """message_start ... message_stop: blocks open, grow and close."""

    def __init__(self, reply: MessageReply, request: AnswerRequest) -> None:
        self._reply, self._request = reply, request
        self._kind, self._index = "", -1

    def begin(self) -> bytes:
        """The message, empty."""
        tokens = len(self._request.prompt.tokens)
        usage = {"input_tokens": tokens, "output_tokens": 0}
        head = self._reply.head(self._request)
        message = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return self._say("message_start", message=message)

    def event(self, event: OutputDelta | Ended) -> bytes:
        """Typed events."""
        match event:
            case ContentDelta(text):
                opened = self._open("text", {"type": "text", "text": ""})
                return (opened + self._delta({"type": "text_delta", "text": text})) if text else b""
            case ReasoningDelta(text):
                opened = self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                return opened + self._delta({"type": "thinking_delta", "thinking": text})
            case ToolCallBegun(_, id, name):
                return self._close() + self._open("tool", {"type": "tool_use", "id": id, "name": name, "input": {}})
            case ToolCallArguments(_, text):
                return self._delta({"type": "input_json_delta", "partial_json": text})
            case Ended():
                delta = self._say(
                    "message_delta", delta=stop_of(event), usage=usage_of(event), timings=timings_of(event)
                )
                return self._close() + delta + self._say("message_stop")

    def failed(self, error: StreamoeError) -> bytes:
        """An error event."""
        return sse(anthropic_error(error), "error")

    def idle(self) -> bytes:
        """A ping."""
        return self._say("ping")

    def _open(self, kind: str, block: dict[str, Any]) -> bytes:
        if self._kind == kind and kind != "tool":
            return b""
        closed = self._close()
        self._kind, self._index = kind, self._index + 1
        return closed + self._say("content_block_start", index=self._index, content_block=block)

    def _close(self) -> bytes:
        if not self._kind:
            return b""
        self._kind = ""
        return self._say("content_block_stop", index=self._index)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._say("content_block_delta", index=self._index, delta=delta)

    def _say(self, kind: str, **figures: Any) -> bytes:
        return sse({"type": kind, **figures}, kind)
