"""Which settings are tried, and that the best by median wins."""

from __future__ import annotations

from streamoe_coordinator.bench.tune import GUESSES, THREADS, Settings, tune


def test_the_best_guess_is_tried_with_every_number_of_threads() -> None:
    tried: list[Settings] = []

    def speed(settings: Settings) -> float:
        tried.append(settings)
        return 5 + (settings.guess_width == 4 and settings.guess == "cross-layer") + settings.reader_threads / 10

    trials = tune(speed, 2, lambda line: None)
    assert trials[0].settings == Settings("cross-layer", 4, max(THREADS))
    assert len(tried) == 2 * (len(GUESSES) + len(THREADS) - 1)
    assert tried[: len(GUESSES)] == tried[len(GUESSES) : 2 * len(GUESSES)], "rounds alternate"
    assert [trial.median_tokens_per_s for trial in trials] == sorted(
        (trial.median_tokens_per_s for trial in trials), reverse=True
    )


def test_one_slow_run_does_not_decide() -> None:
    runs: dict[Settings, int] = {}

    def speed(settings: Settings) -> float:
        runs[settings] = runs.get(settings, 0) + 1
        is_best = settings == Settings("previous-token", 4, 2)
        return 1 if is_best and runs[settings] == 2 else 9 if is_best else 8

    assert tune(speed, 3, lambda line: None)[0].settings == Settings("previous-token", 4, 2)


def test_settings_as_flags() -> None:
    assert Settings("none", 0, 4).arguments() == ["--guess", "none", "--guess-width", "0", "--reader-threads", "4"]
