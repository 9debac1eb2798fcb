"""One sequence in a chain: a session in each band, and the tokens' hashes so far.

Owns the sessions' life: they are closed when the state is released, or forgotten by everybody. Refuses to know how
steps travel.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np

from streamoe_engine.errors import StateLost
from streamoe_proto.messages import EMPTY_PREFIX, Step, prefix_hash

from .band_session import BandSession
from .budget import Budget
from .pipeline import Pipeline


class ChainState:
    """position: tokens taken in. session: its name on every node. One thread at a time; release() from any."""

    def __init__(self, session: str, bands: Sequence[BandSession], base: tuple[int, bytes] = (0, EMPTY_PREFIX)) -> None:
        self.session, self.bands = session, tuple(bands)
        self.position, self.prefix_hash = base
        self.pipeline = Pipeline(len(bands))
        self.checkpoint_position = self.position
        self.words_wanted: int | None = None
        self._close = weakref.finalize(self, _close_all, self.bands)
        # At the end of the process nothing may be sent any more: nodes free what is left as orphans.
        self._close.atexit = False

    @property
    def is_held(self) -> bool:
        """False once released, or lost by an error midway."""
        return self._close.alive

    def release(self) -> None:
        """Close the sessions. Never blocks."""
        self._close()

    def check(self) -> None:
        """Raises StateLost for a state that cannot go on."""
        if not self.is_held:
            raise StateLost(self.position)

    def begin_run(self, budget: Budget, on_layer: Callable[[int], None] | None) -> None:
        """What follows has this budget for troubles, and tells on_layer of its progress."""
        for band in self.bands:
            band.budget, band.on_layer = budget, on_layer

    def end_run(self) -> None:
        """Nobody is told any more."""
        for band in self.bands:
            band.on_layer = None

    def next_step(self, tokens: np.ndarray) -> Step:
        """The step of the next tokens, (tokens,) int32, which count as taken in from now on."""
        before = self.prefix_hash
        after = prefix_hash(before, tokens.tolist())
        step = Step(0, self.position, tokens, "ack", before, after)
        self.position += len(tokens)
        self.prefix_hash = after
        return step


def _close_all(bands: tuple[BandSession, ...]) -> None:
    for band in bands:
        band.close()
