"""Choosing the next token from logits.

Owns the sampling parameters, where their defaults come from, and one answer's chain: penalties, mask, limits, draw.
The words mean what they mean in mlx-lm; the random numbers are the sampler's own, so that answers made at the same
time do not disturb each other. Refuses to know of text, and to make a token of logits that are not finite numbers.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from streamoe_engine.errors import NonFiniteLogits, UsageError

from .text.tokenizer import read_json


class LogitsMask(Protocol):
    """What an answer's form allows as its next token. Belongs to one answer."""

    def mask(self, logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """The logits with -inf for what may not come next; at least one stays finite.

        logits: (vocab_size,) float32, not to be changed in place. tokens: the answer's so far, without the prompt's.
        """
        ...

    def accept(self, token: int) -> None:
        """This token was chosen."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. temperature 0 takes the likeliest token, and then top_p, top_k, min_p and seed do
    nothing. top_p 1, top_k 0, min_p 0 and repetition_penalty 1 switch each off. max_tokens None: until the context
    is full. seed None: another answer each time. repetition_penalty looks at the whole sequence, presence_penalty
    and frequency_penalty at the answer alone. logit_bias: (token, what is added to its logit) each.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Raises UsageError for a value out of its range."""
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "0 or more")
        _check("top-p", self.top_p, 0 < self.top_p <= 1, "more than 0 and at most 1")
        _check("top-k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("min-p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1")
        penalty = self.repetition_penalty
        _check("repetition-penalty", penalty, 0.01 <= penalty <= 100, "from 0.01 to 100")
        _check("max-tokens", self.max_tokens, self.max_tokens is None or self.max_tokens >= 1, "1 or more")
        _check("seed", self.seed, self.seed is None or 0 <= self.seed < 1 << 64, "0 or more, below 2**64")
        for name in ("presence_penalty", "frequency_penalty"):
            _check(name.replace("_", "-"), value := getattr(self, name), math.isfinite(value), "a number")


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

    def __init__(self, params: SamplingParams, mask: LogitsMask | None = None) -> None:
        self._params, self._mask = params, mask
        self._random = random.Random(params.seed)
        self._answer: list[int] = []
        self._counts: Counter[int] = Counter()

    def choose(self, logits: np.ndarray, tokens: Sequence[int]) -> int:
        """The next token after `tokens` (all of the sequence so far). logits: (vocab_size,) float32.

        Raises NonFiniteLogits, with the position the next token would have.
        """
        if not np.isfinite(logits).all():
            raise NonFiniteLogits(len(tokens))
        scores = self._penalised(logits, tokens)
        if self._mask is not None:
            scores = self._mask.mask(scores, self._answer)
        token = int(scores.argmax()) if self._params.temperature == 0 else self._draw(scores)
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        """A token that is part of the answer; for one that was not chosen here."""
        self._answer.append(token)
        self._counts[token] += 1
        if self._mask is not None:
            self._mask.accept(token)

    def _penalised(self, logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        params = self._params
        is_counting = bool(params.presence_penalty or params.frequency_penalty) and self._counts
        if not (params.repetition_penalty != 1 or is_counting or params.logit_bias):
            return logits
        scores = logits.copy()
        if params.repetition_penalty != 1:
            seen = np.unique(np.asarray(tokens, dtype=np.int64))
            found, penalty = scores[seen], np.float32(params.repetition_penalty)
            scores[seen] = np.where(found < 0, found * penalty, found / penalty)
        if is_counting:
            ids = np.fromiter(self._counts.keys(), np.int64)
            counts = np.fromiter(self._counts.values(), np.float32)
            scores[ids] -= np.float32(params.presence_penalty) + np.float32(params.frequency_penalty) * counts
        for token, bias in params.logit_bias:
            if token < len(scores):
                scores[token] += np.float32(bias)
        return scores

    def _draw(self, scores: np.ndarray) -> int:
        # The limits look at the probabilities before the temperature, as mlx-lm's do.
        highest = scores.max()
        logprobs = scores - highest - np.log(np.exp(scores - highest).sum())
        ids = nucleus(logprobs, self._params.top_p)
        ids = self._limited(logprobs[ids], ids)
        kept = logprobs[ids].astype(np.float64)
        with np.errstate(over="ignore"):  # the tiniest temperatures: all but the likeliest become impossible
            mass = np.exp((kept - kept.max()) / self._params.temperature).cumsum()
        at = int(np.searchsorted(mass, self._random.random() * mass[-1], side="right"))
        return int(ids[min(at, len(ids) - 1)])

    def _limited(self, logprobs: np.ndarray, ids: np.ndarray) -> np.ndarray:
        if self._params.min_p:
            is_kept = logprobs >= logprobs.max() + math.log(self._params.min_p)
            logprobs, ids = logprobs[is_kept], ids[is_kept]
        if 0 < (top_k := self._params.top_k) < len(ids):
            ids = np.sort(ids[np.argpartition(logprobs, len(ids) - top_k)[-top_k:]])
        return ids


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
