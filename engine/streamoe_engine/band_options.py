"""How a band is to be opened, and the plan that this makes on this machine now.

Owns the defaults that depend on machine and model: backend, compute type, what the process costs. Refuses to know how
a plan becomes a band.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mlx.core as mx

from . import footprint
from .errors import UsageError
from .experts import Recorder
from .freed_memory import give_freed_memory_back
from .guess import Guesser, GuessName
from .kv.formats import KvFormat, kv_format
from .layers.kernel_describe import unsupported_reason
from .layers.kernel_swap import swap_reason
from .plan import HostCosts, Plan, PlanRequest, make_plan
from .plan_head import HeadChoice
from .plan_scratch import Backend, ComputeDtype
from .plan_types import DEFAULT_CHUNK_TOKENS, DEFAULT_CTX_TOKENS, DEFAULT_GUESS_WIDTH
from .policies import PolicyName
from .reader import DEFAULT_READER_THREADS
from .sizes import MIB, round_up
from .store import ModelStore

BackendName = Literal["auto", "mlx", "kernels"]
BACKENDS: tuple[BackendName, ...] = ("auto", "mlx", "kernels")


@dataclass(frozen=True, slots=True)
class BandOptions:
    """How to open a band. layers is inclusive, None for all; guess may be a Guesser of one's own.

    compute_dtype None: float32 on the CPU, the checkpoint's own type on a GPU. kv None: as computed.
    tokenizer_bytes: what the caller measured around loading its tokenizer, a row of the plan. recorder is told what
    each token and chunk was routed to. sequences: how many states may be held at once, each of up to ctx_tokens; the
    plan has rows for all of them. head: where the output head's weights are; streamed ones are read for every token.
    extra_bytes: buffers of the caller's, by name, each a row of the plan.
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
    sequences: int = 1
    extra_bytes: tuple[tuple[str, int], ...] = ()
    head: HeadChoice = "auto"


def plan_for(folder: Path, options: BandOptions) -> Plan:
    """The plan that Band.open would make now, in this process; no weight is touched. Raises as Band.open."""
    return plan_of(ModelStore(folder), options)


def plan_of(store: ModelStore, options: BandOptions) -> Plan:
    """As plan_for, of an opened folder."""
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
        sequences=options.sequences,
        extra_bytes=options.extra_bytes,
        head=options.head,
    )


def _backend(store: ModelStore, options: BandOptions, dtype: ComputeDtype) -> Backend:
    """Whole layers in C where they can be, else the matrices of mlx-lm's modules, else MLX alone."""
    if options.backend == "mlx":
        return "mlx"
    if dtype != "float32":
        reason = "it computes in bfloat16"
    elif not unsupported_reason(store.manifest, store.config()):
        return "kernels"
    elif not (reason := swap_reason(store.manifest, store.config())):
        return "kernel-linears"
    if options.backend == "kernels":
        raise UsageError(f"the C kernels cannot run this model: {reason}", "leave the backend to be chosen")
    return "mlx"


def host_costs(tokenizer_bytes: int = 0) -> HostCosts:
    """What this process costs now, the tokenizer apart, and what it will grow by itself.

    The measured row is rounded up, so that two looks a moment apart make the same plan.
    """
    gc.collect()
    give_freed_memory_back()  # what reading configurations has left: 6 MiB
    runtime = round_up(footprint.current().total_bytes - tokenizer_bytes, RUNTIME_STEP_BYTES)
    return HostCosts(runtime, tokenizer_bytes, GROWTH_BYTES)


# Measured between opening and the end of long chats, beyond every other row (docs/lab-log.md).
GROWTH_BYTES = 16 * MIB
RUNTIME_STEP_BYTES = 4 * MIB


def _native_dtype() -> ComputeDtype:
    # MLX's bfloat16 kernels on x86 accumulate in bfloat16: 5 % error a matrix product.
    return "bfloat16" if mx.default_device().type == mx.DeviceType.gpu else "float32"
