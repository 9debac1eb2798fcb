"""Into how many steps a prompt is cut so that several bands work on it at once, yet no record is read too often.

Owns the cost model. Each pass of a band over a chunk reads most of its experts again, so a short prompt goes through
whole: with C steps over N bands the time is (C + N - 1) times that of the slowest band's step. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Until measured: a pass of reads takes as long as computing so many tokens (4.1 s and 4.8 ms a token on an SSD).
PASS_TOKENS = 850
# A step costs this on top: frames, hashes, threads.
STEP_S = 0.005
_MOST_STEPS = 64
_KEPT = 32


@dataclass(frozen=True, slots=True)
class BandCost:
    """What a prompt's tokens cost in one band. chunk_tokens: most tokens of one pass, the node's plan."""

    chunk_tokens: int
    pass_s: float
    token_s: float

    def step_s(self, num_tokens: int) -> float:
        """Seconds of one step."""
        passes = -(-num_tokens // self.chunk_tokens)
        return passes * self.pass_s + num_tokens * self.token_s + STEP_S


def step_tokens(num_tokens: int, costs: Sequence[BandCost], most_tokens: int) -> int:
    """The tokens of each step of a prompt, at most most_tokens; the last step may have fewer."""
    fewest = -(-num_tokens // most_tokens)
    best = min(
        range(fewest, max(fewest, min(_MOST_STEPS, num_tokens)) + 1),
        key=lambda count: (prompt_s(num_tokens, count, costs), count),
    )
    return -(-num_tokens // best)


def prompt_s(num_tokens: int, num_steps: int, costs: Sequence[BandCost]) -> float:
    """Seconds until a prompt cut into so many steps has left the last band."""
    size = -(-num_tokens // num_steps)
    ticks = num_steps + len(costs) - 1
    # One step alone waits for nobody: its bands work one after another.
    if num_steps == 1:
        return sum(cost.step_s(size) for cost in costs)
    return ticks * max(cost.step_s(size) for cost in costs)


class CostMeter:
    """Learns one band's BandCost from the prompt steps that it has done. One thread."""

    def __init__(self, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._seen: list[tuple[int, int, float]] = []  # passes, tokens, seconds

    def add(self, num_tokens: int, seconds: float) -> None:
        """A step of so many tokens took so long on its node."""
        if num_tokens > 1:
            self._seen = [*self._seen[1 - _KEPT :], (-(-num_tokens // self._chunk_tokens), num_tokens, seconds)]

    def cost(self) -> BandCost:
        """The best guess so far."""
        if not self._seen:
            return BandCost(self._chunk_tokens, PASS_TOKENS * 1e-3, 1e-3)
        seen = np.array(self._seen)
        sizes, seconds = seen[:, :2], seen[:, 2]
        if sizes[:, 1].max() >= 2 * sizes[:, 1].min():
            (pass_s, token_s), *_ = np.linalg.lstsq(sizes, seconds, rcond=None)
            if pass_s >= 0 and token_s >= 0:
                return BandCost(self._chunk_tokens, float(pass_s), float(token_s))
        token_s = float(seconds.sum() / (sizes[:, 0] * PASS_TOKENS + sizes[:, 1]).sum())
        return BandCost(self._chunk_tokens, PASS_TOKENS * token_s, token_s)
