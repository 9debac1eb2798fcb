"""What a server has done so far: counts, speeds, latencies.

Owns the counting. Written by the compute thread alone, read by any; a reader may see one figure a token ahead of
another, never a wrong one. Refuses to know how figures are shown.
"""

from __future__ import annotations

import bisect
import time
from collections import deque

_WINDOW_S = 1.0
TTFT_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)
TOKEN_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts of seconds by upper bound; the last count is what passes every bound."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect.bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds


class Meter:
    """The running counts of one server."""

    def __init__(self) -> None:
        self.num_requests = self.num_cancelled = self.num_failed = 0
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        self.ttft, self.between_tokens = Histogram(TTFT_BOUNDS_S), Histogram(TOKEN_BOUNDS_S)
        self._recent_s: deque[float] = deque(maxlen=4096)
        self._answer_s: deque[float] = deque(maxlen=16)

    def began(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A prompt begins to be read."""
        self.num_requests += 1
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def generated(self, now_s: float, *, ttft_s: float | None, since_last_s: float | None) -> None:
        """A token was chosen: the first of an answer, or one after another."""
        self.generated_tokens += 1
        self._recent_s.append(now_s)
        if ttft_s is not None:
            self.ttft.observe(ttft_s)
        if since_last_s is not None:
            self.between_tokens.observe(since_last_s)

    def ended(self, seconds: float, *, is_cancelled: bool = False, is_failed: bool = False) -> None:
        """An answer is over; seconds: since it was asked."""
        self.num_cancelled += is_cancelled
        self.num_failed += is_failed
        self._answer_s.append(seconds)

    def never_began(self, *, is_cancelled: bool = False, is_failed: bool = False) -> None:
        """A request is over whose prompt was never begun: it counts, but tells nothing of how long answers take."""
        self.num_cancelled += is_cancelled
        self.num_failed += is_failed

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated in the last second."""
        since = time.perf_counter() - _WINDOW_S
        return sum(at > since for at in list(self._recent_s)) / _WINDOW_S

    @property
    def mean_answer_s(self) -> float:
        """How long the last answers took, from asking to the end; 1 where there was none."""
        known = list(self._answer_s)
        return sum(known) / len(known) if known else 1.0
