"""The APIs, one module each: a request body to `Asked`, events to the API's words.

Each is an `Api`: sans-IO, so that a test needs no server. Refuses to know sockets, headers and the scheduler.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from streamoe_engine.errors import PlanDoesNotFit, StreamoeError

from ..answering import Collected
from ..errors import status_of
from ..fields import Field
from ..request import AnswerRequest, Asked
from ..served import Served
from ..stream import Ended, OutputDelta, Progress


class StreamWriter(Protocol):
    """The words of one streamed answer."""

    def begin(self) -> bytes:
        """What comes first."""
        ...

    def event(self, event: OutputDelta | Ended) -> bytes:
        """A delta, or the end."""
        ...

    def failed(self, error: StreamoeError) -> bytes:
        """An error within the stream; nothing comes after it."""
        ...

    def idle(self) -> bytes:
        """Shows that the server lives."""
        ...


class Reply(Protocol):
    """How one request wants its answer."""

    @property
    def is_streamed(self) -> bool:
        """As events."""
        ...

    def whole(self, request: AnswerRequest, collected: Collected) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        ...

    def writer(self, request: AnswerRequest) -> StreamWriter:
        """The words of one that is."""
        ...


class Api(Protocol):
    """One endpoint that answers."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """What a request may say."""
        ...

    @property
    def media_type(self) -> str:
        """Of a streamed answer."""
        ...

    def read(self, values: dict[str, Any], served: Served) -> tuple[Asked, Reply]:
        """What is asked, and how the answer is wanted; values: the checked fields. Raises BadRequest, NotServed."""
        ...

    def error(self, error: StreamoeError) -> dict[str, Any]:
        """The body of a refusal."""
        ...


def sse(data: dict[str, Any] | str, event: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{f'event: {event}{chr(10)}' if event else ''}data: {text}\n\n".encode(errors="replace")


def comment(text: str) -> bytes:
    """A line of a stream that clients skip."""
    return f": {text}\n\n".encode()


def progress_comment(progress: Progress) -> bytes:
    """How far the prompt is read."""
    figures = {
        "done_tokens": progress.done_tokens,
        "total_tokens": progress.total_tokens,
        "cached_tokens": progress.cached_tokens,
        "elapsed_s": round(progress.elapsed_s, 3),
    }
    return comment(f"prefill {json.dumps(figures)}")


def figures_of(error: StreamoeError) -> dict[str, Any]:
    """An error's code, words and own figures."""
    figures = {name: value for name, value in vars(error).items() if isinstance(value, int | str)}
    if isinstance(error, PlanDoesNotFit):
        figures["short_bytes"] = error.short_bytes
    return {**figures, "code": error.code}


def openai_error(error: StreamoeError) -> dict[str, Any]:
    """{"error": {...}} as OpenAI's clients read it."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    status = status_of(error)
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {**figures_of(error), "type": kind, "param": getattr(error, "param", "") or None}}


def timings_of(ended: Ended) -> dict[str, Any]:
    """The answer's own figures; those of the band hold whatever ran at the same time."""
    timings, counts = ended.timings, ended.counts
    return {
        "ttft_s": _rounded(timings.ttft_s),
        "prefill_s": _rounded(timings.prefill_s),
        "decode_s": _rounded(timings.decode_s),
        "tokens_per_s": _rounded(timings.tokens_per_s),
        "wait_s": _rounded(counts.wait_s),
        "hit_rate": _rounded(counts.hit_rate),
        "read_bytes": counts.read_bytes,
        "peak_bytes": counts.peak_bytes,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
