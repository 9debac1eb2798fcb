"""Choosing the next token from logits.

Owns the sampling parameters, where their defaults come from, and one answer's chain of penalty and sampler
(mlx-lm's, so the same words mean the same thing). Refuses to know of text, and to make a token of logits that
are not finite numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from streamoe_engine.errors import NonFiniteLogits, UsageError
from streamoe_engine.mlx_lm_import import submodule

from .text.tokenizer import read_json

# generation_config.json means all tokens so far, where mlx-lm's own default looks back 20.
_WHOLE_SEQUENCE = 1 << 30


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. temperature 0 takes the likeliest token, and then top_p, top_k, min_p and seed do
    nothing. top_p 1, top_k 0, min_p 0 and repetition_penalty 1 switch each off. max_tokens None: until the context
    is full. seed None: another answer each time.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a value out of its range."""
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "0 or more")
        _check("top-p", self.top_p, 0 < self.top_p <= 1, "more than 0 and at most 1")
        _check("top-k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("min-p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1")
        _check("repetition-penalty", self.repetition_penalty, 0 < self.repetition_penalty < math.inf, "more than 0")
        _check("max-tokens", self.max_tokens, self.max_tokens is None or self.max_tokens >= 1, "1 or more")
        _check("seed", self.seed, self.seed is None or 0 <= self.seed < 1 << 64, "0 or more, below 2**64")


def default_params(folder: Path) -> SamplingParams:
    """What a model folder's generation_config.json asks for; without do_sample that is temperature 0.

    Raises UsageError for values out of range, TokenizerUnusable for a file that cannot be read.
    """
    config = read_json(folder / "generation_config.json")
    found = {name: config[name] for name in ("top_p", "top_k", "min_p", "repetition_penalty") if config.get(name)}
    temperature = float(config.get("temperature") or 1.0) if config.get("do_sample") else 0.0
    return SamplingParams(temperature=temperature, max_tokens=config.get("max_new_tokens"), **found)


def override(params: SamplingParams, **given: Any) -> SamplingParams:
    """`params` with the given values; None keeps the default. Raises UsageError for a value out of its range."""
    return replace(params, **{name: value for name, value in given.items() if value is not None})


class Sampler:
    """Chooses the tokens of one sequence. A seed makes it repeatable, counted from when the sampler was made."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._mlx_lm = submodule("sample_utils")
        self._processors = self._mlx_lm.make_logits_processors(
            repetition_penalty=None if params.repetition_penalty == 1 else params.repetition_penalty,
            repetition_context_size=_WHOLE_SEQUENCE,
        )
        if params.seed is not None:
            mx.random.seed(params.seed)

    def choose(self, logits: np.ndarray, tokens: Sequence[int]) -> int:
        """The next token after `tokens` (all of the sequence so far). logits: (vocab_size,) float32.

        Raises NonFiniteLogits, with the position the next token would have.
        """
        if not np.isfinite(logits).all():
            raise NonFiniteLogits(len(tokens))
        scores = self._penalised(logits, tokens)
        if self._params.temperature == 0:
            return int(scores.argmax())
        highest = scores.max()
        logprobs = scores - highest - np.log(np.exp(scores - highest).sum())
        ids = nucleus(logprobs, self._params.top_p)
        return int(ids[self._draw(logprobs[ids])])

    def _penalised(self, logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        if not self._processors:
            return logits
        scores = mx.array(logits)[None]
        for process in self._processors:
            scores = process(list(tokens), scores)
        return np.asarray(scores[0])

    def _draw(self, logprobs: np.ndarray) -> int:
        # (candidates,) float32 -> an index into them
        params = self._params
        top_k = params.top_k if params.top_k < len(logprobs) else 0
        sample = self._mlx_lm.make_sampler(temp=params.temperature, min_p=params.min_p, top_k=top_k)
        return int(sample(mx.array(logprobs)[None]).item())


def nucleus(logprobs: np.ndarray, top_p: float) -> np.ndarray:
    """The ids of the likeliest tokens that together reach top_p of the probability, ties kept; all ids for 1.

    logprobs: (vocab_size,) float32, normalised. The same set as mlx-lm's apply_top_p keeps, without its sort of
    the whole vocabulary: 28 ms a token at 248,320 words on MLX's CPU, against 1.3 here.
    """
    num_tokens = len(logprobs)
    if top_p == 1:
        return np.arange(num_tokens)
    num_tried = 256
    while True:
        num_tried = min(4 * num_tried, num_tokens)
        likeliest = np.sort(np.partition(logprobs, num_tokens - num_tried)[num_tokens - num_tried :])[::-1]
        mass = np.exp(likeliest).cumsum(dtype=np.float64)
        if mass[-1] >= top_p or num_tried == num_tokens:
            num_kept = 1 + int(np.searchsorted(mass, top_p))
            return np.flatnonzero(logprobs >= likeliest[min(num_kept, num_tried) - 1])


def _check(name: str, value: float | None, is_right: bool, range_text: str) -> None:
    if not is_right:
        raise UsageError(f"--{name} {value} is out of range", f"give a value that is {range_text}")
