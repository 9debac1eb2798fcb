"""OpenAI's responses, without storing: every request carries its conversation."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from streamoe_engine.errors import StreamoeError

from ..answering import Collected
from ..fields import Anything, Field, Flag, ListOf, OneOf, Part, Text, Unsupported, Whole
from ..request import AnswerRequest, Asked
from ..served import Served
from ..stream import Ended
from . import openai_error, timings_of
from .openai_parts import (
    ACCEPTED,
    EFFORTS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    MODEL,
    OBJECT,
    SAMPLING,
    STREAM,
    THINKING_TOKENS,
    read_form,
    read_tool_choice,
    read_tools,
)
from .responses_input import read_input
from .responses_stream import ResponseWriter, function_item, message_item, reasoning_item

LOGPROBS = "message.output_text.logprobs"
_INPUT = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}, "minItems": 1}]}


class OpenAIResponses:
    """POST /v1/responses."""

    media_type = "text/event-stream"
    fields: tuple[Field, ...] = (
        MODEL,
        Field("input", Anything(_INPUT), "a text, or items: messages, function calls and outputs", is_needed=True),
        Field("instructions", Text(), "the system message"),
        *(field for field in SAMPLING if field.name != "seed"),
        Field("seed", Whole(-(1 << 53) + 1), "not OpenAI's: the same seed, the same answer"),
        Field("max_output_tokens", Whole(1), "left out: the model's own"),
        STREAM,
        Field("stream_options", Part((Field("include_obfuscation", OneOf((False,)), ""),)), "no padding is sent"),
        Field("tools", ListOf(OBJECT, MAX_TOOLS), "functions"),
        Field("tool_choice", Anything(), "auto, none, required, or a function by name"),
        Field("parallel_tool_calls", Flag(), "false: at most one call where calls are forced"),
        Field(
            "text",
            Part((Field("format", OBJECT, "as response_format"), Field("verbosity", OneOf(("medium",)), ""))),
            "format: text, json_object, json_schema (extra `grammar`)",
        ),
        Field(
            "reasoning",
            Part((Field("effort", OneOf(EFFORTS), ""), Field("summary", OneOf(("auto",)), "thinking is given whole"))),
            "effort: an upper bound of thinking; none switches it off",
        ),
        Field("include", ListOf(OneOf((LOGPROBS,)), 1), LOGPROBS),
        Field("top_logprobs", Whole(0, MAX_TOP_LOGPROBS), f"needs include: {LOGPROBS}"),
        Field("store", OneOf((False,)), "nothing is stored"),
        Field("background", OneOf((False,)), "answers are waited for"),
        Field("truncation", OneOf(("disabled",)), "too long an input is refused"),
        Field("previous_response_id", Unsupported(), "send the conversation instead"),
        Field("conversation", Unsupported(), "send the conversation instead"),
        Field("prompt", Unsupported(), "no templates are stored"),
        Field("max_tool_calls", Unsupported(), "tools are called by the client"),
        *ACCEPTED,
    )

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, ResponseReply]:
        """Raises BadRequest, NotServed."""
        served.check_name(values["model"])
        effort = values.get("reasoning", {}).get("effort")
        has_logprobs = LOGPROBS in values.get("include", ())
        asked = Asked(
            params=served.params(values, max_tokens=values.get("max_output_tokens")),
            messages=read_input(values["input"], values.get("instructions")),
            num_logprobs=values.get("top_logprobs", 0) if has_logprobs else None,
            thinking=False if effort == "none" else None,
            max_thinking_tokens=THINKING_TOKENS.get(effort) if effort else None,
            tools=read_tools(values.get("tools", ()), is_flat=True),
            tool_choice=read_tool_choice(values.get("tool_choice"), is_flat=True),
            may_call_several=values.get("parallel_tool_calls", True),
            response_format=read_form(values.get("text", {}).get("format"), "text.format", is_flat=True),
            client=values.get("user") or values.get("safety_identifier") or "",
        )
        return asked, ResponseReply(served.model_id, values)

    def error(self, error: StreamoeError) -> dict[str, Any]:
        """OpenAI's error object."""
        return openai_error(error)


@dataclass(frozen=True, slots=True)
class ResponseReply:
    """values: the request's fields, some of which the response repeats."""

    model_id: str
    values: dict[str, Any]

    @property
    def is_streamed(self) -> bool:
        """As asked."""
        return bool(self.values.get("stream", False))

    def whole(self, request: AnswerRequest, collected: Collected) -> dict[str, Any]:
        """A response."""
        ended = collected.ended
        assert ended is not None
        output: list[dict[str, Any]] = []
        if collected.reasoning:
            output.append(reasoning_item(f"rs_{request.id}_0", collected.reasoning))
        if collected.content or not collected.tool_calls:
            output.append(message_item(f"msg_{request.id}_{len(output)}", collected.content, collected.logprobs))
        for call in collected.tool_calls:
            item_id = f"fc_{request.id}_{len(output)}"
            output.append(function_item(item_id, call.id, call.name, call.arguments))
        return self.response(request, output, ended)

    def writer(self, request: AnswerRequest) -> ResponseWriter:
        """Typed events."""
        return ResponseWriter(lambda output, ended, error: self.response(request, output, ended, error), request.id)

    def response(
        self,
        request: AnswerRequest,
        output: list[dict[str, Any]],
        ended: Ended | None,
        error: StreamoeError | None = None,
    ) -> dict[str, Any]:
        """The response object; ended None: in progress, or failed."""
        values, params = self.values, request.params
        is_cut = ended is not None and ended.reason == "length"
        status = "failed" if error else "in_progress" if ended is None else "incomplete" if is_cut else "completed"
        return {
            "id": f"resp_{request.id}",
            "object": "response",
            "created_at": int(time.time()),
            "status": status,
            "error": None if error is None else {"code": "server_error", "message": error.message},
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": values.get("instructions"),
            "max_output_tokens": values.get("max_output_tokens"),
            "model": self.model_id,
            "output": output,
            "parallel_tool_calls": values.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": {"effort": values.get("reasoning", {}).get("effort"), "summary": None},
            "store": False,
            "temperature": params.temperature,
            "text": {"format": values.get("text", {}).get("format") or {"type": "text"}},
            "tool_choice": values.get("tool_choice") or "auto",
            "tools": values.get("tools", []),
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None if ended is None else _usage(ended),
            "user": values.get("user"),
            "metadata": values.get("metadata", {}),
            **({} if ended is None else {"timings": timings_of(ended)}),
        }


def _usage(ended: Ended) -> dict[str, Any]:
    tokens = ended.tokens
    return {
        "input_tokens": tokens.prompt_tokens,
        "input_tokens_details": {"cached_tokens": tokens.cached_tokens},
        "output_tokens": tokens.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning_tokens},
        "total_tokens": tokens.prompt_tokens + tokens.completion_tokens,
    }
