"""What happens while an answer is made, as values: every front end shows these and nothing else.

Owns the nouns of an answer. Refuses to know how they come about and how they are printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamoe_engine.telemetry import Snapshot

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Another chunk of the prompt has run. total_tokens leaves out what an earlier turn had run already."""

    done_tokens: int
    total_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A token was chosen. text: what it makes certain, "" inside a character or a mark.

    token_id None: more text of the token before, where one token ends thinking and begins the answer, or the
    held-back rest after the last token.
    """

    token_id: int | None
    text: str
    is_thinking: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. cached_tokens of the prompt's were run by an earlier turn."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one answer. ttft_s: from the request to the first token, None where none came; prefill_s: running the
    prompt, within it; decode_s: from the first token to the last; num_decode_steps: tokens run in that time.
    """

    ttft_s: float | None
    prefill_s: float
    decode_s: float
    num_decode_steps: int

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed; None for an answer of one token, which has none."""
        return self.num_decode_steps / self.decode_s if self.num_decode_steps else None


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer. counts: the band's counts over the answer; decode_counts: those after the first token.

    token_ids leaves out the token that ended the answer.
    """

    reason: FinishReason
    token_ids: tuple[int, ...]
    usage: Usage
    timings: Timings
    counts: Snapshot
    decode_counts: Snapshot


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer came to, once its events are over."""

    text: str
    thinking: str
    finished: Finished


Event = PrefillProgress | TokenEvent | Finished
