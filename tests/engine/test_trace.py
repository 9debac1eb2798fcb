"""Traces: what is written comes back, what is no trace is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_engine.errors import TraceUnusable
from streamoe_engine.trace import Trace, TraceRecorder, read_trace, write_trace

NUM_EXPERTS, TOP_K, LAYERS = 9, 2, (1, 2, 5)


def same(one: Trace, other: Trace) -> bool:
    return (
        (one.num_experts, one.top_k, one.layers) == (other.num_experts, other.top_k, other.layers)
        and len(one.steps) == len(other.steps)
        and all(
            (a.layer, a.is_chunk, a.candidates) == (b.layer, b.is_chunk, b.candidates)
            and np.array_equal(a.picks, b.picks)
            for a, b in zip(one.steps, other.steps, strict=True)
        )
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Up to six chunks and tokens through three layers, with guesses for the next layer."""
    recorder = TraceRecorder()
    expert = st.integers(0, NUM_EXPERTS - 1)
    picks = st.lists(expert, min_size=TOP_K, max_size=TOP_K, unique=True)
    for num_tokens in draw(st.lists(st.integers(0, 5), min_size=1, max_size=6)):
        for layer in LAYERS:
            if num_tokens == 0:
                recorder.token(layer, draw(picks), draw(st.lists(expert, max_size=4, unique=True)))
            else:
                recorder.chunk(layer, np.array([draw(picks) for _ in range(num_tokens)]))
    return recorder.trace(NUM_EXPERTS)


@given(trace=traces())
def test_a_trace_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    path = tmp_path_factory.mktemp("trace") / "any name"
    write_trace(trace, path)
    assert same(read_trace(path), trace)


def a_trace() -> Trace:
    recorder = TraceRecorder()
    recorder.token(0, [1, 2], [0])
    return recorder.trace(3)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    good, path = tmp_path / "good", tmp_path / "bad"
    write_trace(a_trace(), good)
    with np.load(good) as file:
        arrays = dict(file)
    for name, value in (
        ("schema", np.array(99)),
        ("picks", np.array([[1, 3]], dtype=np.int16)),
        ("candidates", np.array([-1], dtype=np.int16)),
        ("step_layers", np.array([7], dtype=np.int16)),
        ("step_tokens", np.array([1, 1], dtype=np.int32)),
    ):
        with path.open("wb") as file:
            np.savez(file, **(arrays | {name: value}))
        with pytest.raises(TraceUnusable):
            read_trace(path)
    with path.open("wb") as file:
        np.savez(file, **{name: value for name, value in arrays.items() if name != "picks"})
    for content in (path.read_bytes(), b"", b"no zip file", good.read_bytes()[:300]):
        path.write_bytes(content)
        with pytest.raises(TraceUnusable):
            read_trace(path)
    with pytest.raises(TraceUnusable, match="No such file"):
        read_trace(tmp_path / "missing")
    with pytest.raises(TraceUnusable, match="cannot be written"):
        write_trace(a_trace(), tmp_path / "no folder" / "file")
