"""Quantised matrices against float64, against MLX, and against themselves: the same bits however they are called."""

from __future__ import annotations

import ctypes
import mmap

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamoe_engine.kernels import Kernels, Matrix
from tests.engine.kernels.conftest import MakeKernels
from tests.engine.kernels.packed import AFFINE_BITS, DTYPES, GROUPS, PACKINGS, Packed, random_matrix, relative_error

# Past one panel of inputs and not a multiple of it; outputs that no tile divides.
ROWS, COLS = 37, 1024 + 384


def product(kernels: Kernels, matrix: Matrix, x: np.ndarray) -> np.ndarray:
    out = np.full((len(x), matrix.rows), np.nan, np.float32)
    kernels.matmul(matrix, x, out)
    return out


def inputs(random: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    return random.standard_normal((rows, cols)).astype(np.float32)


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda packing: "-".join(map(str, packing)))
def test_near_float64_and_the_same_bits_for_any_number_of_rows(
    make_kernels: MakeKernels, packing: tuple[int, int, str]
) -> None:
    random, kernels = np.random.default_rng(sum(map(ord, str(packing)))), make_kernels(1)
    packed, x = random_matrix(random, ROWS, COLS, packing), inputs(random, 79, COLS)
    out = product(kernels, packed.matrix, x)
    assert relative_error(out, x, packed.weights) < 5e-7
    for rows in (*range(1, 10), 33, 64, 73):
        assert product(kernels, packed.matrix, x[-rows:]).tobytes() == out[-rows:].tobytes(), rows


@pytest.mark.parametrize("cols", [4096, 8192, 9216, 36864])
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 64), (8, 32)])
def test_wide_rows(make_kernels: MakeKernels, cols: int, bits: int, group: int) -> None:
    # More groups than are widened at once, for every number of outputs taken together.
    random, kernels = np.random.default_rng(cols), make_kernels(1)
    packed, x = random_matrix(random, 13, cols, (bits, group, "BF16")), inputs(random, 20, cols)
    out = product(kernels, packed.matrix, x)
    assert relative_error(out, x, packed.weights) < 5e-7
    for rows in (1, 2, 3, 4, 8, 9):
        assert product(kernels, packed.matrix, x[:rows]).tobytes() == out[:rows].tobytes()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 70),
    groups=st.integers(1, 20),
    tokens=st.integers(1, 20),
    packing=st.sampled_from(PACKINGS),
    seed=st.integers(0, 99),
)
def test_any_shape(
    make_kernels: MakeKernels, rows: int, groups: int, tokens: int, packing: tuple[int, int, str], seed: int
) -> None:
    random, kernels = np.random.default_rng(seed), make_kernels(2)
    packed, x = random_matrix(random, rows, groups * packing[1], packing), inputs(random, tokens, groups * packing[1])
    assert relative_error(product(kernels, packed.matrix, x), x, packed.weights) < 5e-7


@pytest.mark.parametrize("tokens", [1, 3, 70])
def test_threads_do_not_change_bits(make_kernels: MakeKernels, tokens: int) -> None:
    random = np.random.default_rng(tokens)
    packed, x = random_matrix(random, 2003, 512, (4, 64, "BF16")), inputs(random, tokens, 512)
    alone, few, many = (product(make_kernels(threads), packed.matrix, x) for threads in (1, 2, 5))
    assert alone.tobytes() == few.tobytes() == many.tobytes()
    assert relative_error(alone, x, packed.weights) < 5e-7


def part(packed: Packed, first: int, count: int) -> Matrix:
    """Outputs [first, first + count) of the matrix, as one of its own."""
    old = packed.matrix
    steps = [first * array.nbytes // old.rows for array in packed.kept]
    moved = [address + step for address, step in zip((old.weight, old.scales, old.biases), steps, strict=True)]
    return Matrix(old.bits, old.group, count, old.cols, old.scale_dtype, *moved)


@pytest.mark.parametrize("tokens", [1, 2, 40])
def test_cutting_the_outputs_does_not_change_bits(make_kernels: MakeKernels, tokens: int) -> None:
    random, kernels = np.random.default_rng(3), make_kernels(2)
    packed, x = random_matrix(random, 61, 2048, (4, 64, "BF16")), inputs(random, tokens, 2048)
    whole = product(kernels, packed.matrix, x)
    for first, count in ((0, 1), (1, 4), (5, 8), (13, 48)):
        piece = product(kernels, part(packed, first, count), x)
        assert piece.tobytes() == whole[:, first : first + count].tobytes()


@pytest.mark.parametrize("bits", [*AFFINE_BITS, 16, 32])
@pytest.mark.parametrize("tokens", [1, 9])
def test_alignment_does_not_change_bits(make_kernels: MakeKernels, bits: int, tokens: int) -> None:
    packing = (bits, 32 if bits >= 16 else 64, "F32" if bits == 32 else "BF16")
    kernels, kept = make_kernels(1), []

    def run(shift: int) -> bytes:
        def place(array: np.ndarray) -> int:
            room = np.zeros(array.nbytes + 128, np.uint8)
            start = -room.ctypes.data % 64 + shift
            room[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
            kept.append(room)
            return room.ctypes.data + start

        random = np.random.default_rng(bits)
        packed = random_matrix(random, 21, 384, packing, place)
        x = inputs(random, tokens, 384)
        address = place(x)
        moved = np.frombuffer((ctypes.c_uint8 * x.nbytes).from_address(address), np.float32).reshape(x.shape)
        return product(kernels, packed.matrix, moved).tobytes()

    assert len({run(shift) for shift in (0, 2, 12, 33)}) == 1


@pytest.mark.parametrize("bits", AFFINE_BITS)
@pytest.mark.parametrize("tokens", [1, 9])
def test_nothing_behind_a_matrix_is_read(make_kernels: MakeKernels, bits: int, tokens: int) -> None:
    # Each part ends where a page ends that may not be touched: a read behind it kills this process.
    libc, page, maps = ctypes.CDLL(None), mmap.PAGESIZE, []

    def place(array: np.ndarray) -> int:
        used = -(-array.nbytes // page) * page
        room = mmap.mmap(-1, used + page)
        maps.append(room)
        room[used - array.nbytes : used] = array.tobytes()
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        assert libc.mprotect(ctypes.c_void_p(address + used), ctypes.c_size_t(page), 0) == 0
        return address + used - array.nbytes

    random = np.random.default_rng(bits)
    packed, x = random_matrix(random, 13, 288, (bits, 32, "BF16"), place), inputs(random, tokens, 288)
    assert relative_error(product(make_kernels(1), packed.matrix, x), x, packed.weights) < 5e-7


@pytest.mark.parametrize("bits", AFFINE_BITS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_what_mlx_packs(make_kernels: MakeKernels, bits: int, group: int, dtype: str) -> None:
    mx_dtype = {"F32": mx.float32, "BF16": mx.bfloat16, "F16": mx.float16}[dtype]
    random, kernels = np.random.default_rng(bits * group), make_kernels(1)
    dense, x = mx.array(inputs(random, 24, 512)).astype(mx_dtype), inputs(random, 3, 512)
    weight, scales, biases = mx.quantize(dense, group_size=group, bits=bits)
    wide = [scales.astype(mx.float32), biases.astype(mx.float32)]
    expected = mx.quantized_matmul(mx.array(x), weight, *wide, transpose=True, group_size=group, bits=bits)
    views = [np.array(part if dtype == "F32" else part.view(mx.uint16)) for part in (scales, biases)]
    codes = np.array(weight)
    matrix = Matrix(bits, group, 24, 512, dtype, codes.ctypes.data, *(view.ctypes.data for view in views))
    out = product(kernels, matrix, x)
    exact = np.array(mx.dequantize(weight, *wide, group_size=group, bits=bits)).astype(np.float64)
    assert relative_error(out, x, exact) < 5e-7
    assert np.allclose(out, np.array(expected), rtol=0, atol=2e-5 * np.abs(np.array(expected)).max())


@pytest.mark.parametrize("tokens", [1, 6, 20])
def test_output_bias(make_kernels: MakeKernels, tokens: int) -> None:
    random, kernels = np.random.default_rng(1), make_kernels(2)
    plain, x = random_matrix(random, 43, 256, (4, 32, "F16")), inputs(random, tokens, 256)
    bias, old = random.standard_normal(43).astype(np.float32), plain.matrix
    biased = Matrix(4, 32, 43, 256, "F16", old.weight, old.scales, old.biases, bias.ctypes.data)
    assert product(kernels, biased, x).tobytes() == (product(kernels, old, x) + bias).tobytes()


def test_half_precision_scales_keep_subnormals_and_infinities(make_kernels: MakeKernels) -> None:
    # One weight a row: code 1 times a scale that covers every float16.
    scales = np.arange(2**16, dtype=np.uint16).view(np.float16)
    codes = np.zeros((len(scales), 32), np.uint8)
    codes[:, 0] = 1
    biases, x = np.zeros_like(scales), np.zeros((1, 32), np.float32)
    x[0, 0] = 1
    matrix = Matrix(8, 32, len(scales), 32, "F16", codes.ctypes.data, scales.ctypes.data, biases.ctypes.data)
    out = product(make_kernels(1), matrix, x)[0]
    finite = np.isfinite(scales)
    assert np.array_equal(out[finite], scales[finite].astype(np.float32))
    assert not np.isfinite(out[~finite]).any()
