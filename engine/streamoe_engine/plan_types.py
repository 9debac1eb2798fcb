"""The nouns of planning: what is asked for, what the host costs, a row, a plan. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from .kv.formats import KvFormat
from .plan_head import HeadChoice, StreamedHead
from .plan_scratch import Backend, ComputeDtype
from .sizes import MIB

# The pool begins at a 2 MiB page (huge_pages.py), wherever malloc put its buffer.
POOL_ALIGNMENT_BYTES = 2 * MIB
DEFAULT_CTX_TOKENS = 4096
DEFAULT_GUESS_WIDTH = 6
# Prompt tokens run at once: more read fewer records per prompt. MLX's gated-delta scan on the CPU keeps every step's
# state alive, 2.1 MiB a token at Qwen3.6's size; the kernels need 0.2 (docs/lab-log.md).
DEFAULT_CHUNK_TOKENS: dict[Backend, int] = {"mlx": 32, "kernels": 256, "kernel-linears": 64}


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a user asks for. layers is inclusive, None for all; extra_bytes: buffers others ask for, by name.

    sequences: how many may be held at once, each of up to ctx_tokens. head: where the output head's weights are;
    "auto" streams it only where the cap has no room for it, and keeps as many blocks of it as there is room for.
    """

    budget_bytes: int
    ctx_tokens: int = DEFAULT_CTX_TOKENS
    kv: KvFormat = "f32"
    layers: tuple[int, int] | None = None
    guess_width: int = DEFAULT_GUESS_WIDTH
    chunk_tokens: int = 32
    compute_dtype: ComputeDtype = "float32"
    backend: Backend = "mlx"
    extra_bytes: tuple[tuple[str, int], ...] = ()
    sequences: int = 1
    head: HeadChoice = "auto"


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What this process costs before it opens a model, as the operating system says.

    runtime_bytes: interpreter and libraries, measured. tokenizer_bytes: measured around loading it.
    growth_bytes: what the system will charge later without our asking (page tables, stacks, allocator).
    """

    runtime_bytes: int
    tokenizer_bytes: int = 0
    growth_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One row: what the bytes are for, and why so many."""

    name: str
    num_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A cap divided to the byte. slots: landing_slots and the hot tier together.

    streamed_head: how the output head is read for every token; None where it is resident, or not in this band.
    """

    budget_bytes: int
    items: tuple[PlanItem, ...]
    slots: int
    landing_slots: int
    slot_bytes: int
    num_layers: int
    first_layer: int
    last_layer: int
    ctx_tokens: int
    kv: KvFormat
    chunk_tokens: int
    guess_width: int
    top_k: int
    num_experts_total: int
    compute_dtype: ComputeDtype
    backend: Backend
    sequences: int = 1
    streamed_head: StreamedHead | None = None

    @property
    def hot_share(self) -> float:
        """Slots over experts of the band; at most 1."""
        return min(1.0, self.slots / self.num_experts_total)

    def item_bytes(self, name: str) -> int:
        """Bytes of the row of that name, 0 when there is none."""
        return sum(item.num_bytes for item in self.items if item.name == name)
