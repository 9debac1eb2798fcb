"""The model's own log-probability of a token and of its rivals.

Refuses to know penalties, masks and temperature: what is told is what the model said.
"""

from __future__ import annotations

import numpy as np

from ..text import TextTokenizer
from .stream import TokenLogprob

MOST_TOP_LOGPROBS = 20


def token_logprob(tokenizer: TextTokenizer, logits: np.ndarray, token: int, num_top: int) -> TokenLogprob:
    """logits: (vocab_size,) float32, finite. num_top: how many of the likeliest to tell, at most the vocabulary."""
    values = logits.astype(np.float64)
    highest = values.max()
    total = highest + np.log(np.exp(values - highest).sum())
    num_top = min(num_top, len(values))
    first = len(values) - num_top
    likeliest = np.argpartition(values, min(first, len(values) - 1))[first:]
    order = sorted(map(int, likeliest), key=lambda i: (-values[i], i))
    top = tuple((*_spelled(tokenizer, i), float(values[i] - total)) for i in order)
    return TokenLogprob(token, *_spelled(tokenizer, token), float(values[token] - total), top)


def _spelled(tokenizer: TextTokenizer, token: int) -> tuple[str, bytes]:
    utf8 = tokenizer.token_bytes(token)
    return utf8.decode(errors="replace"), utf8
