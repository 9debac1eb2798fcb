"""A chain over toy nodes in virtual time: what runs where, beside what, and what is told of it."""

from __future__ import annotations

import numpy as np
import pytest

from streamoe_engine.errors import ContextFull, StateLost, UsageError

from .chain_bench import PROMPT, TWO, Bench
from .simulation.toy_band import CTX_TOKENS, VOCAB, answer_of


@pytest.mark.parametrize("split", [((0, 11),), TWO, ((0, 3), (4, 7), (8, 11)), tuple((i, i) for i in range(12))])
@pytest.mark.parametrize("words", [1, None])
def test_every_split_makes_the_tokens_of_one_band(split: tuple[tuple[int, int], ...], words: int | None):
    bench = Bench(*split, words_wanted=words)
    assert bench.run(bench.answer) == answer_of(PROMPT, 6)


def test_a_prompts_pieces_overlap_over_the_bands():
    bench = Bench(*TWO)
    chain, clock = bench.chain, bench.clock

    def timed(pieces: list[str]) -> float:
        state, start_s = chain.new_state(), clock.now_s()
        for i, want in enumerate(pieces):
            chain.run(state, np.array(PROMPT[2 * i : 2 * i + 2], np.int32), want)  # type: ignore[arg-type]
        return clock.now_s() - start_s

    together_s = bench.run(lambda: timed(["nothing"] * 3 + ["last_logits"]))
    one_by_one_s = bench.run(lambda: timed(["last_logits"] * 4))
    assert together_s < 0.8 * one_by_one_s


def test_pieces_that_are_still_on_their_way_are_not_lost():
    bench = Bench((0, 3), (4, 7), (8, 11))

    def pieces() -> np.ndarray:
        state = bench.chain.new_state()
        for token in PROMPT[:-1]:
            assert bench.chain.run(state, np.array([token], np.int32), "nothing") is None
        logits = bench.chain.run(state, np.array(PROMPT[-1:], np.int32), "last_logits")
        assert logits is not None
        return logits

    assert int(bench.run(pieces).argmax()) == answer_of(PROMPT, 1)[0]


def test_sequences_run_together_keep_all_bands_busy():
    bench = Bench(*TWO)
    chain = bench.chain

    def decode(num: int) -> tuple[list[int], float]:
        states = [chain.new_state() for _ in range(num)]
        prompts = [PROMPT[: 4 + i] for i in range(num)]
        first = [chain.run(s, np.array(p, np.int32), "last_logits") for s, p in zip(states, prompts, strict=True)]
        tokens = [int(logits.argmax()) for logits in first if logits is not None]
        start_s = bench.clock.now_s()
        rows = chain.run_together(states, np.array(tokens, np.int32), "last_logits")
        assert rows is not None and rows.shape == (num, VOCAB)
        passed_s = bench.clock.now_s() - start_s
        for row, prompt in zip(rows, prompts, strict=True):
            assert int(row.argmax()) == answer_of(prompt, 2)[1]
        for state in states:
            chain.release(state)
        return tokens, passed_s

    alone_s = bench.run(lambda: decode(1))[1]
    together_s = bench.run(lambda: decode(4))[1]
    assert together_s < 0.75 * 4 * alone_s


def test_figures_come_with_the_results():
    bench = Bench(*TWO)
    bench.run(bench.answer)
    before, split = bench.chain.telemetry(), bench.chain.last_split
    assert [part.layers for part in split] == [(0, 5), (6, 11)]
    assert all(part.compute_s > 0.04 and 0 < part.wire_s < 0.01 and part.sent_bytes > 64 for part in split)
    assert before.budget_bytes == 2000 and before.footprint_bytes == 20 and before.tokens_run == len(PROMPT) + 5
    assert [(layer.layer, layer.picks, layer.hits) for layer in before.layers] == [(0, 26, 13), (6, 26, 13)]
    assert split[0].as_json()["node"] == "node-0"


def test_wrong_calls_are_refused_before_anything_is_sent():
    bench = Bench(*TWO)
    chain = bench.chain
    state = bench.run(chain.new_state)
    num_lines = len(bench.sent("Step"))
    for tokens, want, error in (
        ([VOCAB], "last_logits", UsageError),
        ([-1], "nothing", UsageError),
        ([], "nothing", UsageError),
        ([1], "all_logits", UsageError),
        ([1] * (CTX_TOKENS + 1), "nothing", (UsageError, ContextFull)),
    ):
        with pytest.raises(error):
            chain.run(state, np.array(tokens, np.int32), want)  # type: ignore[arg-type]
    assert state.is_held and len(bench.sent("Step")) == num_lines
    state.release()
    with pytest.raises(StateLost):
        chain.run(state, np.array([1], np.int32), "nothing")


def test_a_forgotten_state_closes_its_sessions():
    bench = Bench(*TWO)
    state = bench.run(bench.chain.new_state)
    assert all(node.has_session("talk") for node in bench.nodes.values())
    del state
    bench.world.run(lambda: False, 1.0)
    assert not any(node.has_session("talk") for node in bench.nodes.values())
