"""The output head: hidden states to logits, in blocks of vocabulary rows.

Owns the head's arithmetic; the blocks bound what MLX casts at once (bfloat16 scales for float32 rows: 63 MB
for a vocabulary of 248,320 in one piece). Rows are independent, so blocks change no bit.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

BLOCK_ROWS = 16384


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
        weight = module.weight[start:stop]
        if "scales" in module:
            biases = module.get("biases")
            logits = mx.quantized_matmul(
                hidden,
                weight,
                module.scales[start:stop],
                None if biases is None else biases[start:stop],
                transpose=True,
                group_size=module.group_size,
                bits=module.bits,
                mode=module.mode,
            )
        else:
            logits = hidden @ weight.astype(hidden.dtype).T
        return logits + module.bias[start:stop] if "bias" in module else logits
