"""Nodes killed, frozen and cut off in the middle of an answer: the same words as undisturbed, or a typed error in time.

`bench/recovery.py` runs the same trials and writes how long each took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.cells import BANDS, Pair
from tests.e2e.cluster.faults import LONGEST_S, MOMENTS, NUM_TOKENS, Moment, Trial, prompt_of
from tests.e2e.cluster.lan import Lan, unavailable_reason
from tests.e2e.cluster.machines import Cluster, chat_alone

pytestmark = pytest.mark.slow
needs_lan = pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or "")
both_bands = pytest.mark.parametrize("band", [0, 1], ids=BANDS)
# Far above what is measured (bench/recovery.py), so that only a watch that does not watch is caught.
KILLED_SOON_S, SILENT_SOON_S = 10.0, 25.0
every_moment = pytest.mark.parametrize("moment", MOMENTS)


@pytest.fixture(scope="module")
def undisturbed(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Moment, dict[str, object]]:
    home = tmp_path_factory.mktemp("alone")
    answers = {
        prompt: chat_alone(embedded_folder, home, "500MiB", prompt, NUM_TOKENS)
        for prompt in {prompt_of(moment) for moment in MOMENTS}
    }
    return {moment: answers[prompt_of(moment)] for moment in MOMENTS}


@pytest.fixture(scope="module")
def num_prompt(undisturbed: dict[Moment, dict]) -> Callable[[Moment], int]:
    return lambda moment: undisturbed[moment]["usage"]["prompt_tokens"]


@pytest.fixture(scope="module")
def pair(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory, num_prompt) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("pair")
    with Cluster(embedded_folder, home) as cluster:
        yield Pair(cluster, home / "coordinator", num_prompt)


@pytest.fixture(scope="module")
def pair_on_lan(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory, num_prompt) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("lan")
    with Lan() as lan, Cluster(embedded_folder, home) as cluster:
        yield Pair(cluster, home / "coordinator", num_prompt, lan)


def check_same(trial: Trial, undisturbed: dict[Moment, dict], soon_s: float = SILENT_SOON_S) -> None:
    """The fault was met and told in time, and the words are those of the undisturbed run."""
    assert trial.tokens == tuple(undisturbed[trial.moment]["token_ids"]), trial
    assert trial.noticed_s is not None and trial.noticed_s < soon_s and trial.total_s < LONGEST_S, trial


@every_moment
@both_bands
def test_killed_and_started_again(pair: Pair, undisturbed, moment: Moment, band: int) -> None:
    trial = pair.killed(moment, band)
    check_same(trial, undisturbed, KILLED_SOON_S)
    assert trial.lost_s is not None and trial.back_s is not None, trial


@every_moment
@both_bands
def test_frozen_and_thawed(pair: Pair, undisturbed, moment: Moment, band: int) -> None:
    trial = pair.frozen(moment, band)
    check_same(trial, undisturbed)
    # Frozen and thawed it is the same process: it goes on where it was.
    assert trial.lost_s is not None and trial.way == "resumed", trial


@needs_lan
@every_moment
@both_bands
def test_cut_off_and_back(pair_on_lan: Pair, undisturbed, moment: Moment, band: int) -> None:
    trial = pair_on_lan.cut_off(moment, band)
    check_same(trial, undisturbed)
    assert trial.lost_s is not None and trial.way == "resumed", trial


@pytest.mark.parametrize("moment", ["prefill", "middle token"])
@both_bands
def test_killed_while_another_node_has_the_band(pair: Pair, undisturbed, moment: Moment, band: int) -> None:
    with pair.stand_in(band) as other:
        trial = pair.taken_over(moment, band, other)
    check_same(trial, undisturbed)
    assert trial.way.endswith(f"moved from {pair.places[band].name}"), trial


@both_bands
def test_killed_and_opened_by_the_coordinator(pair: Pair, undisturbed, embedded_folder: Path, band: int) -> None:
    trial = pair.opened_here("middle token", band, embedded_folder)
    check_same(trial, undisturbed)
    assert trial.way.endswith(f"moved from {pair.places[band].name}"), trial


def test_killed_for_good_is_a_typed_error_in_time(pair: Pair) -> None:
    trial = pair.killed_for_good("middle token", 1)
    assert (trial.tokens, trial.error) == (None, "BandLost") and trial.total_s < LONGEST_S, trial
