"""One configuration, measured: a prompt and some tokens in an open band, every token timed by itself.

Owns the loop and its figures. Refuses to know how they are shown. The tokens are the model's own likeliest ones, or
forced: random ones that need no tokenizer, the only sensible text for a model of random weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

from streamoe_engine.band import Band
from streamoe_engine.plan import Plan
from streamoe_engine.sizes import MIB
from streamoe_engine.telemetry import Snapshot

from ..edge import SCHEMA
from ..generation import TokenSequence

# Logits (vocab_size,) float32 and the tokens so far give the next token.
Choose = Callable[[np.ndarray, Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run: a prompt of at least one token, then num_tokens decode steps."""

    prompt: tuple[int, ...]
    num_tokens: int
    choose: Choose


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. ttft_s: prompt to first token; step_s: seconds of each decode step; decode: counts over those steps."""

    plan: Plan
    num_prompt_tokens: int
    ttft_s: float
    step_s: tuple[float, ...]
    decode: Snapshot

    @property
    def tokens_per_s(self) -> float:
        """Of the median step."""
        return 1 / median(self.step_s)

    @property
    def tokens_per_s_spread(self) -> tuple[float, float]:
        """Of the slowest and the fastest step, a tenth of the steps left out on both sides."""
        if len(self.step_s) < 2:
            return self.tokens_per_s, self.tokens_per_s
        tenths = quantiles(self.step_s, n=10, method="inclusive")
        return 1 / tenths[-1], 1 / tenths[0]

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens over the time to the first token."""
        return self.num_prompt_tokens / self.ttft_s

    @property
    def read_mib_a_token(self) -> float:
        """Read for experts in a decode step, wasted guesses too; the mean."""
        return self.decode.read_bytes / len(self.step_s) / MIB

    @property
    def wait_share(self) -> float:
        """Share of the decode time that the compute thread stood still for reads; the rest is computing."""
        return self.decode.wait_s / sum(self.step_s)


def measure(band: Band, workload: Workload) -> Measured:
    """Run the workload in a new sequence. Raises what the band raises; ContextFull when it is too long."""
    sequence, prompt = TokenSequence(band), workload.prompt
    sequence.align(prompt)
    start = time.perf_counter()
    logits = None
    chunk_tokens = band.chunk_tokens
    for at in range(0, len(prompt), chunk_tokens):
        is_last = at + chunk_tokens >= len(prompt)
        logits = sequence.run(prompt[at : at + chunk_tokens], "last_logits" if is_last else "nothing")
    assert logits is not None, "a workload has a prompt"
    token = workload.choose(logits, sequence.tokens)
    ttft_s = time.perf_counter() - start
    before, step_s = band.telemetry(), []
    for _ in range(workload.num_tokens):
        start = time.perf_counter()
        logits = sequence.run([token], "last_logits")
        assert logits is not None, "asked for"
        token = workload.choose(logits, sequence.tokens)
        step_s.append(time.perf_counter() - start)
    return Measured(band.plan, len(prompt), ttft_s, tuple(step_s), band.telemetry().since(before))


def forced_workload(num_prompt_tokens: int, num_tokens: int, vocab_size: int) -> Workload:
    """Random tokens, the same every time; the model's own choices are not looked at."""
    ids = np.random.default_rng(0).integers(vocab_size, size=num_prompt_tokens + num_tokens + 1).tolist()
    return Workload(tuple(ids[:num_prompt_tokens]), num_tokens, lambda logits, tokens: ids[len(tokens)])


def measured_json(measured: Measured) -> dict[str, Any]:
    """The figures, flat: also the columns of a sweep."""
    plan, decode = measured.plan, measured.decode
    slowest, fastest = measured.tokens_per_s_spread
    steps = len(measured.step_s)
    return {
        "schema": SCHEMA,
        "budget_bytes": plan.budget_bytes,
        "peak_bytes": decode.peak_bytes,
        "slots": plan.slots,
        "num_experts": plan.num_experts_total,
        "guess_width": plan.guess_width,
        "prompt_tokens": measured.num_prompt_tokens,
        "tokens": steps,
        "tokens_per_s": measured.tokens_per_s,
        "tokens_per_s_p10": slowest,
        "tokens_per_s_p90": fastest,
        "ttft_s": measured.ttft_s,
        "prefill_tokens_per_s": measured.prefill_tokens_per_s,
        "read_mib_per_token": measured.read_mib_a_token,
        "wait_share": measured.wait_share,
        "hit_rate": decode.hit_rate,
        "guess_hits_per_token": decode.total("guess_hits") / steps,
        "misses_per_token": decode.total("misses") / steps,
        "wasted_per_token": decode.total("wasted") / steps,
    }


def measured_lines(measured: Measured) -> list[str]:
    """The figures for a reader, a line a subject."""
    plan, decode, steps = measured.plan, measured.decode, len(measured.step_s)
    slowest, fastest = measured.tokens_per_s_spread
    picks = max(decode.total("picks"), 1)
    shares = {name: decode.total(name) / picks for name in ("hits", "guess_hits", "misses")}
    return [
        f"decode   {measured.tokens_per_s:.2f} tok/s, median of {steps} ({slowest:.2f} to {fastest:.2f})",
        f"time     {measured.wait_share:.0%} waiting for reads, {1 - measured.wait_share:.0%} computing",
        f"prompt   {measured.num_prompt_tokens} tokens, first token after {measured.ttft_s:.2f} s, "
        f"{measured.prefill_tokens_per_s:.1f} tok/s",
        f"experts  {shares['hits']:.0%} hit, {shares['guess_hits']:.0%} guessed, {shares['misses']:.0%} missed, "
        f"{decode.total('wasted') / steps:.1f} guesses a token wasted",
        f"read     {measured.read_mib_a_token:.1f} MiB a token",
        f"memory   peak {decode.peak_bytes / MIB:.0f} MiB of {plan.budget_bytes / MIB:.0f} MiB, "
        f"{plan.slots} of {plan.num_experts_total} experts in slots",
    ]
