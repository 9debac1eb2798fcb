"""Several sequences in one pass: each row has the bits of its sequence alone, and a record is read once for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamoe_engine import kernels
from streamoe_engine.band import Band
from streamoe_engine.errors import ContextFull, StateLost, UsageError
from streamoe_engine.layers.kernel_describe import KERNEL_FAMILIES
from tests.engine.test_exactness import Liar
from tests.running import open_band
from tests.tiny_models import TINY_CONFIGS

IDS = np.random.default_rng(8).integers(0, 250, (4, 40)).astype(np.int32)  # four sequences
Folders = Callable[..., tuple[Path, Path]]
HAS_KERNELS = not kernels.unavailable_reason()
BACKENDS = ["mlx", "kernels"] if HAS_KERNELS else ["mlx"]
PATHS = [("mlx", family) for family in TINY_CONFIGS]
PATHS += (
    [("kernels" if family in KERNEL_FAMILIES else "auto", family) for family in TINY_CONFIGS] if HAS_KERNELS else []
)


def alone(band: Band, sequence: int, num_tokens: int, prompt: int = 0) -> np.ndarray:
    """(tokens, vocabulary) of the tokens after a prompt run as a chunk, token by token, by themselves."""
    state = band.new_state()
    if prompt:
        band.run(state, IDS[sequence, :prompt], "nothing")
    logits = [band.run(state, IDS[sequence, at : at + 1]) for at in range(prompt, prompt + num_tokens)]
    state.release()
    return np.stack(logits)


GUESSES = [("kernels" if HAS_KERNELS else "mlx", "qwen3_5_moe", guess) for guess in ("previous-token", "none")]


@pytest.mark.parametrize(
    ("backend", "family", "guess"),
    [(*path, "auto") for path in PATHS] + GUESSES + [(backend, "olmoe", "liar") for backend in BACKENDS],
)
def test_rows_have_the_bits_of_running_alone(tiny_folder: Folders, backend: str, family: str, guess: str) -> None:
    """At the smallest pool, each sequence at another position, one prompt run as a chunk before."""
    folder, chosen = tiny_folder(family)[1], Liar(8) if guess == "liar" else guess
    with open_band(folder, 40, backend=backend) as band:
        expected = [alone(band, sequence, 6, sequence) for sequence in range(4)]
    with open_band(folder, backend=backend, sequences=4, guess=chosen, guess_width=3) as band:
        states = [band.new_state() for _ in range(4)]
        for sequence, state in enumerate(states):
            if sequence:
                band.run(state, IDS[sequence, :sequence], "nothing")
        for at in range(6):
            tokens = np.array([IDS[sequence, sequence + at] for sequence in range(4)], np.int32)
            rows = band.run_together(states, tokens)
            for sequence in range(4):
                assert np.array_equal(rows[sequence], expected[sequence][at]), (sequence, at)
        counts = band.telemetry()
    for layer in counts.layers:
        assert layer.picks == layer.hits + layer.guess_hits + layer.misses
        assert layer.guesses == layer.guess_hits + layer.wasted


steps = st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=8)


@given(
    plan=steps,
    extra=st.integers(0, 12),
    backend=st.sampled_from(BACKENDS),
    prompts=st.lists(st.integers(0, 9), min_size=4, max_size=4),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_interleaving(tiny_folder: Folders, plan: list, extra: int, backend: str, prompts: list) -> None:
    with open_band(tiny_folder("qwen3_5_moe")[1], extra, backend=backend, sequences=4) as band:
        states = [band.new_state() for _ in range(4)]
        for sequence, prompt in enumerate(prompts):
            if prompt:
                band.run(states[sequence], IDS[sequence, :prompt], "nothing")
        found: list[list[np.ndarray]] = [[] for _ in range(4)]
        for chosen in plan:
            order = sorted(chosen, key=lambda sequence: (sequence * 7 + len(found[0])) % 4)
            tokens = np.array([IDS[sequence, states[sequence].position] for sequence in order], np.int32)
            rows = band.run_together([states[sequence] for sequence in order], tokens)
            for sequence, row in zip(order, rows, strict=True):
                found[sequence].append(row)
        states[0].release()
        for sequence, rows in enumerate(found):
            if rows:
                assert np.array_equal(np.stack(rows), alone(band, sequence, len(rows), prompts[sequence]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_record_is_read_once_for_all(tiny_folder: Folders, backend: str) -> None:
    """The same token in four sequences costs what it costs in one."""
    with open_band(tiny_folder("olmoe")[1], backend=backend, guess="none", sequences=4) as band:
        states = [band.new_state() for _ in range(4)]
        before = band.telemetry()
        band.run_together(states, np.full(4, 7, np.int32))
        counts = band.telemetry().since(before)
    assert [layer.picks for layer in counts.layers] == [2, 2, 2, 2]
    assert counts.tokens_run == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_bands_hand_rows_on(tiny_folder: Folders, backend: str) -> None:
    folder = tiny_folder("qwen3_next")[1]
    with (
        open_band(folder, layers=(0, 1), backend=backend, sequences=3) as first,
        open_band(folder, layers=(2, 3), backend=backend, sequences=3) as last,
    ):
        pairs = [[band.new_state() for _ in range(3)] for band in (first, last)]
        for at in range(3):
            hidden = first.run_together(pairs[0], IDS[:3, at], "hidden")
            assert hidden.shape == (3, 64)
            rows = last.run_together(pairs[1], hidden)
        assert first.run_together(pairs[0], IDS[:3, 3], "nothing") is None
    with open_band(folder, 20, backend=backend) as whole:
        assert all(np.array_equal(rows[sequence], alone(whole, sequence, 3)[2]) for sequence in range(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_streamed_head_is_read_once_for_all(tiny_folder: Folders, backend: str) -> None:
    with open_band(tiny_folder("olmoe")[1], backend=backend, sequences=4, head="streamed") as band:
        states = [band.new_state() for _ in range(4)]
        before = band.telemetry()
        rows = band.run_together(states, IDS[:, 0])
        together = band.telemetry().since(before).head_read_bytes
        states[0].release()
        before = band.telemetry()
        assert np.array_equal(rows[0], alone(band, 0, 1)[0])
        assert together == band.telemetry().since(before).head_read_bytes > 0


def test_more_sequences_than_a_chunk_has_tokens(tiny_folder: Folders) -> None:
    for backend in BACKENDS:
        with open_band(tiny_folder("olmoe")[1], backend=backend, sequences=4, chunk_tokens=3) as band:
            states = [band.new_state() for _ in range(4)]
            rows = [band.run_together(states, IDS[:, at]) for at in range(2)][1]
            states[0].release()
            assert all(np.array_equal(rows[sequence], alone(band, sequence, 2)[1]) for sequence in range(4))


def test_an_architecture_without_facts_runs_one_after_another(tiny_folder: Folders, monkeypatch) -> None:
    monkeypatch.setattr("streamoe_engine.layers.mlx_build.FAMILIES", {})
    seen: list[int] = []
    with open_band(tiny_folder("qwen3_next")[1], sequences=3) as band:
        states = [band.new_state() for _ in range(2)]
        band.run_together(states, IDS[:2, 0], before_layer=seen.append)
        rows = band.run_together(states, IDS[:2, 1])
        assert all(np.array_equal(rows[sequence], alone(band, sequence, 2)[1]) for sequence in range(2))
    assert seen == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_raised_before_a_layer_stops_the_step(tiny_folder: Folders, backend: str) -> None:
    """And leaves the band as it was: lent slots come back, other sequences go on."""

    class Stop(Exception):
        pass

    seen: list[int] = []

    def stop_at_2(layer: int) -> None:
        seen.append(layer)
        if layer == 2:
            raise Stop

    with open_band(tiny_folder("qwen3_5_moe")[1], 12, backend=backend, sequences=4) as band:
        expected = alone(band, 0, 6)
        kept, chunk, *pair = (band.new_state() for _ in range(4))
        band.run(kept, IDS[0, :4], "nothing")
        with pytest.raises(Stop):
            band.run(chunk, IDS[1, :9], before_layer=stop_at_2)
        with pytest.raises(Stop):
            band.run_together(pair, IDS[:2, 0], before_layer=stop_at_2)
        assert seen == [0, 1, 2] * 2
        assert [state.is_held for state in (kept, chunk, *pair)] == [True, False, False, False]
        with pytest.raises(StateLost):
            band.run_together([kept, chunk], IDS[:2, 0])
        other = band.new_state()
        tokens = np.array([IDS[0, 4], IDS[0, 0]], np.int32)
        rows = band.run_together([kept, other], tokens, before_layer=seen.append)
        assert seen[6:] == [0, 1, 2, 3]
        assert np.array_equal(rows, expected[[4, 0]])


def test_what_cannot_be_meant(tiny_folder: Folders) -> None:
    with open_band(tiny_folder("olmoe")[1], sequences=2, ctx_tokens=2) as band:
        states = [band.new_state() for _ in range(2)]
        with pytest.raises(UsageError, match="room for 2 sequences"):
            band.new_state()
        with pytest.raises(UsageError, match="2 tokens for 2 sequences"):
            band.run_together([states[0], states[0]], IDS[:2, 0])
        with pytest.raises(UsageError, match="3 tokens for 2 sequences"):
            band.run_together(states, IDS[:3, 0])
        with pytest.raises(UsageError, match="0 tokens for 0 sequences"):
            band.run_together([], IDS[:0, 0])
        band.run(states[0], IDS[0, :2], "nothing")
        with pytest.raises(ContextFull):
            band.run_together(states, IDS[:2, 0])
        assert all(state.is_held for state in states)  # nothing was computed


def test_a_later_band_takes_hidden_states_only(tiny_folder: Folders) -> None:
    wanted = pytest.raises(UsageError, match="give it hidden states, 64 numbers a token")
    with open_band(tiny_folder("olmoe")[1], layers=(1, 3)) as band, wanted:
        band.run(band.new_state(), IDS[0, :2])
