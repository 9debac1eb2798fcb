"""The fastest settings of guess, width and reader threads for one model, cap and machine.

Owns which settings are tried and how the best is chosen. Refuses to know how one is measured and where it is kept.
None of them changes a token: they decide only what is read early, and by how many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """One way to read. guess_width 0 goes with guess "none"."""

    guess: str
    guess_width: int
    reader_threads: int

    def arguments(self) -> list[str]:
        """As flags."""
        return [part for name, value in asdict(self).items() for part in (f"--{name.replace('_', '-')}", str(value))]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings and the speeds measured with them, tokens a second, a run each."""

    settings: Settings
    tokens_per_s: tuple[float, ...]

    @property
    def median_tokens_per_s(self) -> float:
        """What trials are compared by."""
        return median(self.tokens_per_s)


GUESSES = (("none", 0), ("cross-layer", 2), ("cross-layer", 4), ("cross-layer", 6), ("previous-token", 4))
THREADS = (1, 2, 4)
_START_THREADS = 2


def tune(speed: Callable[[Settings], float], num_rounds: int, tell: Callable[[str], None]) -> tuple[Trial, ...]:
    """Trials, the fastest first: every guess with two reader threads, then the best one with other numbers.

    speed runs the model once with these settings and returns tokens a second. Runs alternate over num_rounds rounds,
    so that a slow spell of the machine meets all of them.
    """
    guesses = _trials([Settings(kind, width, _START_THREADS) for kind, width in GUESSES], speed, num_rounds, tell)
    best = _by_speed(guesses)[0].settings
    others = [replace(best, reader_threads=number) for number in THREADS if number != _START_THREADS]
    return _by_speed([*guesses, *_trials(others, speed, num_rounds, tell)])


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial's settings and figures."""
    return {
        **asdict(trial.settings),
        "tokens_per_s": trial.median_tokens_per_s,
        "runs_tokens_per_s": list(trial.tokens_per_s),
    }


def _trials(
    settings: Sequence[Settings], speed: Callable[[Settings], float], num_rounds: int, tell: Callable[[str], None]
) -> list[Trial]:
    speeds: dict[Settings, list[float]] = {entry: [] for entry in settings}
    for number in range(1, num_rounds + 1):
        for entry in settings:
            tell(f"round {number} of {num_rounds}: {' '.join(entry.arguments())}")
            speeds[entry].append(speed(entry))
    return [Trial(entry, tuple(speeds[entry])) for entry in settings]


def _by_speed(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    return tuple(sorted(trials, key=lambda trial: trial.median_tokens_per_s, reverse=True))
