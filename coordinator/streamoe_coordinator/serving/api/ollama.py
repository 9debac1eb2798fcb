"""Ollama's chat and generate: lines of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from streamoe_engine.errors import StreamoeError

from ..answering import Collected, ToolCall
from ..errors import BadRequest
from ..fields import Either, Field, Flag, ListOf, Number, OneOf, Part, Text, Unsupported, Whole
from ..request import AnswerRequest, Asked, ResponseFormat
from ..served import Served
from ..stream import ContentDelta, Ended, OutputDelta, ReasoningDelta, ToolCallArguments, ToolCallBegun
from .ollama_input import read_messages
from .openai_parts import MAX_STOPS, MAX_TOOLS, OBJECT, THINKING_TOKENS, read_tools

_NS = 1_000_000_000
_OPTIONS = Part(
    (
        Field("num_predict", Either((Whole(1), OneOf((-1, -2)))), "-1, -2: until the context is full"),
        Field("num_ctx", Whole(1), "at most the planned context, else 400"),
        Field("temperature", Number(0, 2), ""),
        Field("top_p", Number(0, 1, has_least=False), ""),
        Field("top_k", Whole(0), ""),
        Field("min_p", Number(0, 1), ""),
        Field("seed", Whole(-(1 << 53) + 1), ""),
        Field("stop", ListOf(Text(is_filled=True), MAX_STOPS, may_be_single=True), ""),
        Field("repeat_penalty", Number(0.01, 10), "on the whole sequence"),
        Field("repeat_last_n", OneOf((-1,)), "the whole sequence"),
        Field("presence_penalty", Number(-2, 2), ""),
        Field("frequency_penalty", Number(-2, 2), ""),
    )
)
_COMMON: tuple[Field, ...] = (
    Field("model", Text(is_filled=True), "the name in /api/tags, or an --alias", is_needed=True),
    Field("stream", Flag(), "left out: true"),
    Field(
        "options",
        _OPTIONS,
        "num_predict, num_ctx, temperature, top_p, top_k, min_p, seed, stop, repeat_penalty, repeat_last_n (-1 alone), "
        "presence_penalty, frequency_penalty; others are refused by name",
    ),
    Field("format", Either((OneOf(("json", "")), OBJECT)), '"json" or a JSON schema (extra `grammar`)'),
    Field("think", Either((Flag(), OneOf(("low", "medium", "high")))), "the template's switch; a word bounds it"),
    Field("keep_alive", Either((Text(), Number(-1e12, 1e12))), "the model stays while the server runs", "accepted"),
    Field("logprobs", OneOf((False,)), "not in this API here: use /v1/chat/completions"),
)


class _Ollama:
    media_type = "application/x-ndjson"
    fields: tuple[Field, ...] = _COMMON

    def error(self, error: StreamoeError) -> dict[str, Any]:
        """{"error": text}."""
        return ollama_error(error)

    @staticmethod
    def _asked(values: dict[str, Any], served: Served, **what: Any) -> Asked:
        served.check_name(values["model"])
        options = values.get("options", {})
        _check_context(options.get("num_ctx"), served)
        think = values.get("think")
        params = served.params(
            options,
            max_tokens=options["num_predict"] if options.get("num_predict", -1) > 0 else None,
            repetition_penalty=options.get("repeat_penalty"),
        )
        return Asked(
            params=params,
            stop=tuple(options.get("stop", ())),
            thinking=think if isinstance(think, bool) else None,
            max_thinking_tokens=THINKING_TOKENS.get(think) if isinstance(think, str) else None,
            response_format=_form(values.get("format")),
            **what,
        )


class OllamaChat(_Ollama):
    """POST /api/chat."""

    fields: tuple[Field, ...] = (
        *_COMMON,
        Field(
            "messages",
            ListOf(OBJECT, 10_000, min_items=1),
            "roles system, user, assistant, tool; images are refused with 400",
            is_needed=True,
        ),
        Field("tools", ListOf(OBJECT, MAX_TOOLS), "functions"),
    )

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, OllamaReply]:
        """Raises BadRequest, NotServed."""
        messages, tools = read_messages(values["messages"]), read_tools(values.get("tools", ()))
        asked = self._asked(values, served, messages=messages, tools=tools)
        return asked, OllamaReply(values["model"], values.get("stream", True), "message")


class OllamaGenerate(_Ollama):
    """POST /api/generate."""

    fields: tuple[Field, ...] = (
        *_COMMON,
        Field("prompt", Text(is_filled=True), "what the user says; with raw, the text itself", is_needed=True),
        Field("system", Text(), "the system message"),
        Field("raw", Flag(), "without the chat template"),
        Field("suffix", Text(max_chars=0), "nothing is inserted: only an empty text"),
        Field("images", ListOf(Text(), 0), "this model has no image encoder"),
        Field("template", Unsupported(), "the model's own is used"),
        Field("context", Unsupported(), "use /api/chat"),
    )

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, OllamaReply]:
        """Raises BadRequest, NotServed."""
        if values.get("raw"):
            if values.get("system") or values.get("think") is not None:
                raise BadRequest("raw uses no chat template, so system and think mean nothing", "leave them out")
            asked = self._asked(values, served, prompt=values["prompt"])
        else:
            system = [{"role": "system", "content": values["system"]}] if values.get("system") else []
            messages = (*system, {"role": "user", "content": values["prompt"]})
            asked = self._asked(values, served, messages=messages)
        return asked, OllamaReply(values["model"], values.get("stream", True), "response")


def ollama_error(error: StreamoeError) -> dict[str, Any]:
    """{"error": text}."""
    return {"error": f"{error.message}; {error.next_step}" if error.next_step else error.message}


def _check_context(num_ctx: int | None, served: Served) -> None:
    band = served.scheduler.band
    if num_ctx is not None and band is not None and num_ctx > band.ctx_tokens:
        raise BadRequest(
            f"a context of {num_ctx} tokens is over the planned {band.ctx_tokens}",
            f"serve with --ctx {num_ctx}",
            param="options.num_ctx",
        )


def _form(value: Any) -> ResponseFormat | None:
    if not value:
        return None
    return ResponseFormat("json_object") if value == "json" else ResponseFormat("json_schema", value)


@dataclass(frozen=True, slots=True)
class OllamaReply:
    """name: the model as it was asked for. kind: where the text goes, in a message or a response."""

    name: str
    is_streamed: bool
    kind: Literal["message", "response"]

    def whole(self, request: AnswerRequest, collected: Collected) -> dict[str, Any]:
        """One object."""
        assert collected.ended is not None
        said = self.words(collected.content, collected.reasoning, collected.tool_calls)
        return {**self.head(), **said, **self.end(request, collected.ended)}

    def writer(self, request: AnswerRequest) -> OllamaWriter:
        """Lines."""
        return OllamaWriter(self, request)

    def head(self) -> dict[str, Any]:
        """What every object begins with."""
        return {"model": self.name, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}

    def words(self, content: str, thinking: str = "", calls: list[ToolCall] | None = None) -> dict[str, Any]:
        """Text, thinking and calls."""
        thought = {"thinking": thinking} if thinking else {}
        if self.kind == "response":
            return {"response": content, **thought}
        told = [{"function": {"name": call.name, "arguments": _arguments(call.arguments)}} for call in calls or ()]
        message = {"role": "assistant", "content": content, **thought, **({"tool_calls": told} if told else {})}
        return {"message": message}

    def end(self, request: AnswerRequest, ended: Ended) -> dict[str, Any]:
        """Why it ended, and the figures, in nanoseconds."""
        timings, tokens = ended.timings, ended.tokens
        total_s = (timings.ttft_s or timings.prefill_s) + timings.decode_s
        return {
            "done": True,
            "done_reason": "length" if ended.reason == "length" else "stop",
            "total_duration": int(total_s * _NS),
            "load_duration": 0,
            "prompt_eval_count": tokens.prompt_tokens,
            "prompt_eval_duration": int(timings.prefill_s * _NS),
            "eval_count": tokens.completion_tokens,
            "eval_duration": int(timings.decode_s * _NS),
        }


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {"arguments": text}  # not dropped: the client sees what the model wrote


class OllamaWriter:
    """A line a delta; a tool call is one line, whole."""

    def __init__(self, reply: OllamaReply, request: AnswerRequest) -> None:
        self._reply, self._request = reply, request
        self._calls: list[ToolCall] = []

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def event(self, event: OutputDelta | Ended) -> bytes:
        """One line, or none yet."""
        match event:
            case ContentDelta(text):
                return self._line(self._reply.words(text)) if text else b""
            case ReasoningDelta(text):
                return self._line(self._reply.words("", text))
            case ToolCallBegun(_, id, name):
                said = self._call()
                self._calls.append(ToolCall(id, name))
                return said
            case ToolCallArguments(_, text):
                self._calls[-1].arguments += text
                return b""
            case Ended():
                last = {**self._reply.words(""), **self._reply.end(self._request, event)}
                return self._call() + self._line(last, is_done=True)

    def failed(self, error: StreamoeError) -> bytes:
        """A line with the error."""
        return json.dumps(ollama_error(error)).encode() + b"\n"

    def idle(self) -> bytes:
        """A line without text."""
        return self._line(self._reply.words(""))

    def _call(self) -> bytes:
        calls, self._calls = self._calls, []
        return self._line(self._reply.words("", "", calls)) if calls else b""

    def _line(self, said: dict[str, Any], *, is_done: bool = False) -> bytes:
        done = {} if is_done else {"done": False}
        return json.dumps({**self._reply.head(), **said, **done}, ensure_ascii=False).encode(errors="replace") + b"\n"
