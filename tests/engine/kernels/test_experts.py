"""Whole experts over slots: near float64, and the same bits for a token, for rows, and for any split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from streamoe_engine.kernels import Expert, Group, Kernels, Matrix
from tests.engine.kernels.conftest import MakeKernels
from tests.engine.kernels.packed import random_matrix

WIDTH, HIDDEN, SLOTS = 320, 200, 6
Rows = np.ndarray


@dataclass(frozen=True)
class Slots:
    """A pool of records in a random order, and the exact weights (gate, up, down) of each."""

    expert: Expert
    addresses: list[int]
    weights: list[tuple[Rows, Rows, Rows]]
    pool: Rows

    def exact(self, slot: int, x: Rows) -> Rows:
        gate, up, down = self.weights[slot]
        gated, x = x.astype(np.float64) @ gate.T, x.astype(np.float64)
        return (gated / (1 + np.exp(-gated)) * (x @ up.T)) @ down.T


def offset_matrix(packed: Matrix, start: int, sizes: Sequence[int]) -> Matrix:
    """The matrix with offsets from a record's start instead of addresses."""
    offsets = [start + sum(sizes[:i]) for i in range(len(sizes))]
    return Matrix(packed.bits, packed.group, packed.rows, packed.cols, packed.scale_dtype, *offsets)


def make_slots(hidden: int, packing: tuple[int, int, str], down_packing: tuple[int, int, str]) -> Slots:
    random = np.random.default_rng(hidden)
    shapes = ((hidden, WIDTH, packing), (hidden, WIDTH, packing), (WIDTH, hidden, down_packing))
    records, weights = [], []
    for _ in range(SLOTS):
        made = [random_matrix(random, *shape) for shape in shapes]
        records.append([[part.tobytes() for part in matrix.kept] for matrix in made])
        weights.append((made[0].weights / 16, made[1].weights / 16, made[2].weights))
    size = sum(len(part) for parts in records[0] for part in parts)
    stride, start, matrices = size + 40, 0, []
    for matrix, parts in zip(made, records[0], strict=True):
        matrices.append(offset_matrix(matrix.matrix, start, [len(part) for part in parts]))
        start += sum(map(len, parts))
    pool, addresses = np.zeros(stride * SLOTS, np.uint8), []
    for place, record in zip(random.permutation(SLOTS), records, strict=True):
        flat = b"".join(part for parts in record for part in parts)
        pool[place * stride : place * stride + size] = np.frombuffer(flat, np.uint8)
        addresses.append(pool.ctypes.data + int(place) * stride)
    return Slots(Expert(*matrices), addresses, weights, pool)


@pytest.fixture(scope="module", params=[(4, 32, "BF16"), (3, 32, "F16"), (8, 64, "F32"), (16, 32, "BF16")])
def slots(request: pytest.FixtureRequest) -> Slots:
    return make_slots(192 if request.param[1] == 64 else 224, request.param, (4, 32, "BF16"))


def some_rows(count: int) -> Rows:
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype(np.float32) / 16


def token(kernels: Kernels, slots: Slots, picks: Sequence[int], x: Rows) -> Rows:
    out = np.full((len(picks), WIDTH), np.nan, np.float32)
    scratch = np.full((len(picks), slots.expert.gate.rows), np.nan, np.float32)
    kernels.expert_token(slots.expert, [slots.addresses[pick] for pick in picks], x, scratch, out)
    return out


def rows(kernels: Kernels, slots: Slots, groups: Sequence[tuple[int, int, int]], x: Rows) -> Rows:
    out, scratch = np.full_like(x, np.nan), np.full((len(x), slots.expert.gate.rows), np.nan, np.float32)
    named = [Group(slots.addresses[slot], first, count) for slot, first, count in groups]
    kernels.expert_rows(slots.expert, named, x, scratch, out)
    return out


def test_a_token_is_near_float64_in_pick_order(make_kernels: MakeKernels, slots: Slots) -> None:
    x, picks = some_rows(1), [4, 0, 5, 2]
    out = token(make_kernels(2), slots, picks, 16 * x)
    for row, pick in zip(out, picks, strict=True):
        exact = slots.exact(pick, 256 * x)[0]
        assert np.abs(row - exact).max() < 2e-6 * np.abs(exact).max()


def test_experts_one_by_one_give_the_same_bits(make_kernels: MakeKernels, slots: Slots) -> None:
    x, picks = some_rows(1), [1, 3, 3, 0, 2]
    together = token(make_kernels(3), slots, picks, x)
    landing = [token(make_kernels(1), slots, part, x) for part in (picks[:2], picks[2:3], picks[3:])]
    assert np.concatenate(landing).tobytes() == together.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_rows_give_the_bits_of_tokens(make_kernels: MakeKernels, slots: Slots, threads: int) -> None:
    # One row, few (no panel), many (a panel), and more than one block of rows; row 3 belongs to nobody.
    groups = [(2, 0, 1), (0, 1, 2), (5, 4, 9), (1, 13, 70), (3, 83, 150)]
    x = some_rows(233)
    out = rows(make_kernels(threads), slots, groups, x)
    alone = make_kernels(1)
    for slot, first, count in groups:
        for row in range(first, first + count):
            assert token(alone, slots, [slot], x[row : row + 1]).tobytes() == out[row].tobytes()
    assert np.isnan(out[3]).all()


def test_groups_in_any_split_give_the_same_bits(make_kernels: MakeKernels, slots: Slots) -> None:
    kernels, x = make_kernels(2), some_rows(40)
    whole = rows(kernels, slots, [(4, 0, 25), (2, 25, 15)], x)
    cut = [rows(kernels, slots, [group], x) for group in ((4, 0, 7), (4, 7, 18), (2, 25, 15))]
    assert np.concatenate([cut[0][:7], cut[1][7:25], cut[2][25:]]).tobytes() == whole.tobytes()


def identity(size: int) -> tuple[Matrix, Rows]:
    made = np.eye(size, dtype=np.float32)
    return Matrix(32, 32, size, size, "F32", made.ctypes.data), made


@pytest.mark.parametrize("width", [32, 1056])
def test_the_activation_is_silu_to_a_few_units_in_the_last_place(make_kernels: MakeKernels, width: int) -> None:
    # Identity matrices around it: gate(x) is x, up(x) is one everywhere through its output of the last column.
    (gate, kept), ones = identity(width), np.zeros((width, width), np.float32)
    ones[:, -1] = 1
    up = Matrix(32, 32, width, width, "F32", ones.ctypes.data)
    expert, kernels = Expert(gate, up, gate), make_kernels(1)
    x = np.linspace(-87, 88, width, dtype=np.float32)[None] * np.float32(1 if width > 32 else 0.01)
    x[0, -1] = 1
    out, scratch = np.empty_like(x), np.empty_like(x)
    kernels.expert_token(expert, [0], x, scratch, out)
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    assert (np.abs(out - exact) / np.spacing(np.abs(exact).astype(np.float32))).max() < 4
    assert kept[0, 0] == 1


def test_the_activation_far_out(make_kernels: MakeKernels) -> None:
    (gate, _kept), ones = identity(32), np.zeros((32, 32), np.float32)
    ones[:, -1] = 1
    expert = Expert(gate, Matrix(32, 32, 32, 32, "F32", ones.ctypes.data), gate)
    x = np.zeros((1, 32), np.float32)
    x[0, :4], x[0, -1] = (-1e4, 1e4, -200, 0), 1
    out, scratch = np.empty_like(x), np.empty_like(x)
    make_kernels(1).expert_token(expert, [0], x, scratch, out)
    assert np.abs(out[0, [0, 2, 3]]).max() < 1e-30 and out[0, 1] == np.float32(1e4)
