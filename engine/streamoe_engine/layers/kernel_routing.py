"""A chunk's arithmetic around its experts: who is needed by many tokens, and from products back to states.

Owns the sum, in NumPy float32; one token alone is summed in C, to the same bits (LayerCalls.combine). Every token's
result is its own. Products are summed in the order of the picks, the likeliest first.
"""

from __future__ import annotations

import numpy as np


def needed_by_chunk(logits: np.ndarray, top_k: int) -> list[int]:
    """The experts that logits (tokens, experts) pick for two tokens or more, the most wanted first.

    For guesses: one token's pick is too often another by the time the layer runs.
    """
    picks = np.argpartition(logits, -top_k, axis=-1)[:, -top_k:]
    wanted = np.bincount(picks.reshape(-1), minlength=logits.shape[1])
    return [expert for expert in np.argsort(-wanted, kind="stable").tolist() if wanted[expert] >= 2]


def combine(hidden: np.ndarray, products: np.ndarray, weights: np.ndarray, shared: np.ndarray | None) -> None:
    """hidden (tokens, width) += weighted products (tokens, k, width) + the shared expert's output, in place."""
    total = products[:, 0] * weights[:, 0, None]
    for pick in range(1, products.shape[1]):
        total += products[:, pick] * weights[:, pick, None]
    if shared is not None:
        total += shared
    hidden += total
