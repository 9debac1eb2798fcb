"""The output head through MLX: hidden states to logits, in blocks of vocabulary rows.

Owns the head's arithmetic; the blocks bound what MLX casts at once (bfloat16 scales for float32 rows: 63 MB
for a vocabulary of 248,320 in one piece). Rows are independent, so blocks change no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import mlx.core as mx

from ..head_stream import HeadBlock, HeadStream
from ..quantization import stored_quantization

BLOCK_ROWS = 16384
# (tokens, width) states after the final norm give (tokens, vocabulary) logits.
Head = Callable[[mx.array], mx.array]


class MlxHead:
    """Multiplies by the weights of `module`: a Linear, an Embedding (tied head), or their quantised forms."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, hidden: mx.array) -> mx.array:
        """hidden (tokens, width) gives logits (tokens, vocabulary)."""
        rows = self._module.weight.shape[0]
        if not self._casts(hidden):
            return self._block(hidden, 0, rows)
        blocks = [self._block(hidden, start, min(start + BLOCK_ROWS, rows)) for start in range(0, rows, BLOCK_ROWS)]
        for block in blocks:  # one after the other, or MLX would cast for all of them before it multiplies
            mx.eval(block)
        return mx.concatenate(blocks, axis=-1)

    def _casts(self, hidden: mx.array) -> bool:
        stored = self._module.get("scales", self._module.weight)
        return bool(stored.dtype not in (hidden.dtype, mx.uint8))

    def _block(self, hidden: mx.array, start: int, stop: int) -> mx.array:
        module = self._module
        tensors = {name: module[name][start:stop] for name in ("weight", "scales", "biases", "bias") if name in module}
        if "scales" not in tensors:
            return _multiply(hidden, tensors)
        return _multiply(hidden, tensors, group_size=module.group_size, bits=module.bits, mode=module.mode)


class StreamedMlxHead:
    """Multiplies by blocks as they are read; a call may raise ReadFailed. bias: (vocabulary,)."""

    def __init__(self, stream: HeadStream, bias: mx.array | None = None) -> None:
        self._stream, self._bias = stream, bias

    def __call__(self, hidden: mx.array) -> mx.array:
        """hidden (tokens, width) gives logits (tokens, vocabulary), evaluated."""
        mx.eval(hidden)
        parts = []
        with closing(self._stream.blocks()) as blocks:
            for block in blocks:
                parts.append(self._block(hidden, block))
                mx.eval(parts[-1])  # before its slot is read over
        logits = mx.concatenate(parts, axis=-1)
        return logits if self._bias is None else logits + self._bias

    def _block(self, hidden: mx.array, block: HeadBlock) -> mx.array:
        tensors = {name: self._stream.pool.one_slot(block.slot, field) for name, field in block.fields.items()}
        if "scales" not in tensors:
            return _multiply(hidden, tensors)
        spec = stored_quantization(hidden.shape[-1], block.fields["weight"], block.fields["scales"])
        return _multiply(hidden, tensors, group_size=spec.group_size, bits=spec.bits, mode=spec.mode)


def _multiply(hidden: mx.array, tensors: dict[str, mx.array], **packing: Any) -> mx.array:
    """hidden (tokens, width) by a matrix, quantised where packing says how, and its bias where there is one."""
    weight = tensors["weight"]
    if packing:
        scales, biases = tensors["scales"], tensors.get("biases")
        logits = mx.quantized_matmul(hidden, weight, scales, biases, transpose=True, **packing)
    else:
        logits = hidden @ weight.astype(hidden.dtype).T
    return logits + tensors["bias"] if "bias" in tensors else logits
