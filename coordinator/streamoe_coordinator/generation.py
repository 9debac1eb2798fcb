"""One sequence in a band, and answers made by running it on.

Owns the sequence's state together with the tokens that made it, and the loop prompt -> token -> token.
Refuses to know of messages and templates. A state cannot rewind: a prompt that does not begin with all tokens run
so far begins a new state.
"""

from __future__ import annotations

import time
from collections.abc import Generator as Yields
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.errors import ContextFull

from .events import Event, Finished, FinishReason, PrefillProgress, Timings, TokenEvent, Usage
from .interrupt import StopFlag
from .runs_tokens import RunsTokens, prompt_chunk_tokens
from .sampling import Sampler
from .text import Piece, StreamDecoder, TextTokenizer, ThinkingSplitter


class TokenSequence:
    """The tokens one state has run. Owns the state; begins a new one when it cannot be continued."""

    def __init__(self, band: RunsTokens) -> None:
        self._band = band
        self._state: Any = None
        self._is_whole = False  # False while running: after an error the state is neither before nor after
        self.tokens: list[int] = []

    def align(self, wanted: Sequence[int]) -> int:
        """Make the state one that `wanted` continues by at least a token; returns how many of its tokens have run."""
        num_run = len(self.tokens)
        if not self._is_whole or num_run >= len(wanted) or list(wanted[:num_run]) != self.tokens:
            self.forget()
            self._state = self._band.new_state()
            self._is_whole = True
        return len(self.tokens)

    def run(self, tokens: Sequence[int], want: Want) -> np.ndarray | None:
        """Run at most a chunk of tokens; the result as the band gives it."""
        self._is_whole = False
        result = self._band.run(self._state, np.asarray(tokens, dtype=np.int32), want)
        self.tokens += tokens
        self._is_whole = True
        return result

    @property
    def state(self) -> Any | None:
        """The state, where it is one that has run `tokens` and nothing else; None otherwise."""
        return self._state if self._is_whole else None

    def adopt(self, state: Any, tokens: Sequence[int]) -> None:
        """Go on from a state that has run these tokens."""
        self.forget()
        self._state, self._is_whole, self.tokens = state, True, list(tokens)

    def forget(self) -> None:
        """Drop the state. It goes before a new one comes: the plan has room for one."""
        self._state, self._is_whole, self.tokens = None, False, []


@dataclass(frozen=True, slots=True)
class Request:
    """What to answer. prompt: token ids. max_tokens None: until the context is full. starts_inside: the prompt ends
    inside an open <think>. start_s: time.perf_counter() when it was asked.
    """

    prompt: Sequence[int]
    max_tokens: int | None = None
    starts_inside: bool = False
    start_s: float = field(default_factory=time.perf_counter)


class Generator:
    """Makes answers in one band, one at a time. Each continues the state of the last where it can."""

    def __init__(self, band: RunsTokens, tokenizer: TextTokenizer, sampler: Sampler) -> None:
        self._band, self._tokenizer, self._sampler = band, tokenizer, sampler
        self._sequence = TokenSequence(band)

    @property
    def sequence(self) -> TokenSequence:
        """The tokens run so far, and their state."""
        return self._sequence

    def generate(self, request: Request, stop: StopFlag) -> Iterator[Event]:
        """PrefillProgress..., TokenEvent..., then one Finished.

        Raises ContextFull before any computing when the prompt and one token do not fit; else what the band and the
        sampler raise.
        """
        num_prompt, ctx_tokens = len(request.prompt), self._band.ctx_tokens
        if num_prompt + 1 > ctx_tokens:
            raise ContextFull(num_prompt + 1, ctx_tokens)
        figures = _Figures(self._band, request, num_cached=self._sequence.align(request.prompt))
        logits = yield from self._prefill(request.prompt, figures, stop)
        text = _TextOfTokens(self._tokenizer, request.starts_inside)
        limit_tokens = min(ctx_tokens - num_prompt, request.max_tokens or ctx_tokens)
        reason = yield from self._decode(logits, text, figures, limit_tokens, stop)
        yield from text.finish()
        yield figures.finished(reason)

    def _prefill(
        self, prompt: Sequence[int], figures: _Figures, stop: StopFlag
    ) -> Yields[PrefillProgress, None, np.ndarray | None]:
        # Returns the logits of the last token, (vocab_size,) float32; None when stopped before it.
        chunk_tokens = prompt_chunk_tokens(self._band, len(prompt) - len(self._sequence.tokens))
        logits: np.ndarray | None = None
        while (start := len(self._sequence.tokens)) < len(prompt) and not stop.is_set:
            end = min(start + chunk_tokens, len(prompt))
            logits = self._sequence.run(prompt[start:end], "last_logits" if end == len(prompt) else "nothing")
            yield figures.progress(end)
        return logits

    def _decode(
        self, logits: np.ndarray | None, text: _TextOfTokens, figures: _Figures, limit_tokens: int, stop: StopFlag
    ) -> Yields[TokenEvent, None, FinishReason]:
        while logits is not None and not stop.is_set:
            token = self._sampler.choose(logits, self._sequence.tokens)
            is_end = token in self._tokenizer.eos_ids
            figures.chose(token, is_end)
            if is_end:
                return "stop"
            yield from text.push(token)
            if len(figures.token_ids) == limit_tokens:
                return "length"
            if not stop.is_set:
                logits = self._sequence.run([token], "last_logits")
        return "cancelled"


class _TextOfTokens:
    """The events of an answer's tokens."""

    def __init__(self, tokenizer: TextTokenizer, starts_inside: bool) -> None:
        self._decoder = StreamDecoder(tokenizer)
        self._splitter = ThinkingSplitter(starts_inside)
        self._is_thinking = starts_inside

    def push(self, token_id: int) -> Iterator[TokenEvent]:
        pieces = self._splitter.push(self._decoder.push(token_id))
        first, *rest = pieces or [Piece("", self._is_thinking)]
        yield TokenEvent(token_id, first.text, first.is_thinking)
        yield from self._more(rest)
        self._is_thinking = (rest or [first])[-1].is_thinking

    def finish(self) -> Iterator[TokenEvent]:
        yield from self._more([*self._splitter.push(self._decoder.finish()), *self._splitter.finish()])

    def _more(self, pieces: list[Piece]) -> Iterator[TokenEvent]:
        return (TokenEvent(None, piece.text, piece.is_thinking) for piece in pieces)


class _Figures:
    """The running figures of one answer."""

    def __init__(self, band: RunsTokens, request: Request, num_cached: int) -> None:
        self._band, self._request, self._num_cached = band, request, num_cached
        self.token_ids: list[int] = []
        self._num_chosen = 0
        self._prefill_start_s = self._prefill_end_s = time.perf_counter()
        self._first_s = self._last_s = 0.0
        self._before = self._at_first = band.telemetry()

    def progress(self, num_run: int) -> PrefillProgress:
        """Another chunk has run, num_run tokens of the sequence in all."""
        self._prefill_end_s = time.perf_counter()
        total = len(self._request.prompt) - self._num_cached
        return PrefillProgress(num_run - self._num_cached, total, self._prefill_end_s - self._prefill_start_s)

    def chose(self, token_id: int, is_end: bool) -> None:
        """A token was chosen now."""
        self._last_s = time.perf_counter()
        if not self._num_chosen:
            self._first_s, self._at_first = self._last_s, self._band.telemetry()
        self._num_chosen += 1
        self.token_ids += [] if is_end else [token_id]

    def finished(self, reason: FinishReason) -> Finished:
        """The last event."""
        now = self._band.telemetry()
        has_first = self._num_chosen > 0
        return Finished(
            reason,
            tuple(self.token_ids),
            Usage(len(self._request.prompt), len(self.token_ids), self._num_cached),
            Timings(
                ttft_s=self._first_s - self._request.start_s if has_first else None,
                prefill_s=self._prefill_end_s - self._prefill_start_s,
                decode_s=self._last_s - self._first_s,
                num_decode_steps=max(0, self._num_chosen - 1),
            ),
            counts=now.since(self._before),
            decode_counts=now.since(self._at_first if has_first else now),
        )
