"""The arithmetic of experts that lie in slots, through MLX.

Owns: multiplying rows by the experts of given slots, without copying a weight. Hits and misses run the very same
functions, so a result never depends on where a record came from. Refuses to know who lies in which slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import mlx.core as mx
import numpy as np

from ..experts import Batch
from ..manifest import ExpertLayer
from ..pool import SlotPool

Activation = Callable[..., mx.array]


class MlxExpertMath:
    """One layer's experts: gate, up and down with the layer's activation, or fc1 and fc2."""

    def __init__(self, pool: SlotPool, entry: ExpertLayer, activation: Activation) -> None:
        self._pool, self._entry, self._activation = pool, entry, activation
        self._fields = {field.name: field for field in entry.record.fields}
        self._is_gated = "gate_proj.weight" in self._fields
        self._all_slots: dict[str, mx.array] = {}

    def one_token(self, x: mx.array, slots: Sequence[int], landed: Iterable[Sequence[int]]) -> mx.array:
        """x (1, width) through each slot's expert: (len(slots), width), lazy, in the order of `slots`.

        landed yields positions in `slots` as their records land; one lazy product takes them all together.
        """
        for _ in landed:
            pass
        if self._weights_match(x):
            project = self._gathered(mx.array(list(slots), dtype=mx.uint32))
            rows = mx.broadcast_to(x[:, None, :], (len(slots), 1, x.shape[-1]))
            return self._expert(project, rows).squeeze(-2)
        return mx.concatenate([self._expert(self._in_slot(slot), x) for slot in slots])

    def chunk(self, x: mx.array, top_k: int, batches: Iterable[Batch]) -> mx.array:
        """x (tokens, width) through every pick: (tokens * top_k, width), by flat position."""
        outputs, order = [], []
        for where, slots in batches:
            outputs.append(self._rows(x[mx.array(where // top_k)], slots))
            mx.eval(outputs[-1])  # before any of these slots is read over
            order.append(where)
        return mx.concatenate(outputs)[mx.array(np.argsort(np.concatenate(order)))]

    def together(self, x: mx.array, top_k: int, batches: Iterable[Batch]) -> mx.array:
        """As chunk, each row multiplied alone as one_token does it: on a GPU more rows would be other kernels."""
        outputs, order = [], []
        for where, slots in batches:
            rows = x[mx.array(where // top_k)]
            if self._weights_match(x):
                y = self._expert(self._gathered(mx.array(slots, dtype=mx.uint32)), rows[:, None, :]).squeeze(-2)
            else:
                each = (self._expert(self._in_slot(slot), rows[at : at + 1]) for at, slot in enumerate(slots))
                y = mx.concatenate(list(each))
            outputs.append(y)
            mx.eval(y)  # before any of these slots is read over
            order.append(where)
        return mx.concatenate(outputs)[mx.array(np.argsort(np.concatenate(order)))]

    def _rows(self, x: mx.array, slots: Sequence[int]) -> mx.array:
        """Row i of x through the expert of slots[i]; equal slots are neighbours and multiply their rows at once."""
        parts, start = [], 0
        for slot, run in groupby(slots):
            stop = start + sum(1 for _ in run)
            parts.append(self._expert(self._in_slot(slot), x[start:stop]))
            start = stop
        return mx.concatenate(parts)

    def _expert(self, project: Callable[[str, mx.array], mx.array], x: mx.array) -> mx.array:
        if self._is_gated:
            # mlx-lm calls activations as activation(up, gate).
            hidden = self._activation(project("up_proj", x), project("gate_proj", x))
            return project("down_proj", hidden)
        return project("fc2", self._activation(project("fc1", x)))

    def _weights_match(self, x: mx.array) -> bool:
        """Whether gather_qmm can take the whole pool as it is.

        float32 rows with bfloat16 scales would make MLX cast the scales of every slot at each call.
        """
        weight = next(iter(self._entry.quantization), None)
        scales = self._fields.get(f"{weight}.scales")
        return scales is not None and _mlx_name(x.dtype) in (scales.dtype, _ANY_FOR_BYTES.get(scales.dtype))

    def _gathered(self, slots: mx.array) -> Callable[[str, mx.array], mx.array]:
        """A projection that takes row i to the expert of slots[i]; x (rows, 1, width)."""

        def project(name: str, x: mx.array) -> mx.array:
            spec = self._entry.quantization[name]
            # sorted_indices would make the kernel depend on the pool's size on Metal: never passed.
            y = mx.gather_qmm(
                x,
                self._every(f"{name}.weight"),
                self._every(f"{name}.scales"),
                self._every(f"{name}.biases") if f"{name}.biases" in self._fields else None,
                rhs_indices=slots,
                transpose=True,
                group_size=spec.group_size,
                bits=spec.bits,
                mode=spec.mode,
            )
            if f"{name}.bias" not in self._fields:
                return y
            return y + self._every(f"{name}.bias")[slots][:, None, :].astype(y.dtype)

        return project

    def _in_slot(self, slot: int) -> Callable[[str, mx.array], mx.array]:
        """A projection by one slot's expert; x (rows, width)."""

        def project(name: str, x: mx.array) -> mx.array:
            weight = self._pool.one_slot(slot, self._fields[f"{name}.weight"])
            spec = self._entry.quantization.get(name)
            if spec is None:
                y = x @ weight.astype(x.dtype).T
            else:
                scales = _as_rows(self._tensor(slot, f"{name}.scales"), x)
                assert scales is not None, "a quantised projection has scales"
                y = mx.quantized_matmul(
                    x,
                    weight,
                    scales,
                    _as_rows(self._tensor(slot, f"{name}.biases"), x),
                    transpose=True,
                    group_size=spec.group_size,
                    bits=spec.bits,
                    mode=spec.mode,
                )
            bias = _as_rows(self._tensor(slot, f"{name}.bias"), x)
            return y if bias is None else y + bias

        return project

    def _tensor(self, slot: int, name: str) -> mx.array | None:
        field = self._fields.get(name)
        return None if field is None else self._pool.one_slot(slot, field)

    def _every(self, name: str) -> mx.array:
        """One tensor of every slot: a view, built once."""
        if name not in self._all_slots:
            self._all_slots[name] = self._pool.all_slots(self._fields[name])
            mx.eval(self._all_slots[name])
        return self._all_slots[name]


# Block formats keep one byte a group as scale, whatever the rows' type.
_ANY_FOR_BYTES = {"U8": "BF16"}


def _mlx_name(dtype: mx.Dtype) -> str:
    return {mx.float32: "F32", mx.bfloat16: "BF16", mx.float16: "F16"}[dtype]


def _as_rows(array: mx.array | None, x: mx.array) -> mx.array | None:
    """`array` in x's type where it holds real numbers; packed scales (uint8) stay as they are."""
    if array is None or array.dtype == mx.uint8:
        return array
    return array.astype(x.dtype)
