"""The arithmetic of experts that lie in slots, through the C kernels.

Owns the scratch of expert products. Hits are multiplied while misses land, each as it lands; the same functions
serve both, so no bit depends on who was there first. Refuses to know who lies in which slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from ..experts import Batch
from ..kernels import Expert, Group, Kernels, Matrix
from ..kernels.native import address_of
from ..kernels.part_calls import SharedExpert
from ..kernels.token_experts import TokenExperts
from ..manifest import ExpertLayer, Field
from ..plan_scratch import KERNEL_BATCH_ROWS
from ..plan_types import Plan
from ..pool import SlotPool
from .aligned import aligned_zeros


class ExpertBuffers:
    """Scratch that all layers share: for one token's picks, and for a batch of a chunk's rows."""

    def __init__(self, width: int, hidden_width: int, top_k: int, chunk_tokens: int, shared_width: int = 0) -> None:
        rows = max(top_k, min(KERNEL_BATCH_ROWS, chunk_tokens * top_k))
        hidden_rows = max(rows, top_k - (-shared_width // hidden_width))
        self.rows_in = aligned_zeros((rows, width))
        self.rows_out = aligned_zeros((rows, width))
        self.hidden = aligned_zeros((hidden_rows, hidden_width))
        self.products = aligned_zeros((max(chunk_tokens * top_k, top_k + 1), width))  # the shared expert's is one more


def expert_buffers(entries: Sequence[ExpertLayer], width: int, plan: Plan, shared_width: int = 0) -> ExpertBuffers:
    """The scratch of a band whose gated experts, all of these, take rows of `width`.

    shared_width: hidden outputs of the widest shared expert that runs with them.
    """
    hidden = max(field.shape[0] for e in entries for field in e.record.fields if field.name == "gate_proj.weight")
    return ExpertBuffers(width, hidden, plan.top_k, plan.chunk_tokens, shared_width)


class KernelExpertMath:
    """One layer's gated experts with SiLU."""

    def __init__(
        self,
        kernels: Kernels,
        pool: SlotPool,
        entry: ExpertLayer,
        buffers: ExpertBuffers,
        shared: SharedExpert | None = None,
    ) -> None:
        self._kernels, self._pool, self._buffers = kernels, pool, buffers
        self._expert = described_expert(entry)
        self._products = buffers.products[: entry.top_k + (shared is not None)]
        self._token = TokenExperts(kernels, self._expert, shared, buffers.hidden, self._products)

    def one_token(self, x: np.ndarray, slots: Sequence[int], landed: Iterable[Sequence[int]]) -> np.ndarray:
        """x (1, width) through each slot's expert as its record lands: (len(slots), width), in the slots' order.

        One row more is the shared expert's output, multiplied with those that are here already.
        """
        row, is_first = address_of(x), True
        records = [self._pool.slot_address(slot) for slot in slots]
        for positions in landed:
            self._token.run(row, [records[at] for at in positions], positions, with_shared=is_first)
            is_first = False
        return self._products

    def chunk(self, x: np.ndarray, top_k: int, batches: Iterable[Batch]) -> np.ndarray:
        """x (tokens, width) through every pick: (tokens * top_k, width), by flat position."""
        products = self._buffers.products[: len(x) * top_k]
        most = len(self._buffers.rows_in)
        for where, slots in batches:
            for start in range(0, len(where), most):
                self._rows(x, top_k, where[start : start + most], slots[start : start + most], products)
        return products

    def together(self, x: np.ndarray, top_k: int, batches: Iterable[Batch]) -> np.ndarray:
        """As chunk, whose rows have the bits of one_token in any case."""
        return self.chunk(x, top_k, batches)

    def _rows(self, x: np.ndarray, top_k: int, where: np.ndarray, slots: Sequence[int], products: np.ndarray) -> None:
        rows_in, rows_out = self._buffers.rows_in[: len(where)], self._buffers.rows_out[: len(where)]
        np.take(x, where // top_k, axis=0, out=rows_in)
        groups, start = [], 0
        for slot, run in groupby(slots):
            count = sum(1 for _ in run)
            groups.append(Group(self._pool.slot_address(slot), start, count))
            start += count
        self._kernels.expert_rows(self._expert, groups, rows_in, self._buffers.hidden, rows_out)
        products[where] = rows_out


def described_expert(entry: ExpertLayer) -> Expert:
    """The C description of a layer's experts, addresses counted from a record's start."""
    fields = {field.name: field for field in entry.record.fields}
    return Expert(*(_matrix(entry, fields, name) for name in ("gate_proj", "up_proj", "down_proj")))


def kernel_reason(entry: ExpertLayer) -> str:
    """Why the kernels cannot multiply these experts, or ""."""
    names = {field.name for field in entry.record.fields}
    if not {"gate_proj.weight", "up_proj.weight", "down_proj.weight"} <= names:
        return "its experts are not gated"
    if any(name.endswith(".bias") for name in names):
        return "its experts have biases"
    modes = {spec.mode for spec in entry.quantization.values()}
    return "" if modes <= {"affine"} else f"its experts are packed as {', '.join(sorted(modes))}"


def _matrix(entry: ExpertLayer, fields: dict[str, Field], name: str) -> Matrix:
    weight, spec = fields[f"{name}.weight"], entry.quantization.get(name)
    if spec is None:
        rows, cols = weight.shape
        return Matrix(32 if weight.dtype == "F32" else 16, 32, rows, cols, weight.dtype, weight.offset)
    scales, biases = fields[f"{name}.scales"], fields[f"{name}.biases"]
    cols = scales.shape[-1] * spec.group_size
    return Matrix(
        spec.bits, spec.group_size, weight.shape[0], cols, scales.dtype, weight.offset, scales.offset, biases.offset
    )
