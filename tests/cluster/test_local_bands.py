"""A real model cut into bands of this process: what a chain of them answers is what one band answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.local import LocalBand
from streamoe_coordinator.cluster.notices import BandRecovered, Notice
from streamoe_coordinator.cluster.ports import NoRescue, Seat, Target
from streamoe_coordinator.cluster.timers import Timers
from streamoe_coordinator.cluster.words import words_wanted
from streamoe_coordinator.events import Finished
from streamoe_coordinator.interrupt import StopFlag
from streamoe_coordinator.runs_tokens import RunsTokens
from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.session import ChatSession
from streamoe_coordinator.text import load_text
from streamoe_engine.band import Band, BandOptions
from streamoe_engine.errors import PlanDoesNotFit
from streamoe_engine.sizes import MIB

BUDGET_BYTES = 1024 * MIB
QUESTIONS = ("Who are you?", "And what is a band of layers, in a few words?")


def options(layers: tuple[int, int] | None = None) -> BandOptions:
    return BandOptions(BUDGET_BYTES, ctx_tokens=256, layers=layers, threads=1)


def talk(band: RunsTokens, folder: Path, params: SamplingParams) -> list[tuple[int, ...]]:
    text, _ = load_text(folder)
    session = ChatSession(band, text, params)
    answers = []
    for question in QUESTIONS:
        finished = list(session.answer(question, StopFlag()))[-1]
        assert isinstance(finished, Finished)
        answers.append(finished.token_ids)
    return answers


@contextmanager
def chain_of(folder: Path, *bands: tuple[int, int], params: SamplingParams) -> Iterator[Chain]:
    with ExitStack() as stack:
        seats = [stack.enter_context(LocalBand(folder, options(layers))).seat for layers in bands]
        yield stack.enter_context(Chain(seats, ChainOptions(words_wanted=words_wanted(params))))


@pytest.mark.parametrize(
    "params", [SamplingParams(max_tokens=12), SamplingParams(0.8, top_p=0.95, seed=3, max_tokens=12)]
)
def test_a_conversation_over_bands_is_that_of_one(embedded_folder: Path, params: SamplingParams):
    with Band.open(embedded_folder, options()) as band:
        last = band.plan.num_layers - 1
        alone = talk(band, embedded_folder, params)
    middle = last // 2
    with chain_of(embedded_folder, (0, middle), (middle + 1, last), params=params) as chain:
        assert talk(chain, embedded_folder, params) == alone
        assert chain.telemetry().tokens_run > 0 and chain.telemetry().budget_bytes == 2 * BUDGET_BYTES


def test_several_sequences_in_the_same_bands(embedded_folder: Path):
    with Band.open(embedded_folder, options()) as band:
        last = band.plan.num_layers - 1
        expected = []
        for start in (5, 9):
            state = band.new_state()
            first = band.run(state, np.arange(start, start + 7, dtype=np.int32), "last_logits")
            assert first is not None
            second = band.run(state, np.array([first.argmax()], np.int32), "last_logits")
            assert second is not None
            expected.append(second)
            state.release()
    with ExitStack() as stack:
        bands = [
            stack.enter_context(LocalBand(embedded_folder, options(layers), max_sessions=2))
            for layers in ((0, 0), (1, last))
        ]
        chain = stack.enter_context(Chain([band.seat for band in bands]))
        states = [chain.new_state(), chain.new_state()]
        tokens = []
        for state, start in zip(states, (5, 9), strict=True):
            logits = chain.run(state, np.arange(start, start + 7, dtype=np.int32), "last_logits")
            assert logits is not None
            tokens.append(int(logits.argmax()))
        rows = chain.run_together(states, np.array(tokens, np.int32), "last_logits")
        assert rows is not None and np.array_equal(rows, np.stack(expected))


class Here(NoRescue):
    """The band opened in this process, once the node is gone."""

    def __init__(self, open_band: Callable[[tuple[int, int]], Seat]) -> None:
        self._open_band = open_band

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        return self._open_band(layers)


def test_a_band_that_is_lost_is_opened_here(embedded_folder: Path):
    params, notices = SamplingParams(max_tokens=12), []
    with Band.open(embedded_folder, options()) as band:
        last = band.plan.num_layers - 1
        alone = talk(band, embedded_folder, params)
    with ExitStack() as stack:
        here = Here(lambda layers: stack.enter_context(LocalBand(embedded_folder, options(layers))).seat)
        first = stack.enter_context(LocalBand(embedded_folder, options((0, 0))))
        lost = stack.enter_context(LocalBand(embedded_folder, options((1, last))))
        seats = [first.seat, Seat(lost, Target(lost.seat.target.node_id, "that node"), lost.seat.facts)]
        told: list[Notice] = notices
        chain = stack.enter_context(
            Chain(seats, ChainOptions(timers=Timers(grace_s=0.5)), rescue=here, notify=told.append)
        )
        text, _ = load_text(embedded_folder)
        session = ChatSession(chain, text, params)
        answers = []
        for question in QUESTIONS:
            finished = list(session.answer(question, StopFlag()))[-1]
            assert isinstance(finished, Finished)
            answers.append(finished.token_ids)
            lost.close()
        assert answers == alone
    recovered = [notice for notice in told if isinstance(notice, BandRecovered)]
    assert [(notice.node_before, notice.node, notice.way) for notice in recovered] == [
        ("that node", "this process", "replayed")
    ]


def test_what_does_not_fit_is_refused_before_it_is_opened(embedded_folder: Path):
    with pytest.raises(PlanDoesNotFit):
        LocalBand(embedded_folder, BandOptions(MIB, ctx_tokens=256, layers=(0, 0)))
