"""One answer in the making: its prompt's chunks, then token after token, as events.

Owns what of an answer outlives a step: tokens run, sampler, output, figures. Refuses to know the band, other answers
and threads; who calls it runs the tokens it names and gives back their logits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamoe_engine.telemetry import Snapshot

from ..events import Timings
from ..sampling import Sampler
from ..text import TextTokenizer
from ..text.thinking import CLOSE_MARK
from .logprobs import token_logprob
from .meter import Meter
from .output import AnswerOutput
from .request import AnswerRequest
from .stream import AnswerEvent, Ended, EndReason, OutputDelta, Progress, TokenLogprob, Tokens


class Running:
    """An answer that has its state. tokens: what the state has run; next_token: chosen, but not run yet."""

    def __init__(
        self,
        request: AnswerRequest,
        state: Any,
        num_cached: int,
        *,
        tokenizer: TextTokenizer,
        ctx_tokens: int,
        meter: Meter,
        telemetry: Callable[[], Snapshot],
    ) -> None:
        self.request, self.state = request, state
        self.tokens: list[int] = list(request.prompt.tokens[:num_cached])
        self.next_token: int | None = None
        self.token_ids: list[int] = []
        self._num_cached, self._tokenizer, self._meter, self._telemetry = num_cached, tokenizer, meter, telemetry
        self._sampler = Sampler(request.params, request.make_mask())
        self._output = AnswerOutput(tokenizer, request.make_parser(), request.stop)
        self._forced: deque[int] = deque()
        self._is_closed = False
        self._limit_tokens = min(ctx_tokens - len(request.prompt.tokens), request.params.max_tokens or ctx_tokens)
        self._begin_s = self._prefill_end_s = time.perf_counter()
        self._first_s = self._last_s = 0.0
        self._num_chosen = 0
        self._before = telemetry()
        meter.began(len(request.prompt.tokens), num_cached)

    # ---- the prompt

    @property
    def is_reading(self) -> bool:
        """Whether tokens of the prompt are left to run."""
        return len(self.tokens) < len(self.request.prompt.tokens)

    def next_chunk(self, chunk_tokens: int, checkpoint_tokens: int) -> Sequence[int]:
        """The prompt's next tokens: at most chunk_tokens, and not past a boundary worth a checkpoint, one that
        spares a later prompt at least checkpoint_tokens."""
        start, prompt = len(self.tokens), self.request.prompt
        end = min(start + chunk_tokens, len(prompt.tokens))
        return prompt.tokens[start : min([end, *self.boundaries_ahead(checkpoint_tokens)])]

    def boundaries_ahead(self, checkpoint_tokens: int) -> list[int]:
        """Boundaries not reached yet that are worth a checkpoint, ascending."""
        ahead, last = [], self._num_cached
        for boundary in self.request.prompt.boundaries:
            if boundary - last >= checkpoint_tokens:
                last = boundary
                if boundary > len(self.tokens):
                    ahead.append(boundary)
        return ahead

    def progress(self) -> Progress:
        """How much of the prompt has run."""
        self._prefill_end_s = time.perf_counter()
        total = len(self.request.prompt.tokens) - self._num_cached
        done = min(len(self.tokens) - self._num_cached, total)
        return Progress(done, total, self._num_cached, self._prefill_end_s - self._begin_s)

    # ---- the answer

    def choose(self, logits: np.ndarray) -> list[AnswerEvent]:
        """The next token after `tokens`, from logits (vocab_size,): what it adds, and Ended where it is the last.

        Raises NonFiniteLogits.
        """
        token = self._forced.popleft() if self._forced else None
        if token is None:
            token = self._sampler.choose(logits, self.tokens)
        else:
            self._sampler.accept(token)
        self._mark_time()
        if token in self._tokenizer.eos_ids:
            return self.end("stop")
        self.token_ids.append(token)
        self.next_token = token
        events: list[AnswerEvent] = list(self._output.push(token, self._logprob(logits, token)))
        if self._output.stop_text is not None:
            return events + self.end("stop")
        if len(self.token_ids) >= self._limit_tokens:
            return events + self.end("length")
        self._close_long_thinking()
        return events

    def end(self, reason: EndReason) -> list[AnswerEvent]:
        """The last events."""
        self.next_token = None
        rest: list[OutputDelta] = self._output.finish() if reason != "cancelled" else []
        if reason == "stop" and self._output.parser.num_tool_calls:
            reason = "tool_calls"
        self._meter.ended(time.perf_counter() - self.request.start_s, is_cancelled=reason == "cancelled")
        return [*rest, self._ended(reason)]

    def failed(self) -> None:
        """An error ended it; who met the error tells the client."""
        self._meter.ended(time.perf_counter() - self.request.start_s, is_failed=True)

    def _ended(self, reason: EndReason) -> Ended:
        prompt_tokens, has_first = len(self.request.prompt.tokens), self._num_chosen > 0
        return Ended(
            reason,
            self._output.stop_text,
            tuple(self.token_ids),
            Tokens(prompt_tokens, len(self.token_ids), self._num_cached, self._output.num_reasoning),
            Timings(
                ttft_s=self._first_s - self.request.start_s if has_first else None,
                prefill_s=self._prefill_end_s - self._begin_s,
                decode_s=self._last_s - self._first_s,
                num_decode_steps=max(0, self._num_chosen - 1),
            ),
            self._telemetry().since(self._before),
        )

    def _mark_time(self) -> None:
        now_s = time.perf_counter()
        if self._num_chosen:
            self._meter.generated(now_s, ttft_s=None, since_last_s=now_s - self._last_s)
        else:
            self._first_s = now_s
            self._meter.generated(now_s, ttft_s=now_s - self.request.start_s, since_last_s=None)
        self._last_s = now_s
        self._num_chosen += 1

    def _logprob(self, logits: np.ndarray, token: int) -> TokenLogprob | None:
        num_top = self.request.num_logprobs
        return None if num_top is None else token_logprob(self._tokenizer, logits, token, num_top)

    def _close_long_thinking(self) -> None:
        most = self.request.max_thinking_tokens
        if most is None or self._is_closed or self._output.parser.kind != "reasoning":
            return
        if self._output.num_reasoning >= most:
            self._is_closed = True
            self._forced.extend(self._tokenizer.encode(f"\n{CLOSE_MARK}\n\n", with_special_tokens=False))
