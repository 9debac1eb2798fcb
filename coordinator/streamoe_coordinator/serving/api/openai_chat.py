"""OpenAI's chat completions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from streamoe_engine.errors import StreamoeError

from ..answering import Collected
from ..errors import BadRequest
from ..fields import Anything, Field, Flag, ListOf, OneOf, Part, Unsupported, Whole
from ..request import AnswerRequest, Asked
from ..served import Served
from ..stream import (
    ContentDelta,
    Ended,
    OutputDelta,
    ReasoningDelta,
    TokenLogprob,
    Tokens,
    ToolCallArguments,
    ToolCallBegun,
)
from . import comment, openai_error, sse, timings_of
from .openai_parts import (
    ACCEPTED,
    EFFORTS,
    LOGIT_BIAS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    MESSAGE_SCHEMA,
    MODEL,
    OBJECT,
    SAMPLING,
    STOP,
    STREAM,
    STREAM_OPTIONS,
    THINKING_TOKENS,
    read_form,
    read_logit_bias,
    read_messages,
    read_tool_choice,
    read_tools,
)

_SWITCH = Part((Field("enable_thinking", Flag(), "as `enable_thinking`"),))


class OpenAIChat:
    """POST /v1/chat/completions."""

    media_type = "text/event-stream"
    fields: tuple[Field, ...] = (
        MODEL,
        Field(
            "messages",
            ListOf(Anything(MESSAGE_SCHEMA), 10_000, min_items=1),
            "roles system, developer, user, assistant, tool; parts of text; images are refused with 400",
            is_needed=True,
        ),
        *SAMPLING,
        STOP,
        LOGIT_BIAS,
        Field("max_completion_tokens", Whole(1), "prompt and answer share the context; left out: the model's own"),
        Field("max_tokens", Whole(1), "as max_completion_tokens, which goes before it"),
        Field("n", OneOf((1,)), "one answer a request"),
        Field("logprobs", Flag(), "the model's own, before penalties, mask and temperature"),
        Field("top_logprobs", Whole(0, MAX_TOP_LOGPROBS), "needs logprobs"),
        STREAM,
        STREAM_OPTIONS,
        Field("tools", ListOf(OBJECT, MAX_TOOLS), "functions"),
        Field("tool_choice", Anything(), "auto, none, required, or a function by name"),
        Field("parallel_tool_calls", Flag(), "false: at most one call where calls are forced"),
        Field("response_format", OBJECT, "text, json_object, json_schema: a mask on the logits (extra `grammar`)"),
        Field("reasoning_effort", OneOf(EFFORTS), "an upper bound of thinking; none switches it off"),
        Field("enable_thinking", Flag(), "the template's switch; not OpenAI's, but common"),
        Field("chat_template_kwargs", _SWITCH, "enable_thinking; not OpenAI's, but common"),
        Field("modalities", ListOf(OneOf(("text",)), 1), "text", "accepted"),
        Field("store", OneOf((False,)), "nothing is stored"),
        Field("verbosity", OneOf(("medium",)), "as the model likes"),
        Field("audio", Unsupported(), "no model here speaks"),
        Field("prediction", Unsupported(), "not built"),
        Field("web_search_options", Unsupported(), "nothing is searched"),
        Field("functions", Unsupported(), "the old form of tools"),
        Field("function_call", Unsupported(), "the old form of tool_choice"),
        *ACCEPTED,
    )

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, ChatReply]:
        """Raises BadRequest, NotServed."""
        served.check_name(values["model"])
        num_logprobs = values.get("top_logprobs", 0) if values.get("logprobs") else None
        if values.get("top_logprobs") and num_logprobs is None:
            raise BadRequest("top_logprobs needs logprobs", "send logprobs: true", param="top_logprobs")
        effort = values.get("reasoning_effort")
        thinking = values.get("enable_thinking", values.get("chat_template_kwargs", {}).get("enable_thinking"))
        asked = Asked(
            params=served.params(
                values, max_tokens=values.get("max_completion_tokens"), logit_bias=read_logit_bias(values)
            ),
            messages=read_messages(values["messages"]),
            stop=tuple(values.get("stop", ())),
            num_logprobs=num_logprobs,
            thinking=False if effort == "none" else thinking,
            max_thinking_tokens=THINKING_TOKENS.get(effort) if effort else None,
            tools=read_tools(values.get("tools", ())),
            tool_choice=read_tool_choice(values.get("tool_choice")),
            may_call_several=values.get("parallel_tool_calls", True),
            response_format=read_form(values.get("response_format"), "response_format"),
            client=values.get("user") or values.get("safety_identifier") or "",
        )
        has_usage = values.get("stream_options", {}).get("include_usage", False)
        return asked, ChatReply(served.model_id, values.get("stream", False), has_usage)

    def error(self, error: StreamoeError) -> dict[str, Any]:
        """OpenAI's error object."""
        return openai_error(error)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """has_usage: a last chunk tells the usage."""

    model_id: str
    is_streamed: bool
    has_usage: bool

    def whole(self, request: AnswerRequest, collected: Collected) -> dict[str, Any]:
        """A chat.completion."""
        ended = collected.ended
        assert ended is not None
        message: dict[str, Any] = {"role": "assistant", "content": collected.content, "refusal": None}
        if collected.reasoning:
            message["reasoning_content"] = collected.reasoning
        if collected.tool_calls:
            message["content"] = collected.content or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in collected.tool_calls
            ]
        logprobs = None if request.num_logprobs is None else _logprobs(tuple(collected.logprobs))
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(ended)}
        head = chunk_head("chat.completion", f"chatcmpl-{request.id}", self.model_id)
        return {**head, "choices": [choice], "usage": usage_of(ended.tokens), "timings": timings_of(ended)}

    def writer(self, request: AnswerRequest) -> ChatWriter:
        """Chunks."""
        return ChatWriter(self, request)


class ChatWriter:
    """chat.completion.chunk objects, and [DONE]."""

    def __init__(self, reply: ChatReply, request: AnswerRequest) -> None:
        self._reply, self._request = reply, request
        self._head = chunk_head("chat.completion.chunk", f"chatcmpl-{request.id}", reply.model_id)

    def begin(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: OutputDelta | Ended) -> bytes:
        """A chunk."""
        match event:
            case ContentDelta(text, logprobs):
                return self._chunk({"content": text}, logprobs=logprobs)
            case ReasoningDelta(text):
                return self._chunk({"reasoning_content": text})
            case ToolCallBegun(index, id, name):
                call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                return self._chunk({"tool_calls": [call]})
            case ToolCallArguments(index, text):
                return self._chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            case Ended():
                return self._end(event)

    def failed(self, error: StreamoeError) -> bytes:
        """An error in the stream."""
        return sse(openai_error(error))

    def idle(self) -> bytes:
        """A comment."""
        return comment("keepalive")

    def _end(self, ended: Ended) -> bytes:
        last = self._chunk({}, reason=finish_reason(ended), timings=timings_of(ended))
        if self._reply.has_usage:
            last += sse({**self._head, "choices": [], "usage": usage_of(ended.tokens)})
        return last + sse("[DONE]")

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        logprobs: tuple[TokenLogprob, ...] = (),
        reason: str | None = None,
        timings: dict[str, Any] | None = None,
    ) -> bytes:
        told = _logprobs(logprobs) if logprobs else None
        choice = {"index": 0, "delta": delta, "logprobs": told, "finish_reason": reason}
        usage = {"usage": None} if self._reply.has_usage else {}
        return sse({**self._head, "choices": [choice], **usage, **({"timings": timings} if timings else {})})


def chunk_head(kind: str, answer_id: str, model_id: str) -> dict[str, Any]:
    """What every object of an answer begins with."""
    return {"id": answer_id, "object": kind, "created": int(time.time()), "model": model_id, "system_fingerprint": None}


def finish_reason(ended: Ended) -> str:
    """OpenAI's word for it; who cancelled does not read it."""
    return "stop" if ended.reason == "cancelled" else ended.reason


def usage_of(tokens: Tokens) -> dict[str, Any]:
    """OpenAI's usage."""
    return {
        "prompt_tokens": tokens.prompt_tokens,
        "completion_tokens": tokens.completion_tokens,
        "total_tokens": tokens.prompt_tokens + tokens.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": tokens.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning_tokens},
    }


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    def spelled(text: str, utf8: bytes, logprob: float) -> dict[str, Any]:
        return {"token": text, "bytes": list(utf8), "logprob": logprob}

    content = [
        {**spelled(token.text, token.utf8, token.logprob), "top_logprobs": [spelled(*entry) for entry in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}
