"""OpenAI's completions: a text is continued as it is, without the chat template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamoe_engine.errors import StreamoeError

from ..answering import Collected
from ..fields import Either, Field, ListOf, OneOf, Text, Whole
from ..request import AnswerRequest, Asked
from ..served import Served
from ..stream import ContentDelta, Ended, OutputDelta, TokenLogprob
from . import comment, openai_error, sse, timings_of
from .openai_chat import chunk_head, finish_reason, usage_of
from .openai_parts import ACCEPTED, LOGIT_BIAS, MODEL, SAMPLING, STOP, STREAM, STREAM_OPTIONS, read_logit_bias

_MAX_LOGPROBS = 5
_NO_TEXT = Text(max_chars=0)


class OpenAICompletions:
    """POST /v1/completions."""

    media_type = "text/event-stream"
    fields: tuple[Field, ...] = (
        MODEL,
        Field(
            "prompt",
            Either((Text(is_filled=True), ListOf(Text(is_filled=True), 1, min_items=1), ListOf(Whole(0), 1 << 20))),
            "a text, a list of one text, or token ids",
            is_needed=True,
        ),
        *SAMPLING,
        STOP,
        LOGIT_BIAS,
        Field("max_tokens", Whole(1), "left out: the model's own"),
        Field("logprobs", Whole(0, _MAX_LOGPROBS), "alternatives told with each token"),
        STREAM,
        STREAM_OPTIONS,
        Field("n", OneOf((1,)), "one answer a request"),
        Field("best_of", OneOf((1,)), "one answer a request"),
        Field("echo", OneOf((False,)), "the prompt is not repeated"),
        Field("suffix", _NO_TEXT, "nothing is inserted: only an empty text"),
        *ACCEPTED,
    )

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, CompletionReply]:
        """Raises BadRequest, NotServed."""
        served.check_name(values["model"])
        prompt = values["prompt"]
        if isinstance(prompt, list):
            prompt = prompt[0] if prompt and isinstance(prompt[0], str) else tuple(prompt)
        asked = Asked(
            params=served.params(values, logit_bias=read_logit_bias(values)),
            prompt=prompt,
            stop=tuple(values.get("stop", ())),
            num_logprobs=values.get("logprobs"),
            client=values.get("user") or values.get("safety_identifier") or "",
        )
        has_usage = values.get("stream_options", {}).get("include_usage", False)
        return asked, CompletionReply(served.model_id, values.get("stream", False), has_usage)

    def error(self, error: StreamoeError) -> dict[str, Any]:
        """OpenAI's error object."""
        return openai_error(error)


@dataclass(frozen=True, slots=True)
class CompletionReply:
    """has_usage: a last chunk tells the usage."""

    model_id: str
    is_streamed: bool
    has_usage: bool

    def whole(self, request: AnswerRequest, collected: Collected) -> dict[str, Any]:
        """A text_completion."""
        ended = collected.ended
        assert ended is not None
        logprobs = None if request.num_logprobs is None else _logprobs(collected.logprobs, 0)[0]
        choice = _choice(collected.content, logprobs, finish_reason(ended))
        head = chunk_head("text_completion", f"cmpl-{request.id}", self.model_id)
        return {**head, "choices": [choice], "usage": usage_of(ended.tokens), "timings": timings_of(ended)}

    def writer(self, request: AnswerRequest) -> CompletionWriter:
        """Chunks."""
        return CompletionWriter(self, request)


class CompletionWriter:
    """text_completion objects, and [DONE]."""

    def __init__(self, reply: CompletionReply, request: AnswerRequest) -> None:
        self._reply = reply
        self._head = chunk_head("text_completion", f"cmpl-{request.id}", reply.model_id)
        self._num_chars = 0

    def begin(self) -> bytes:
        """Nothing: the first chunk has text."""
        return b""

    def event(self, event: OutputDelta | Ended) -> bytes:
        """A chunk."""
        match event:
            case ContentDelta(text, logprobs):
                told, self._num_chars = _logprobs(list(logprobs), self._num_chars)
                return self._chunk(_choice(text, told if logprobs else None, None))
            case Ended():
                last = self._chunk(_choice("", None, finish_reason(event)), timings=timings_of(event))
                if self._reply.has_usage:
                    last += sse({**self._head, "choices": [], "usage": usage_of(event.tokens)})
                return last + sse("[DONE]")
            case _:
                return b""  # of a bare continuation all is content

    def failed(self, error: StreamoeError) -> bytes:
        """An error in the stream."""
        return sse(openai_error(error))

    def idle(self) -> bytes:
        """A comment."""
        return comment("keepalive")

    def _chunk(self, choice: dict[str, Any], **more: Any) -> bytes:
        usage = {"usage": None} if self._reply.has_usage else {}
        return sse({**self._head, "choices": [choice], **usage, **more})


def _choice(text: str, logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _logprobs(tokens: list[TokenLogprob], num_chars: int) -> tuple[dict[str, Any], int]:
    # The old form: lists beside each other; and how many characters there are after these tokens.
    offsets = []
    for token in tokens:
        offsets.append(num_chars)
        num_chars += len(token.text)
    told = {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{text: logprob for text, _, logprob in token.top} for token in tokens],
        "text_offset": offsets,
    }
    return told, num_chars
