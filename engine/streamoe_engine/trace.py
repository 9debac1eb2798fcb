"""What a model routed to, step by step: recorded in a band, kept in a file, replayed by tier_sim.

Owns the Trace and its file format, a NumPy .npz. Refuses to know who records and what is made of it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import TraceUnusable

SCHEMA = 1
_ARRAYS = ("schema", "facts", "layers", "step_layers", "step_tokens", "picks", "num_candidates", "candidates")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One visit of one expert layer. picks: (tokens, top_k) int16; candidates: guesses for the next expert layer,
    likeliest first, none for a chunk.
    """

    layer: int
    is_chunk: bool
    picks: np.ndarray
    candidates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The steps of a band in order. layers: its expert layers, as visited for each token or chunk."""

    num_experts: int
    top_k: int
    layers: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def num_decode_tokens(self) -> int:
        """Tokens run one by one."""
        return sum(not step.is_chunk for step in self.steps) // len(self.layers)


class TraceRecorder:
    """Collects a Trace in a band: give it as BandOptions.recorder."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def token(self, layer: int, picks: Sequence[int], candidates: Sequence[int]) -> None:
        """One token's visit; see experts.Recorder."""
        self._steps.append(Step(layer, False, np.array([picks], dtype=np.int16), tuple(candidates)))

    def chunk(self, layer: int, picks: np.ndarray) -> None:
        """A chunk's visit; see experts.Recorder."""
        self._steps.append(Step(layer, True, picks.astype(np.int16)))

    def trace(self, num_experts: int) -> Trace:
        """What was recorded so far: at least one token or chunk. num_experts: of the layer that has most."""
        layers = tuple(sorted({step.layer for step in self._steps}))
        return Trace(num_experts, self._steps[0].picks.shape[1], layers, tuple(self._steps))


def write_trace(trace: Trace, path: Path) -> None:
    """Write the file, at path as it is. Raises TraceUnusable when it cannot be written."""
    steps = trace.steps
    arrays: dict[str, Any] = {
        "schema": np.array(SCHEMA),
        "facts": np.array([trace.num_experts, trace.top_k]),
        "layers": np.array(trace.layers),
        "step_layers": np.array([step.layer for step in steps], dtype=np.int16),
        # A chunk of n tokens is -n: a chunk may have one token.
        "step_tokens": np.array([-len(step.picks) if step.is_chunk else 1 for step in steps], dtype=np.int32),
        "picks": np.concatenate([step.picks for step in steps]),
        "num_candidates": np.array([len(step.candidates) for step in steps], dtype=np.int16),
        "candidates": np.array([expert for step in steps for expert in step.candidates], dtype=np.int16),
    }
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise TraceUnusable(f"{path} cannot be written: {error.strerror}", "choose another file for --out") from error


def read_trace(path: Path) -> Trace:
    """The trace of a file. Raises TraceUnusable."""
    arrays = _read_arrays(path)
    num_experts, top_k = (int(fact) for fact in arrays["facts"])
    layers = tuple(int(layer) for layer in arrays["layers"])
    step_layers, tokens = arrays["step_layers"].tolist(), arrays["step_tokens"].tolist()
    picks = np.split(arrays["picks"], np.cumsum(np.abs(arrays["step_tokens"]))[:-1])
    candidates = np.split(arrays["candidates"], np.cumsum(arrays["num_candidates"])[:-1])
    if not len(step_layers) == len(tokens) == len(picks) == len(candidates) > 0:
        raise _unusable(path, "its parts disagree")
    experts = np.concatenate([arrays["picks"].reshape(-1), arrays["candidates"]])
    if experts.min() < 0 or experts.max() >= num_experts or not set(step_layers) <= set(layers):
        raise _unusable(path, "an expert or a layer is out of range")
    parts = zip(step_layers, tokens, picks, candidates, strict=True)
    steps = tuple(Step(layer, count < 0, pick, tuple(guess.tolist())) for layer, count, pick, guess in parts)
    return Trace(num_experts, top_k, layers, steps)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in _ARRAYS}
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _unusable(path, "it is not a trace") from error
    if (schema := int(arrays["schema"])) != SCHEMA:
        raise _unusable(path, f"its format is {schema}, this program reads {SCHEMA}")
    return arrays


def _unusable(path: Path, why: str) -> TraceUnusable:
    return TraceUnusable(
        f"{path} cannot be read as a trace: {why}", "record one: streamoe bench trace MODEL --out FILE"
    )
