"""What several sequences of one step may pick next, from a guesser that is asked about one. Pure."""

from __future__ import annotations

from itertools import chain, zip_longest

import numpy as np

from ..guess import Guesser


def shared_candidates(guesser: Guesser, layer: int, picks: np.ndarray, scores: np.ndarray | None) -> list[int]:
    """Guesses for the next expert layer of all sequences, each sequence's likeliest first; each expert once.

    picks (sequences, k); scores (sequences, experts) float32 or None. Without scores the guesser is asked once, with
    the union of the picks, since it may keep what it is told.
    """
    if scores is None:
        return list(guesser.candidates(layer, None, np.unique(picks).tolist()))
    asked = [guesser.candidates(layer, row, chosen.tolist()) for row, chosen in zip(scores, picks, strict=True)]
    in_turn = chain.from_iterable(zip_longest(*asked))
    return list(dict.fromkeys(expert for expert in in_turn if expert is not None))
