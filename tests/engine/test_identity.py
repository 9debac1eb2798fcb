"""The embedded model says the same at every cap, with every guess, for every chunk: 96 greedy tokens."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from streamoe_engine import kernels
from streamoe_engine.band import Band, BandOptions
from tests.engine.test_exactness import Liar
from tests.reference import reference_logits
from tests.running import HOST, budget_for_slots, greedy

NUM_TOKENS = 96
QUESTION = (
    "<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n<|im_start|>user\n"
    "Please explain in plain words, as you would to a curious child, what photosynthesis is, which plants do it, "
    "what they need for it, what they give back to the air, and why all of this matters so much for people and "
    "animals everywhere on our planet.<|im_end|>\n<|im_start|>assistant\n"
)
CAPS = ("smallest", "twice", "resident")
GUESSES = ("none", "auto", "liar")
CHUNKS = (1, 7, 64, 128)
# Every cap, every guess where experts are read, and both ways to run a prompt; the rest of the product is slow.
KERNEL_CASES = [
    ("smallest", "none", 1),
    ("smallest", "auto", 64),
    ("smallest", "liar", 64),
    ("twice", "auto", 1),
    ("twice", "liar", 64),
    ("resident", "none", 1),
]
# Through MLX, which is slow: the corner; the whole product is the slow test.
CASES = [("smallest", "liar", 7)]


@pytest.fixture(scope="module")
def prompt(embedded_folder: Path) -> list[int]:
    ids = Tokenizer.from_file(str(embedded_folder / "tokenizer.json")).encode(QUESTION).ids
    assert 64 < len(ids) <= 128
    return ids


@pytest.fixture(scope="module")
def expected(embedded_folder: Path, prompt: list[int]) -> list[int]:
    return answer(embedded_folder, prompt, "resident", "none", 128)


@pytest.fixture(scope="module")
def expected_of_kernels(embedded_folder: Path, prompt: list[int]) -> list[int]:
    if reason := kernels.unavailable_reason():
        pytest.skip(reason)
    return answer(embedded_folder, prompt, "resident", "none", 128, "kernels")


def answer(folder: Path, prompt: list[int], cap: str, guess: str, chunk: int, backend: str = "mlx") -> list[int]:
    options = BandOptions(
        budget_bytes=1,
        ctx_tokens=256,
        chunk_tokens=128,
        guess=Liar(32) if guess == "liar" else guess,
        backend=backend,
        host=HOST,
    )
    smallest = budget_for_slots(folder, options, 0)
    budget = {"smallest": smallest, "twice": 2 * smallest, "resident": budget_for_slots(folder, options, 512)}[cap]
    with Band.open(folder, replace(options, budget_bytes=budget)) as band:
        if cap == "smallest":
            assert band.plan.slots == band.plan.landing_slots
        if cap == "resident":
            assert band.plan.slots == band.plan.num_experts_total
        tokens = greedy(band, prompt, NUM_TOKENS, chunk)
        if guess == "liar" and cap == "smallest":
            assert band.telemetry().total("wasted") > 0
    return tokens


@pytest.mark.parametrize(
    ("cap", "guess", "chunk"),
    [
        pytest.param(*case, marks=() if case in KERNEL_CASES else pytest.mark.slow)
        for case in product(CAPS, GUESSES, CHUNKS)
    ],
)
def test_the_same_96_tokens_through_the_kernels(
    embedded_folder: Path, prompt, expected_of_kernels, cap: str, guess: str, chunk: int
) -> None:
    assert answer(embedded_folder, prompt, cap, guess, chunk, "kernels") == expected_of_kernels


def test_the_kernels_say_what_mlx_says(expected, expected_of_kernels) -> None:
    assert expected_of_kernels == expected


@pytest.mark.parametrize(("cap", "guess", "chunk"), CASES)
def test_the_same_96_tokens(embedded_folder: Path, prompt, expected, cap: str, guess: str, chunk: int) -> None:
    assert answer(embedded_folder, prompt, cap, guess, chunk) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "guess", "chunk"), sorted(set(product(CAPS, GUESSES, CHUNKS)) - set(CASES)))
def test_the_same_96_tokens_everywhere(
    embedded_folder: Path, prompt, expected, cap: str, guess: str, chunk: int
) -> None:
    assert answer(embedded_folder, prompt, cap, guess, chunk) == expected


def test_logits_equal_mlx_lm_bit_for_bit(embedded_checkpoint: Path, embedded_folder: Path, prompt, expected) -> None:
    ids = np.array(prompt[:40] + expected[:10], dtype=np.int32)
    options = BandOptions(budget_bytes=1, ctx_tokens=64, chunk_tokens=64, backend="mlx", host=HOST)
    with Band.open(
        embedded_folder, replace(options, budget_bytes=budget_for_slots(embedded_folder, options, 40))
    ) as band:
        state = band.new_state()
        pieces = [band.run(state, ids[:40], "all_logits")]
        pieces += [band.run(state, ids[at : at + 1], "all_logits") for at in range(40, 50)]
    assert np.array_equal(np.concatenate(pieces), reference_logits(embedded_checkpoint, ids, 40))
