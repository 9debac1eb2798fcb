"""How much of the last band's logits must travel for a sampler, and the vector that stands for them.

Owns that one decision. The likeliest word travels alone only where the sampler provably looks at nothing else: at
temperature 0 without penalties, biases and masks. Everything else needs sums over the vocabulary or draws over all of
it, so that fewer words would make other tokens of the same seed. A node refuses logits that are not finite before it
looks for words.
"""

from __future__ import annotations

import numpy as np

from streamoe_proto.messages import TopWords

from ..sampling import SamplingParams

# Where no logit travelled: finite, for the sampler refuses what is not, and below any that a model makes.
ABSENT_LOGIT = np.float32(-3e38)


def words_wanted(params: SamplingParams, *, has_mask: bool = False) -> int | None:
    """How many of the likeliest words a sampler needs; None: all logits. has_mask: it has a LogitsMask."""
    is_plain = params.repetition_penalty == 1 and not (
        params.presence_penalty or params.frequency_penalty or params.logit_bias or has_mask
    )
    return 1 if params.temperature == 0 and is_plain else None


def dense(words: TopWords, vocab_size: int) -> np.ndarray:
    """(vocab_size,) float32 with the words' logits in their places, ABSENT_LOGIT elsewhere."""
    logits = np.full(vocab_size, ABSENT_LOGIT, dtype=np.float32)
    logits[words.ids] = words.logits
    return logits
