"""How much memory one step needs beside weights and state: activations, logits, MLX's own cache.

Owns the formulas, each checked against MLX's measured peak (docs/lab-log.md). Pure.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from .manifest import ExpertLayer, Manifest, layer_part
from .sizes import MIB

# "kernels": whole layers in C; "kernel-linears": mlx-lm's modules with the C kernels' matrices and experts.
Backend = Literal["mlx", "kernels", "kernel-linears"]
ComputeDtype = Literal["float32", "bfloat16"]
COMPUTE_BYTES: dict[ComputeDtype, int] = {"float32": 4, "bfloat16": 2}
# mx.set_cache_limit: freed buffers that MLX keeps for reuse.
MLX_CACHE_BYTES = 8 * MIB
_LOGITS_COPIES = 4  # logits, their float32 form, the sampler's log-probabilities, and one on the way
# Rows of a chunk that the kernels gather, multiply and put back at once.
KERNEL_BATCH_ROWS = 512
# Rows in fixed point on their way through a matrix: ST_READY_BYTES of kernels/src/rows.h.
_KERNEL_READY_BYTES = 4 * MIB
_SMALL_BYTES = 4 * MIB  # what does not grow with tokens: casts of scales, masks, one block of the head


def scratch_bytes(
    manifest: Manifest, backend: Backend, tokens: int, ctx_tokens: int, first: int, last: int, sequences: int = 1
) -> int:
    """Bytes of the largest step: a chunk of `tokens` through one layer, and the head's logits of each sequence."""
    through = _kernel_scratch if backend == "kernels" else _mlx_scratch
    has_head = last == manifest.num_layers - 1
    logits = 4 * _LOGITS_COPIES * manifest.vocab_size * sequences if has_head else 0
    buffers = _expert_buffers(manifest, tokens, first, last) if backend == "kernel-linears" else 0
    return buffers + through(manifest, tokens, ctx_tokens, first, last, logits)


def _kernel_scratch(manifest: Manifest, tokens: int, ctx_tokens: int, first: int, last: int, logits: int) -> int:
    # Buffers made at open and used for ever: what a layer's matrices put out, the state on its way, and the
    # products of all picks; attention over a long context adds partial results by blocks of keys.
    layers = range(first, last + 1)
    outputs = max(_matrix_rows(manifest, layer) for layer in layers)
    floats = tokens * (outputs + 7 * manifest.hidden_size)
    parts = manifest.num_heads * (ctx_tokens // 64 + 1) * 260
    return _expert_buffers(manifest, tokens, first, last) + 4 * (floats + parts) + logits + _SMALL_BYTES


def _expert_buffers(manifest: Manifest, tokens: int, first: int, last: int) -> int:
    """kernel_math.ExpertBuffers: a batch of rows on their way through experts, and a chunk's products; and what the
    kernels themselves hold."""
    experts = [entry for entry in manifest.experts if first <= entry.layer <= last]
    top_k = max(entry.top_k for entry in experts)
    expert_rows = max(_expert_width(entry) for entry in experts)
    batch = max(top_k, min(KERNEL_BATCH_ROWS, tokens * top_k))
    floats = batch * (2 * manifest.hidden_size + expert_rows) + tokens * top_k * manifest.hidden_size
    return 4 * floats + _KERNEL_READY_BYTES


def _matrix_rows(manifest: Manifest, layer: int) -> int:
    fields = manifest.resident[layer_part(layer)]
    return sum(field.shape[0] for field in fields if field.name.endswith(".weight") and len(field.shape) == 2)


def _expert_width(entry: ExpertLayer) -> int:
    return max(field.shape[0] for field in entry.record.fields if field.name.startswith(("gate", "up", "fc1")))


def _mlx_scratch(manifest: Manifest, chunk_tokens: int, ctx_tokens: int, first: int, last: int, logits: int) -> int:
    layer = _expert_rows(manifest, chunk_tokens, first, last) + max(
        _recurrent_scan(manifest, chunk_tokens, first, last),
        _attention_scores(manifest, chunk_tokens, ctx_tokens, first, last),
    )
    return max(layer, logits) + _SMALL_BYTES + MLX_CACHE_BYTES


def _recurrent_scan(manifest: Manifest, tokens: int, first: int, last: int) -> int:
    # MLX's scan on the CPU keeps the state after each token until the layer is evaluated. Measured at Qwen3.6's
    # size, one layer with its experts: 8 / 23 / 27 / 44 / 79 / 150 MiB for 1 / 4 / 8 / 16 / 32 / 64 tokens.
    states = manifest.states[first : last + 1]
    largest = max((sum(prod(shape) for shape in state.arrays) for state in states), default=0)
    return 4 * largest * (tokens + tokens // 32 + 5)


def _attention_scores(manifest: Manifest, tokens: int, ctx_tokens: int, first: int, last: int) -> int:
    # Scores are whole on the CPU, (heads, tokens, context) float32: +5 MiB at 64 tokens and 2048 of context.
    has_attention = any(state.kind != "recurrent" for state in manifest.states[first : last + 1])
    return 4 * manifest.num_heads * tokens * ctx_tokens if has_attention else 0


def _expert_rows(manifest: Manifest, tokens: int, first: int, last: int) -> int:
    # Every pick's row gathered, multiplied and put back in order, and a layer's own projections (some 8 widths).
    top_k = max((entry.top_k for entry in manifest.experts if first <= entry.layer <= last), default=0)
    return 4 * manifest.hidden_size * tokens * (3 * top_k + 8)
