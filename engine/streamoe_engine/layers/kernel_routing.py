"""From router logits to picks and weights, and from products back to one state: the arithmetic around experts.

Owns what mlx-lm's softmax routers do, in NumPy float32. Every token's result is its own: no bit depends on how many
tokens run together. Products are summed in the order of the picks, the likeliest first.
"""

from __future__ import annotations

import numpy as np


def route(logits: np.ndarray, top_k: int, *, normalise: bool) -> tuple[np.ndarray, np.ndarray]:
    """logits (tokens, experts) float32 give picks (tokens, k) int64, likeliest first, and weights (tokens, k).

    softmax over all experts, the k highest, divided by their sum where the model normalises.
    """
    picks = np.empty((len(logits), top_k), dtype=np.int64)
    weights = np.empty((len(logits), top_k), dtype=np.float32)
    for token, row in enumerate(logits):
        picks[token], weights[token] = _route_one(row, top_k, normalise)
    return picks, weights


def _route_one(logits: np.ndarray, top_k: int, normalise: bool) -> tuple[np.ndarray, np.ndarray]:
    high = logits.argpartition(-top_k)[-top_k:]
    high.sort()  # equals are taken in the order of experts, whatever order the partition left them in
    picks = high[(-logits[high]).argsort(kind="stable")]
    chances = np.exp(logits - logits[picks[0]])
    weights = chances[picks] / chances.sum()
    return picks, weights / weights.sum() if normalise else weights


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
