"""The likeliest words of a row of logits: what travels instead of a megabyte. Pure."""

from __future__ import annotations

import numpy as np

from streamoe_proto.messages import TopWords


def top_words(logits: np.ndarray, k: int) -> TopWords:
    """The k likeliest of (vocabulary,) float32, likeliest first, equal ones by id; all of them when k is larger."""
    k = min(k, len(logits))
    # Everything at or above the k-th value, so that equal ones at the border are chosen by id.
    border = np.partition(logits, len(logits) - k)[len(logits) - k]
    ids = np.flatnonzero(logits >= border)
    ids = ids[np.lexsort((ids, -logits[ids]))][:k]
    values = logits[ids]
    peak = float(values[0])
    log_sum = peak + float(np.log(np.exp(logits.astype(np.float64) - peak).sum()))
    return TopWords(ids.astype(np.int32), values.astype(np.float32), log_sum)
