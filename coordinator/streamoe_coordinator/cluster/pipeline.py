"""Steps on their way through the bands, in lock step: in each tick every band that has a step works on it.

Owns what lies between two bands. Steps of one session follow one another as a prompt's chunks; steps of several
sessions as their tokens. Refuses to know why they were made and how a band gets its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from streamoe_proto.messages import Step, StepWant, TopWords

from .band_session import BandSession
from .link import Answer


@dataclass(slots=True)
class Wagon:
    """A step on its way. step: as it entered; load: what it brings to the next band; want: what the last one gives."""

    bands: Sequence[BandSession]
    step: Step
    want: StepWant
    top_k: int = 0
    load: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """It enters with the step's own inputs."""
        self.load = self.step.inputs

    def asks(self, want: StepWant, top_k: int = 0) -> Step:
        """The step for a band; its seq is the session's to choose."""
        step = self.step
        return Step(0, step.position, self.load, want, step.prefix_hash, step.next_hash, top_k)


@dataclass(frozen=True, slots=True)
class BandAnswer:
    """Band number `band` has done a step of so many tokens."""

    band: int
    num_tokens: int
    answer: Answer


class Pipeline:
    """Wagons between bands 0..N-1; at most one waits before each band."""

    def __init__(self, num_bands: int) -> None:
        self._before: list[Wagon | None] = [None] * num_bands

    @property
    def is_empty(self) -> bool:
        """Nothing is on its way."""
        return not any(self._before)

    @property
    def is_free(self) -> bool:
        """Another wagon may enter."""
        return self._before[0] is None

    def enter(self, wagon: Wagon) -> None:
        """Put a wagon before the first band."""
        assert self.is_free
        self._before[0] = wagon

    def tick(self) -> tuple[list[BandAnswer], np.ndarray | TopWords | None]:
        """Every waiting wagon through its band; what the bands answered, and what left the last one.

        Raises BandLost; then the sessions that were on their way are as good as closed.
        """
        moving = [(band, wagon) for band, wagon in enumerate(self._before) if wagon is not None]
        for band, wagon in moving:
            wagon.bands[band].submit(self._asking(band, wagon))
        found = _collect(moving)
        answers: list[BandAnswer] = []
        left: np.ndarray | TopWords | None = None
        # From the last: the place before a band is free when the band before it is looked at.
        for band, wagon in reversed(moving):
            answers.append(BandAnswer(band, len(wagon.step.inputs), found[band]))
            self._before[band] = None
            output = found[band].result.output
            if band == len(self._before) - 1:
                left = output
            else:
                assert isinstance(output, np.ndarray)
                wagon.load = output
                self._before[band + 1] = wagon
        return answers, left

    def _asking(self, band: int, wagon: Wagon) -> Step:
        is_last = band == len(self._before) - 1
        return wagon.asks(wagon.want, wagon.top_k) if is_last else wagon.asks("hidden")


def _collect(moving: Sequence[tuple[int, Wagon]]) -> dict[int, Answer]:
    """The answer of every band that works, by its number; a band whose stream dies meanwhile comes first."""
    owed, found = dict(moving), dict[int, Answer]()
    while owed:
        dead = [band for band, wagon in owed.items() if wagon.bands[band].is_dead]
        band = dead[0] if dead else max(owed)
        others = {other: wagon.bands[other] for other, wagon in owed.items() if other != band}
        idle = [session for wagon in owed.values() for other, session in enumerate(wagon.bands) if other not in owed]
        answer = owed[band].bands[band].answer(None if dead else partial(_is_trouble, others.values(), idle))
        if answer is not None:
            found[band] = answer
            del owed[band]
    return found


def _is_trouble(owing: Iterable[BandSession], idle: Iterable[BandSession]) -> bool:
    """Whether another band that owes an answer has lost its stream. One that owes none is only told of."""
    for session in idle:
        if session.is_dead and not session.is_closed:
            session.tell_death()
    return any(session.is_dead for session in owing)
