"""Steps on their way through the bands, in lock step: in each tick every band that has a step works on it.

Owns what lies between two bands. Steps of one session follow one another as a prompt's chunks; steps of several
sessions as their tokens. Refuses to know why they were made and how a band gets its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
        answers: list[BandAnswer] = []
        left: np.ndarray | TopWords | None = None
        # From the last: the place before a band is free when the band before it is looked at.
        for band, wagon in reversed(moving):
            answer = wagon.bands[band].answer()
            answers.append(BandAnswer(band, len(wagon.step.inputs), answer))
            self._before[band] = None
            output = answer.result.output
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
