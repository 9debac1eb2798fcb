"""How much memory one step needs beside weights and state: activations, logits, MLX's own cache.

Owns the formulas, each checked against MLX's measured peak (docs/lab-log.md). Pure.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from .manifest import Manifest
from .sizes import MIB

ComputeDtype = Literal["float32", "bfloat16"]
COMPUTE_BYTES: dict[ComputeDtype, int] = {"float32": 4, "bfloat16": 2}
# mx.set_cache_limit: freed buffers that MLX keeps for reuse.
MLX_CACHE_BYTES = 16 * MIB
_LOGITS_COPIES = 4  # logits, their float32 form, the sampler's log-probabilities, and one on the way


def scratch_bytes(
    manifest: Manifest, compute_dtype: ComputeDtype, chunk_tokens: int, ctx_tokens: int, first: int, last: int
) -> int:
    """Bytes of the largest step: a chunk of chunk_tokens through one layer, or the head's logits."""
    layer = max(
        _recurrent_layer(manifest, chunk_tokens, first, last),
        _attention_layer(manifest, chunk_tokens, ctx_tokens, first, last),
        _expert_layer(manifest, chunk_tokens, first, last),
    )
    logits = _LOGITS_COPIES * 4 * manifest.vocab_size if last == manifest.num_layers - 1 else 0
    return max(layer, logits) + MLX_CACHE_BYTES


def _recurrent_layer(manifest: Manifest, tokens: int, first: int, last: int) -> int:
    # MLX's scan on the CPU keeps each token's state until the layer is evaluated, and the layer's projections.
    largest = max(
        (sum(prod(shape) for shape in state.arrays) for state in manifest.states[first : last + 1]), default=0
    )
    return 4 * largest * (tokens + 2)


def _attention_layer(manifest: Manifest, tokens: int, ctx_tokens: int, first: int, last: int) -> int:
    # Scores and their softmax are whole on the CPU: (heads, tokens, context) float32, twice.
    has_attention = any(state.kind != "recurrent" for state in manifest.states[first : last + 1])
    return 2 * 4 * manifest.num_heads * tokens * ctx_tokens if has_attention else 0


def _expert_layer(manifest: Manifest, tokens: int, first: int, last: int) -> int:
    # The rows of every pick, gathered, multiplied, put back in order; float32.
    top_k = max((entry.top_k for entry in manifest.experts if first <= entry.layer <= last), default=0)
    return 4 * 4 * manifest.hidden_size * tokens * top_k
