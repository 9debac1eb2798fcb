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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import mlx.core as mx
import numpy as np

from . import footprint
from .assembly import Assembled, assemble
from .errors import ContextFull, NonFiniteLogits, StateLost, UsageError
from .experts import Recorder
from .guess import Guesser, GuessName
from .kv.formats import KvFormat, kv_format
from .layers.interface import Want
from .layers.kernel_describe import unsupported_reason
from .library_cache import give_back_library_cache
from .manifest import Manifest
from .plan import HostCosts, Plan, PlanRequest, make_plan
from .plan_scratch import MLX_CACHE_BYTES, Backend, ComputeDtype
from .plan_types import DEFAULT_CHUNK_TOKENS, DEFAULT_CTX_TOKENS, DEFAULT_GUESS_WIDTH
from .policies import PolicyName
from .reader import DEFAULT_READER_THREADS
from .sizes import MIB, round_up
from .store import ModelStore
from .telemetry import Snapshot

BackendName = Literal["auto", "mlx", "kernels"]
BACKENDS: tuple[BackendName, ...] = ("auto", "mlx", "kernels")

__all__ = ["BACKENDS", "Band", "BandOptions", "SequenceState", "Want", "host_costs", "plan_for", "plan_request"]


@dataclass(frozen=True, slots=True)
class BandOptions:
    """How to open a band. layers is inclusive, None for all; guess may be a Guesser of one's own.

    compute_dtype None: float32 on the CPU, the checkpoint's own type on a GPU. kv None: as computed.
    tokenizer_bytes: what the caller measured around loading its tokenizer, a row of the plan. recorder is told what
    each token and chunk was routed to.
    """

    budget_bytes: int
    ctx_tokens: int = DEFAULT_CTX_TOKENS
    kv: KvFormat | None = None
    layers: tuple[int, int] | None = None
    guess: GuessName | Guesser = "auto"
    guess_width: int = DEFAULT_GUESS_WIDTH
    policy: PolicyName = "next-use"
    chunk_tokens: int | None = None
    compute_dtype: ComputeDtype | None = None
    tokenizer_bytes: int = 0
    backend: BackendName = "auto"
    threads: int | None = None
    reader_threads: int = DEFAULT_READER_THREADS
    host: HostCosts | None = None
    recorder: Recorder | None = None


class SequenceState:
    """One sequence's trace in one band. position: tokens run so far."""

    def __init__(self, layers: Any) -> None:
        self.layers: Any | None = layers
        self.position = 0

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
        plan = _plan(store, options)
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
        """An empty sequence. The plan has room for one at a time: release the last one first (UsageError)."""
        if any(state.is_held for state in self._states):
            raise UsageError("the plan has room for one sequence", "release the previous state before making another")
        state = SequenceState(self._parts.layers.new_state())
        self._states.add(state)
        return state

    def run(self, state: SequenceState, inputs: np.ndarray, want: Want = "last_logits") -> np.ndarray | None:
        """Run the next tokens of a sequence through the band.

        inputs: (tokens,) int32 ids in the first band, (tokens, width) float32 hidden states in others; at most
        plan.chunk_tokens of them. Returns None, hidden states (tokens, width), logits (vocabulary,) of the last
        token or (tokens, vocabulary) of all, float32.
        Raises ContextFull, UsageError and StateLost before computing; ReadFailed and NonFiniteLogits.
        """
        self._check(state, inputs, want)
        try:
            result = self._parts.layers.run(state.layers, inputs, want)
        except BaseException:
            state.release()  # recurrent state cannot rewind: half a step leaves nothing to go on from
            raise
        state.position += len(inputs)
        self._tokens_run += len(inputs)
        if result is None or want == "hidden":
            return result
        if not np.isfinite(result).all():
            raise NonFiniteLogits(state.position - 1)
        return result[0] if want == "last_logits" else result

    def telemetry(self) -> Snapshot:
        """Counts since opening, and what the operating system says this process costs."""
        layers = tuple(counters.freeze() for counters in self._parts.streaming.counters.values())
        now, peak = footprint.current().total_bytes, footprint.peak_bytes()
        return Snapshot(self.plan.budget_bytes, now, max(now, peak), self._tokens_run, layers)

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

    def _check(self, state: SequenceState, inputs: np.ndarray, want: Want) -> None:
        tokens = len(inputs)
        if not state.is_held:
            raise StateLost(state.position)
        if not 1 <= tokens <= self.plan.chunk_tokens:
            raise UsageError(
                f"{tokens} tokens at once, the plan has room for 1 to {self.plan.chunk_tokens}",
                f"run the prompt in chunks, or open with --chunk {max(tokens, 1)}",
            )
        if state.position + tokens > self.plan.ctx_tokens:
            raise ContextFull(state.position + tokens, self.plan.ctx_tokens)
        if self.plan.first_layer == 0 and not 0 <= inputs.min() <= inputs.max() < self.manifest.vocab_size:
            raise UsageError(
                f"token ids {inputs.min()} to {inputs.max()} are not within the vocabulary of "
                f"{self.manifest.vocab_size}",
                "use the tokenizer of the same model folder",
            )
        if want in ("last_logits", "all_logits") and self.plan.last_layer < self.plan.num_layers - 1:
            raise UsageError("this band is not the last and has no head", "ask it for hidden states")


def plan_for(folder: Path, options: BandOptions) -> Plan:
    """The plan that Band.open would make now, in this process; no weight is touched. Raises as Band.open."""
    return _plan(ModelStore(folder), options)


def _plan(store: ModelStore, options: BandOptions) -> Plan:
    request = plan_request(store, options)  # looks for the kernels, which cost memory too
    return make_plan(store.manifest, request, options.host or host_costs(options.tokenizer_bytes))


def plan_request(store: ModelStore, options: BandOptions) -> PlanRequest:
    """The planner's request for these options on this machine. Raises UsageError for a backend that cannot serve."""
    dtype: ComputeDtype = options.compute_dtype or _native_dtype()
    backend = _backend(store, options, dtype)
    return PlanRequest(
        budget_bytes=options.budget_bytes,
        ctx_tokens=options.ctx_tokens,
        kv=options.kv or kv_format(dtype),
        layers=options.layers,
        guess_width=0 if options.guess == "none" else options.guess_width,
        chunk_tokens=options.chunk_tokens or DEFAULT_CHUNK_TOKENS[backend],
        compute_dtype=dtype,
        backend=backend,
    )


def _backend(store: ModelStore, options: BandOptions, dtype: ComputeDtype) -> Backend:
    if options.backend == "mlx":
        return "mlx"
    reason = "it computes in bfloat16" if dtype != "float32" else unsupported_reason(store.manifest, store.config())
    if reason and options.backend == "kernels":
        raise UsageError(f"the C kernels cannot run this model: {reason}", "leave the backend to be chosen")
    return "mlx" if reason else "kernels"


def _default_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_costs(tokenizer_bytes: int = 0) -> HostCosts:
    """What this process costs now, the tokenizer apart, and what it will grow by itself.

    The measured row is rounded up, so that two looks a moment apart make the same plan.
    """
    runtime = round_up(footprint.current().total_bytes - tokenizer_bytes, RUNTIME_STEP_BYTES)
    return HostCosts(runtime, tokenizer_bytes, GROWTH_BYTES)


# Measured between opening and the end of long chats, beyond every other row (docs/lab-log.md).
GROWTH_BYTES = 16 * MIB
RUNTIME_STEP_BYTES = 4 * MIB


def _native_dtype() -> ComputeDtype:
    # MLX's bfloat16 kernels on x86 accumulate in bfloat16: 5 % error a matrix product.
    return "bfloat16" if mx.default_device().type == mx.DeviceType.gpu else "float32"


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
