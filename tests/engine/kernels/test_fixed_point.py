"""Inputs in fixed point: float32's own precision over its whole range, the same bits with matrix tiles as without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_engine import kernels
from streamoe_engine.kernels import Kernels, Matrix
from tests.engine.kernels.packed import GROUPS, PACKINGS, random_matrix, relative_error

FIXED = [isa for isa in ("avx512", "amx") if isa in kernels.available_isas()]
QUANTISED = [packing for packing in PACKINGS if packing[0] < 16]
pytestmark = pytest.mark.skipif(not FIXED, reason="no instruction set here multiplies codes by integers")


@pytest.fixture(scope="module")
def both() -> dict[str, Kernels]:
    """Kernels of each such instruction set, one thread."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        for isa in FIXED:
            patch.setenv(kernels.ISA_VARIABLE, isa)
            loaded = kernels.load(1)
            assert loaded is not None
            made[isa] = loaded
    return made


def product(one: Kernels, matrix: Matrix, x: np.ndarray) -> np.ndarray:
    out = np.full((len(x), matrix.rows), np.nan, np.float32)
    one.matmul(matrix, x, out)
    return out


@pytest.mark.skipif(len(FIXED) < 2, reason="this processor has no matrix tiles")
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    groups=st.integers(1, 40),
    tokens=st.integers(1, 70),
    packing=st.sampled_from(QUANTISED),
    seed=st.integers(0, 99),
)
def test_matrix_tiles_change_no_bit(
    both: dict[str, Kernels], rows: int, groups: int, tokens: int, packing: tuple[int, int, str], seed: int
) -> None:
    random = np.random.default_rng(seed)
    packed = random_matrix(random, rows, groups * packing[1], packing)
    x = random.standard_normal((tokens, groups * packing[1])).astype(np.float32)
    assert product(both["amx"], packed.matrix, x).tobytes() == product(both["avx512"], packed.matrix, x).tobytes()


@pytest.mark.parametrize("isa", FIXED)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("tokens", [1, 20])
def test_whole_numbers_are_exact(both: dict[str, Kernels], isa: str, group: int, tokens: int) -> None:
    # Integers below 2^15 times codes: every sum fits float32, so nothing may be rounded away.
    random = np.random.default_rng(group)
    codes = random.integers(0, 16, (19, 2 * group), np.uint8)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).copy()
    scales, biases = np.ones((19, 2), np.float32), np.full((19, 2), -8, np.float32)
    addresses = (array.ctypes.data for array in (packed, scales, biases))
    matrix = Matrix(4, group, 19, 2 * group, "F32", *addresses)
    x = random.integers(-(2**9), 2**9, (tokens, 2 * group)).astype(np.float32)
    exact = x.astype(np.int64) @ (codes.astype(np.int64) - 8).T
    assert np.array_equal(product(both[isa], matrix, x), exact)


@pytest.mark.parametrize("isa", FIXED)
@pytest.mark.parametrize("exponent", [-100, -60, -1, 0, 60, 100])
def test_any_magnitude(both: dict[str, Kernels], isa: str, exponent: int) -> None:
    random = np.random.default_rng(7)
    packed = random_matrix(random, 17, 256, (4, 64, "BF16"))
    x = np.ldexp(random.standard_normal((5, 256)), exponent).astype(np.float32)
    assert relative_error(product(both[isa], packed.matrix, x), x, packed.weights) < 5e-7
    # A power of two more or less moves the exponent of the result and nothing else.
    twice = product(both[isa], packed.matrix, 2 * x)
    assert np.array_equal(twice, 2 * product(both[isa], packed.matrix, x))


@pytest.mark.parametrize("isa", FIXED)
@settings(max_examples=60, deadline=None)
@given(largest=st.floats(1.0, 2.0, width=32), sign=st.sampled_from([-1.0, 1.0]), seed=st.integers(0, 9))
def test_the_largest_input_keeps_its_bits(
    both: dict[str, Kernels], isa: str, largest: float, sign: float, seed: int
) -> None:
    # Where the top byte of the fixed point is about to overflow: one input alone, code 1, scale 1.
    codes = np.zeros((1, 32), np.uint8)
    at = seed * 3
    codes[0, at] = 1
    scales, biases = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    matrix = Matrix(8, 32, 1, 32, "F32", *(array.ctypes.data for array in (codes, scales, biases)))
    x = np.zeros((1, 32), np.float32)
    x[0, at] = sign * largest
    assert product(both[isa], matrix, x)[0, 0] == pytest.approx(sign * largest, rel=0, abs=2**-22)


@pytest.mark.parametrize("isa", FIXED)
@pytest.mark.parametrize("tokens", [1, 20])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(both: dict[str, Kernels], isa: str, tokens: int, bad: float) -> None:
    random = np.random.default_rng(3)
    packed = random_matrix(random, 21, 192, (4, 64, "F16"))
    x = random.standard_normal((tokens, 192)).astype(np.float32)
    clean = product(both[isa], packed.matrix, x)
    x[-1, 100] = bad
    out = product(both[isa], packed.matrix, x)
    assert np.isnan(out[-1]).all()
    assert out[:-1].tobytes() == clean[:-1].tobytes()


@pytest.mark.parametrize("isa", FIXED)
def test_nothing_in_gives_nothing_out(both: dict[str, Kernels], isa: str) -> None:
    packed = random_matrix(np.random.default_rng(1), 9, 128, (8, 64, "BF16"))
    assert not product(both[isa], packed.matrix, np.zeros((6, 128), np.float32)).any()
