"""Layers a..b of a model on this machine, under a cap: the engine's boundary. Everything above speaks only to this.

Two nouns: a Band is opened once and owns the memory; a SequenceState is one conversation's trace in it. Arrays
cross the boundary as NumPy float32, so that callers need no MLX. All calls come from the thread that opened the
band: MLX's streams belong to a thread. Refuses to know sockets, sampling and text.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mlx.core as mx
import numpy as np

from . import footprint
from .assembly import Assembled, assemble
from .band_files import check_band_files
from .band_options import BACKENDS, BandOptions, host_costs, plan_for, plan_of, plan_request
from .errors import ContextFull, NonFiniteLogits, StateLost, UsageError
from .fingerprint import fingerprint
from .layers.interface import BeforeLayer, Want
from .library_cache import give_back_library_cache
from .manifest import Manifest
from .plan import Plan
from .plan_scratch import MLX_CACHE_BYTES
from .sizes import MIB
from .state_snapshot import StateSnapshot, check_arrays, check_identity
from .step_check import check_step
from .store import ModelStore
from .telemetry import Snapshot

__all__ = ["BACKENDS", "Band", "BandOptions", "SequenceState", "Want", "host_costs", "plan_for", "plan_request"]


class SequenceState:
    """One sequence's trace in one band. position: tokens run so far."""

    def __init__(self, layers: Any, position: int = 0) -> None:
        self.layers: Any | None = layers
        self.position = position

    @property
    def is_held(self) -> bool:
        """False once the state has been released, or lost by an error midway."""
        return self.layers is not None

    def release(self) -> None:
        """Give the memory back; the sequence cannot go on."""
        self.layers = None


class Band:
    """An open band. Use as a context manager, or call close()."""

    def __init__(self, store: ModelStore, plan: Plan, parts: Assembled) -> None:
        self.plan, self._store, self._parts = plan, store, parts
        self._states: weakref.WeakSet[SequenceState] = weakref.WeakSet()
        self._tokens_run = 0

    @classmethod
    def open(cls, folder: Path, options: BandOptions) -> Self:
        """Plan, then load, then be ready.

        Raises PlanDoesNotFit and UsageError before any weight is read; ModelFolderError and ReadFailed after.
        """
        store = ModelStore(folder)
        plan = plan_of(store, options)
        check_band_files(store, plan.first_layer, plan.last_layer)
        _bound_allocators()
        try:
            guess = "none" if options.guess_width == 0 else options.guess
            parts = assemble(
                store,
                plan,
                options.policy,
                guess,
                options.threads or _default_threads(),
                options.reader_threads,
                options.recorder,
            )
            give_back_library_cache()
        except BaseException:
            store.close()
            raise
        return cls(store, plan, parts)

    @property
    def manifest(self) -> Manifest:
        """The model folder's manifest."""
        return self._store.manifest

    @property
    def ctx_tokens(self) -> int:
        """Tokens a sequence may have: the plan's."""
        return self.plan.ctx_tokens

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one run: the plan's."""
        return self.plan.chunk_tokens

    def new_state(self) -> SequenceState:
        """An empty sequence. The plan has room for plan.sequences at a time: release another first (UsageError)."""
        return self._hold(self._parts.layers.new_state, 0)

    def run(
        self,
        state: SequenceState,
        inputs: np.ndarray,
        want: Want = "last_logits",
        *,
        before_layer: BeforeLayer | None = None,
    ) -> np.ndarray | None:
        """Run the next tokens of a sequence through the band.

        inputs: (tokens,) int32 ids in the first band, (tokens, width) float32 hidden states in others; at most
        plan.chunk_tokens of them. Returns None, hidden states (tokens, width), logits (vocabulary,) of the last
        token or (tokens, vocabulary) of all, float32. before_layer is called with each layer's number before it is
        computed; what it raises stops the step, and the state is lost.
        Raises ContextFull, UsageError and StateLost before computing; ReadFailed and NonFiniteLogits.
        """
        self._check(state, inputs, want)
        with self._step([state]):
            result = self._parts.layers.run(state.layers, inputs, want, before_layer)
        state.position += len(inputs)
        self._tokens_run += len(inputs)
        if result is None or want == "hidden":
            return result
        if not np.isfinite(result).all():
            raise NonFiniteLogits(state.position - 1)
        return result[0] if want == "last_logits" else result

    def run_together(
        self,
        states: Sequence[SequenceState],
        inputs: np.ndarray,
        want: Want = "last_logits",
        *,
        before_layer: BeforeLayer | None = None,
    ) -> np.ndarray | None:
        """Run one token of each of several sequences, in one pass over the layers: a record is read once for all.

        Row i of inputs, (sequences,) int32 ids or (sequences, width) float32, is the next token of states[i]. Returns
        None, hidden states (sequences, width) or logits (sequences, vocabulary), float32; each row has the bits that
        `run` gives that sequence alone. More sequences than plan.chunk_tokens take as many passes as that needs. An
        architecture that MLX runs as a whole (families.py does not list it) takes one pass a sequence.
        An error, before_layer's too, loses all the states. Raises as run; UsageError when a state is there twice.
        """
        distinct = len({id(state) for state in states})
        if not states or not distinct == len(states) == len(inputs):
            raise UsageError(f"{len(inputs)} tokens for {len(states)} sequences", "give one token of each sequence")
        for row, state in enumerate(states):
            self._check(state, inputs[row : row + 1], want)
        results, most = [], self.plan.chunk_tokens
        with self._step(states):
            for start in range(0, len(states), most):
                layers = [state.layers for state in states[start : start + most]]
                results.append(
                    self._parts.layers.run_together(layers, inputs[start : start + most], want, before_layer)
                )
        for state in states:
            state.position += 1
        self._tokens_run += len(states)
        return self._rows(states, [rows for rows in results if rows is not None], want)

    def snapshot(self, state: SequenceState) -> StateSnapshot:
        """A copy of a state, cut to its position; the state can go on. Raises StateLost.

        The copy's num_bytes are in no row of the plan: whoever takes one has asked for its room (plan.snapshot_bytes
        says how much; BandOptions.extra_bytes is where).
        """
        if not state.is_held:
            raise StateLost(state.position)
        return replace(self._blank, position=state.position, layers=self._parts.layers.save(state.layers))

    def restore(self, snapshot: StateSnapshot) -> SequenceState:
        """A new state that goes on, bit for bit, where the snapshot was taken, in a band of these or other layers.

        The snapshot may have more layers than this band. Raises SnapshotMismatch when it lacks one, or is of another
        model, KV format, compute type or backend; ContextFull; UsageError as new_state.
        """
        check_identity(snapshot, self._blank)
        mine = snapshot.cut(self.plan.first_layer, self.plan.last_layer)
        check_arrays(mine, self.manifest)
        if mine.position > self.plan.ctx_tokens:
            raise ContextFull(mine.position, self.plan.ctx_tokens)
        return self._hold(lambda: self._parts.layers.load(mine.layers, mine.position), mine.position)

    def telemetry(self) -> Snapshot:
        """Counts since opening, and what the operating system says this process costs."""
        layers = tuple(counters.freeze() for counters in self._parts.streaming.counters.values())
        now, peak = footprint.current().total_bytes, footprint.peak_bytes()
        head = self._parts.head_stream
        head_counts = (0, 0.0) if head is None else (head.read_bytes, head.wait_s)
        return Snapshot(self.plan.budget_bytes, now, max(now, peak), self._tokens_run, layers, *head_counts)

    def sums(self) -> tuple[int, int, int, float, int]:
        """Bytes read, experts picked, picks that hit, seconds waited for reads, over all layers, and tokens run.

        Costs a few microseconds, and may be asked from any thread.
        """
        layers, head = self._parts.streaming.counters.values(), self._parts.head_stream
        read_bytes, wait_s = (0, 0.0) if head is None else (head.read_bytes, head.wait_s)
        read_bytes += sum(counters.read_bytes for counters in layers)
        wait_s += sum(counters.wait_s for counters in layers)
        picks, hits = sum(counters.picks for counters in layers), sum(counters.hits for counters in layers)
        return read_bytes, picks, hits, wait_s, self._tokens_run

    def close(self) -> None:
        """End the reader threads and close the files."""
        self._parts.streaming.reader.close()
        self._parts.layers.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _blank(self) -> StateSnapshot:
        """What all of this band's snapshots have in common."""
        plan, manifest = self.plan, self.manifest
        return StateSnapshot(0, {}, plan.kv, plan.compute_dtype, plan.backend, manifest.family, fingerprint(manifest))

    def _hold(self, make: Callable[[], Any], position: int) -> SequenceState:
        """A state of what `make` gives, if the plan has room for one more."""
        room = self.plan.sequences
        if sum(state.is_held for state in self._states) >= room:
            raise UsageError(
                f"the plan has room for {'one sequence' if room == 1 else f'{room} sequences'}",
                "release a state before making another",
            )
        state = SequenceState(make(), position)
        self._states.add(state)
        return state

    @contextmanager
    def _step(self, states: Sequence[SequenceState]) -> Iterator[None]:
        """A step of these states; an error within loses them: recurrent state cannot rewind, half a step leaves
        nothing to go on from.
        """
        try:
            yield
        except BaseException:
            for state in states:
                state.release()
            self._parts.streaming.flow.start_over()  # it may have come between two layers, hot slots lent
            raise

    def _rows(self, states: Sequence[SequenceState], results: list[np.ndarray], want: Want) -> np.ndarray | None:
        if not results:
            return None
        rows = results[0] if len(results) == 1 else np.concatenate(results)
        if want != "hidden" and not (finite := np.isfinite(rows).all(axis=-1)).all():
            raise NonFiniteLogits(states[int(finite.argmin())].position - 1)
        return rows

    def _check(self, state: SequenceState, inputs: np.ndarray, want: Want) -> None:
        if not state.is_held:
            raise StateLost(state.position)
        check_step(self.plan, self.manifest, state.position, inputs, want)


def _bound_allocators() -> None:
    """Keep freed memory from piling up: MLX's cache to its row of the plan, glibc's arenas to one."""
    mx.set_cache_limit(MLX_CACHE_BYTES)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_ARENA_MAX, 1)
            libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # <malloc.h>
# A fixed threshold: freed activations go back to the system instead of raising it up to 32 MiB.
_MMAP_THRESHOLD_BYTES = MIB


def _default_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
