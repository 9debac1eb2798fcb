"""The self-test passes on MLX as it is, and fails on every way of being wrong that was seen elsewhere."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from streamoe_coordinator.doctor.arithmetic import arithmetic_checks, unpacked


def test_mlx_multiplies_rightly_here() -> None:
    checks = arithmetic_checks()
    float32 = [check for check in checks if check.name.endswith("float32")]
    assert {check.name for check in float32} == {
        f"{function}, {bits} bits, float32" for function in ("gather_qmm", "quantized_matmul") for bits in (4, 8)
    }
    assert [check.status for check in float32] == ["ok"] * 4, float32
    assert checks[-1].name.endswith("bfloat16") and checks[-1].status in ("ok", "warn")


@pytest.mark.parametrize("bits", [4, 8])
def test_own_unpacking_is_mlxs_format(bits: int) -> None:
    weight = mx.random.normal((8, 128))
    packed, scales, biases = mx.quantize(weight, group_size=64, bits=bits)
    codes = unpacked(np.array(packed), bits).reshape(8, 2, 64)
    own = (codes * np.array(scales)[..., None] + np.array(biases)[..., None]).reshape(8, 128)
    np.testing.assert_allclose(own, np.array(mx.dequantize(packed, scales, biases, 64, bits)), atol=1e-6)


def too_large(*args: Any, **options: Any) -> Any:
    return mx.quantized_matmul(*args, **options) * (1 + 3e-5)


def one_code_lost(x: Any, weight: Any, *args: Any, **options: Any) -> Any:
    return mx.quantized_matmul(x, weight & 0xFFFFFF0F, *args, **options)


def not_a_number(*args: Any, **options: Any) -> Any:
    return mx.quantized_matmul(*args, **options) * float("nan")


def refuses(*_: Any, **__: Any) -> Any:
    raise ValueError("not on this chip")


@pytest.mark.parametrize("wrong", [too_large, one_code_lost, not_a_number, refuses])
def test_a_wrong_quantized_matmul_is_failed(wrong: Any) -> None:
    checks = {check.name: check for check in arithmetic_checks(quantized_matmul=wrong)}
    for bits in (4, 8):
        check = checks[f"quantized_matmul, {bits} bits, float32"]
        assert check.status == "fail" and "another version of MLX" in check.fix
        assert checks[f"gather_qmm, {bits} bits, float32"].status == "ok"


def test_a_gather_that_picks_the_wrong_experts_is_failed() -> None:
    def swapped(*args: Any, rhs_indices: mx.array, **options: Any) -> mx.array:
        return mx.gather_qmm(*args, rhs_indices=rhs_indices[:, ::-1], **options)

    failed = [check.name for check in arithmetic_checks(gather_qmm=swapped) if check.status == "fail"]
    assert failed == ["gather_qmm, 4 bits, float32", "gather_qmm, 8 bits, float32"]


def test_coarse_bfloat16_is_a_warning_with_its_figure() -> None:
    def coarse(x: mx.array, *args: Any, **options: Any) -> mx.array:
        return mx.quantized_matmul(x, *args, **options) * (1.05 if x.dtype == mx.bfloat16 else 1)

    check = arithmetic_checks(quantized_matmul=coarse)[-1]
    assert check.status == "warn" and "e-02" in check.measured
