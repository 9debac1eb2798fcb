"""The last question before READY: does a real chunk, and a token after it, come through all bands?

Owns the canary: fixed tokens through the whole chain. That the bands are of one model, protocol and format is
`assembly`'s to say; that each computes as it should, the nodes' own digests. Refuses to know how nodes were found.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamoe_engine.errors import NonFiniteLogits
from streamoe_node.errors import SelfTestFailed
from streamoe_proto.messages import NodeFacts

from .chain import Chain
from .splits import BandSplit

# Decoded after the chunk: enough that a hiccup of one does not decide a prediction.
CANARY_TOKENS = 6


@dataclass(frozen=True, slots=True)
class BandMeasure:
    """What one band did in the canary's single tokens; sums over num_tokens."""

    facts: NodeFacts
    num_tokens: int
    compute_s: float
    wait_s: float
    wire_s: float
    read_bytes: int
    picks: int
    hits: int


@dataclass(frozen=True, slots=True)
class Canary:
    """What came through. digest: of the logits after each step, for comparing clusters by eye: equal bits, equal
    digest. prompt: where the chunk's time went; bands: the same for single tokens."""

    num_tokens: int
    prompt_s: float
    token_s: float
    digest: str
    prompt: tuple[BandSplit, ...]
    bands: tuple[BandMeasure, ...]


def canary_tokens(vocab_size: int, count: int) -> np.ndarray:
    """(count,) int32: the same everywhere, spread over the vocabulary; a multiplicative generator modulo 2^31 - 1."""
    tokens, value = [], 20_231
    for _ in range(count):
        value = value * 48_271 % 2_147_483_647
        tokens.append(value % vocab_size)
    return np.array(tokens, dtype=np.int32)


def run_canary(chain: Chain, num_decode: int = CANARY_TOKENS) -> Canary:
    """A chunk of the size that the bands' plans have, then single tokens.

    Raises SelfTestFailed for logits that are no numbers, and what the chain raises: BandLost when a band does not
    answer.
    """
    facts = [seat.facts for seat in chain.seats]
    num_chunk = _chunk_tokens(chain, facts, num_decode)
    tokens = canary_tokens(facts[0].vocab_size, num_chunk + num_decode)
    digest = hashlib.sha256()
    state = chain.new_state()
    try:
        start_s = time.perf_counter()
        _take(chain, chain.run(state, tokens[:num_chunk], "last_logits"), digest)
        prompt_s, prompt = time.perf_counter() - start_s, chain.last_split
        before, splits = chain.telemetry(), []
        start_s = time.perf_counter()
        for place in range(num_chunk, len(tokens)):
            _take(chain, chain.run(state, tokens[place : place + 1], "last_logits"), digest)
            splits.append(chain.last_split)
        token_s = (time.perf_counter() - start_s) / num_decode
        counts = chain.telemetry().since(before).layers
    finally:
        state.release()
    bands = [
        _measure(facts[band], [split[band] for split in splits], counts[band].picks, counts[band].hits)
        for band in range(len(facts))
    ]
    return Canary(num_chunk, prompt_s, token_s, digest.hexdigest(), prompt, tuple(bands))


def _chunk_tokens(chain: Chain, facts: Sequence[NodeFacts], num_decode: int) -> int:
    planned = min(node.chunk_tokens for node in facts)
    return max(1, min(planned, chain.chunk_tokens, chain.ctx_tokens - num_decode))


def _take(chain: Chain, logits: np.ndarray | None, digest: object) -> None:
    assert logits is not None
    if not np.isfinite(logits).all():
        raise SelfTestFailed(
            "the nodes' answer to the fixed tokens is not a number",
            "run `streamoe doctor` and `streamoe verify` on each node",
        ) from NonFiniteLogits(0)
    digest.update(logits.tobytes())  # type: ignore[attr-defined]


def _measure(facts: NodeFacts, splits: Sequence[BandSplit], picks: int, hits: int) -> BandMeasure:
    return BandMeasure(
        facts,
        len(splits),
        sum(split.compute_s for split in splits),
        sum(split.wait_s for split in splits),
        sum(split.wire_s for split in splits),
        sum(split.read_bytes for split in splits),
        picks,
        hits,
    )
