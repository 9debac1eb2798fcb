"""What comes of a request, as values: every API words these and nothing else.

An answer is Started, Progress..., deltas..., then one Ended or Failed. Owns these nouns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamoe_engine.errors import StreamoeError
from streamoe_engine.telemetry import Snapshot

from ..events import Timings

EndReason = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Another chunk of the prompt has run; the first comes before any. total_tokens leaves out cached_tokens, which
    an earlier request had run already."""

    done_tokens: int
    total_tokens: int
    cached_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with the model's own log-probability, before penalties, mask and temperature. top: the likeliest, in
    order, each (text, bytes, logprob)."""

    token_id: int
    text: str
    utf8: bytes
    logprob: float
    top: tuple[tuple[str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer's text. logprobs: of tokens since the last delta, empty where none were asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegun:
    """Tool call number `index` of this answer, from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of the arguments of call `index`: pieces of one JSON object."""

    index: int
    text: str


OutputDelta = ContentDelta | ReasoningDelta | ToolCallBegun | ToolCallArguments


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one answer. reasoning_tokens are part of completion_tokens, cached_tokens of prompt_tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer. stop_text: the stop sequence that ended it. token_ids: all that were chosen, without the
    one that ends an answer. counts: the band's since this prompt began, whoever caused them.
    """

    reason: EndReason
    stop_text: str | None
    token_ids: tuple[int, ...]
    tokens: Tokens
    timings: Timings
    counts: Snapshot


@dataclass(frozen=True, slots=True)
class Failed:
    """An error ended the answer."""

    error: StreamoeError


AnswerEvent = Progress | OutputDelta | Ended | Failed
