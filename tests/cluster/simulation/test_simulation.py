"""Seeded schedules of faults over the real chain, links, ladder and node core, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from .scenario import run_seed
from .toy_band import CTX_TOKENS, NUM_LAYERS, ToyBand, answer_of
from .world import Mailbox, World

QUICK, MANY = range(250), range(250, 10_500)


def check(seeds: range) -> tuple[int, int]:
    """All promises of these seeds; (recoveries, replayed tokens)."""
    recoveries = []
    for seed in seeds:
        outcome = run_seed(seed)
        assert not outcome.fault, f"seed {seed}: {outcome.fault}\n{replay(seed)}"
        recoveries += outcome.recoveries
    return len(recoveries), sum(recovery.replayed_tokens for recovery in recoveries)


def replay(seed: int) -> str:
    return f"its log: python -m tests.cluster.simulation {seed}"


def test_every_promise_is_kept_under_250_schedules():
    num_recoveries, num_replayed = check(QUICK)
    # The seeds do reach what they are for.
    assert num_recoveries > 200 and num_replayed > 50


@pytest.mark.slow
def test_every_promise_is_kept_under_10_000_schedules():
    check(MANY)


def test_a_seed_is_one_history():
    first, second = run_seed(11, is_told=True), run_seed(11, is_told=True)
    assert first.lines == second.lines and len(first.lines) > 20


@pytest.mark.parametrize(
    "spoil",
    ["skipped_replay", "unchecked_bytes", "unclosed_sessions", "patient_ladder", "kept_history"],
)
def test_the_harness_sees_mistakes(spoil: str, monkeypatch: pytest.MonkeyPatch):
    """Each promise is watched by some seed: broken on purpose, it is noticed."""
    from streamoe_coordinator.cluster import budget, history, link
    from streamoe_proto import wire

    since, close = history.BandHistory.since, link.BandLink.close
    if spoil == "skipped_replay":
        monkeypatch.setattr(history.BandHistory, "since", lambda self, at: iter(list(since(self, at))[:-1]))
    elif spoil == "unchecked_bytes":
        monkeypatch.setattr(wire.google_crc32c, "value", lambda data: 0)
    elif spoil == "unclosed_sessions":
        monkeypatch.setattr(link.BandLink, "close", lambda self, *, is_over: close(self, is_over=False))
    elif spoil == "patient_ladder":
        monkeypatch.setattr(
            budget.Budget, "left_s", property(lambda self: max(0.0, self.deadline_s - self._clock.now_s() + 60.0))
        )
    else:
        monkeypatch.setattr(history.HistoryRoom, "give_back", lambda self, num_bytes: None)
    assert any(run_seed(seed).fault for seed in range(400))


def test_toy_bands_tile_exactly():
    prompt = np.arange(10)
    whole = ToyBand(chunk_tokens=CTX_TOKENS)
    first, last = ToyBand(0, 4, chunk_tokens=CTX_TOKENS), ToyBand(5, NUM_LAYERS - 1, chunk_tokens=CTX_TOKENS)
    hidden = first.run(first.new_state(), prompt, "hidden")
    assert hidden is not None and hidden.dtype == np.float32 and hidden.max() < 2**24
    state = last.new_state()
    for row in range(10):
        split = last.run(state, hidden[row : row + 1], "last_logits")
    assert np.array_equal(split, whole.run(whole.new_state(), prompt, "last_logits"))


def test_the_oracle_depends_on_every_token():
    prompt = (3, 1, 4, 1, 5, 9, 2, 6)
    others = [(*prompt[:i], 8, *prompt[i + 1 :]) for i in range(len(prompt))] + [prompt[1:], prompt + prompt[-1:]]
    assert all(answer_of(other, 6) != answer_of(prompt, 6) for other in others)


def test_virtual_time():
    world, seen = World(), []
    box: Mailbox[int] = Mailbox(world)

    def reader() -> None:
        seen.extend([(world.now_s, box.get(1.0)), (world.now_s, box.get(1.0))])
        world.sleep(5.0)
        seen.append((world.now_s, box.get(0)))

    world.spawn(reader)
    world.at(0.5, box.put, 7)
    world.run(lambda: False, 100.0)
    assert seen == [(0.0, 7), (0.5, None), (6.5, None)]
