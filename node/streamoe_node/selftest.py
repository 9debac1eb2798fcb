"""The canary: what a band makes of a fixed input, as a digest that other machines can compare.

Owns the input and the digest's form. A band that gives no numbers, or not the same numbers twice, does not serve.
Equal digests mean bit-identical arithmetic; different ones may still agree in every token, so they are told, not
refused. Refuses to know what a coordinator makes of them.

Input: 8 tokens in one run, then 1 more. First band: ids 1, 2, ..., 9 modulo the vocabulary. Others: hidden states of
sin(0.37 * (index + 1)), float32, index counted row by row. Digest: BLAKE2b, 8 bytes, over the hidden states that both
runs give, little-endian; in the last band over the logits of the last token too.
"""

from __future__ import annotations

import hashlib

import numpy as np

from .errors import SelfTestFailed
from .ports import BandPort

_PROMPT_TOKENS = 8


def canary_inputs(band: BandPort) -> np.ndarray:
    """(9,) int32 or (9, width) float32."""
    if band.is_first:
        return np.arange(1, _PROMPT_TOKENS + 2, dtype=np.int32) % band.vocab_size
    numbers = np.arange(1, (_PROMPT_TOKENS + 1) * band.width + 1, dtype=np.float64)
    return np.sin(0.37 * numbers).astype(np.float32).reshape(-1, band.width)


def self_test(band: BandPort) -> str:
    """The digest, 16 hexadecimal digits. Raises SelfTestFailed, and what the band raises."""
    first = _digest(band)
    if _digest(band) != first:
        raise SelfTestFailed(
            "the band gives other numbers for the same input", "run `streamoe doctor` and `streamoe verify`"
        )
    return first


def _digest(band: BandPort) -> str:
    inputs, state = canary_inputs(band), band.new_state()
    digest = hashlib.blake2b(digest_size=8)
    try:
        # One run fewer tokens than the chunk has room for would be another shape on another machine.
        for start in range(0, _PROMPT_TOKENS, min(band.chunk_tokens, _PROMPT_TOKENS)):
            stop = min(start + band.chunk_tokens, _PROMPT_TOKENS)
            _add(digest, band.run(state, inputs[start:stop], "hidden"))
        _add(digest, band.run(state, inputs[_PROMPT_TOKENS:], "last_logits" if band.is_last else "hidden"))
    finally:
        band.release(state)
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, output: np.ndarray | None) -> None:
    assert output is not None
    if not np.isfinite(output).all():
        raise SelfTestFailed("the band's numbers are not finite", "run `streamoe doctor` and `streamoe verify`")
    digest.update(np.ascontiguousarray(output, dtype="<f4").tobytes())
