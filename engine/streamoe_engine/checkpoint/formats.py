"""Number formats: which foreign ones are refused, and how a quantised matrix is packed.

Owns the inference of bits, group size and mode from shapes, by mlx-lm's rule (`infer_quant_config`), and the decision
which matrices of a floating-point checkpoint are quantised, by mlx-lm's rule (`quantize_model`).
Refuses to know where tensors lie.
"""

from __future__ import annotations

from typing import Any

import mlx.nn as nn

from ..errors import CheckpointMismatch, ModelNotSupported
from ..manifest import DTYPE_BYTES, Quantization
from .dtypes import FLOATS, MLX_DTYPES
from .source import Source

AFFINE_BITS = (1, 2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
_MODES_OF_BYTE_SCALES = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}
_FOREIGN_SUFFIXES = {
    ".weight_scale_inv": "8-bit floats with block scales (fp8)",
    ".weight_packed": "compressed-tensors",
    ".weight_scale": "compressed-tensors or ModelOpt",
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".absmax": "bitsandbytes",
    ".global_scale": "nvfp4 with a scale a tensor",
}
_KNOWN_METHODS = (None, "mxfp4")  # gpt_oss; MLX's own form names no method
_USE_ANOTHER = "use the bf16 checkpoint, or one that mlx-community has converted"


def refuse_foreign_formats(source: Source) -> None:
    """Raises ModelNotSupported for number formats without a reader, naming a tensor."""
    text = source.config.get("text_config")
    # A conversion by mlx-lm writes "quantization", and may leave the original's description beside it.
    described_by = () if "quantization" in source.config else (source.config, text if isinstance(text, dict) else {})
    for config in described_by:
        described = config.get("quantization_config")
        method = described.get("quant_method") if isinstance(described, dict) else None
        if method not in _KNOWN_METHODS:
            raise ModelNotSupported(
                f"{source.folder} is quantised by '{method}', which has no reader here", _USE_ANOTHER
            )
    for tensor in source.tensors.values():
        for suffix, what in _FOREIGN_SUFFIXES.items():
            if tensor.name.endswith(suffix):
                raise ModelNotSupported(f"{tensor.name} is of a format without a reader here: {what}", _USE_ANOTHER)
        if tensor.dtype not in MLX_DTYPES:
            raise ModelNotSupported(f"{tensor.name} has dtype {tensor.dtype}, which has no reader here", _USE_ANOTHER)


def refuse_unstorable(name: str, dtype: str) -> None:
    """Raises ModelNotSupported for a dtype that a model folder does not hold."""
    if dtype not in DTYPE_BYTES:
        raise ModelNotSupported(
            f"{name} has dtype {dtype}; a model folder holds {', '.join(DTYPE_BYTES)}", _USE_ANOTHER
        )


Shaped = tuple[tuple[int, ...], str]  # shape and safetensors dtype


def infer_quantization(
    path: str, full: tuple[int, ...], weight: Shaped, scales: Shaped, has_biases: bool
) -> Quantization:
    """How the matrix at `path`, of shape `full` when unquantised, is packed.

    Raises ModelNotSupported when no mode fits, and CheckpointMismatch when the leading dimensions differ.
    """
    (shape, dtype), (scales_shape, scales_dtype), width = weight, scales, full[-1]
    if shape[:-1] != full[:-1] or scales_shape[:-1] != full[:-1]:
        raise CheckpointMismatch(
            f"{path}.weight {list(shape)} with scales {list(scales_shape)} cannot be the {list(full)} "
            "that config.json asks for",
            "check that config.json belongs to these tensors, or download both again",
        )
    group, no_group = divmod(width, scales_shape[-1] or width + 1)
    bits, no_bits = divmod(shape[-1] * 32, width)
    mode = _mode(bits, group, scales_dtype, has_biases)
    if dtype != "U32" or no_group or no_bits or mode is None:
        raise ModelNotSupported(
            f"{path}.weight {list(shape)} {dtype} with scales {list(scales_shape)} {scales_dtype} for {width} inputs "
            f"is {bits} bits in groups of {group}, which is no known quantisation",
            "check that config.json belongs to these tensors, or use a checkpoint that mlx-community has converted",
        )
    return Quantization(group, bits, mode)


def _mode(bits: int, group: int, scales_dtype: str, has_biases: bool) -> str | None:
    if scales_dtype == "U8":
        return None if has_biases else _MODES_OF_BYTE_SCALES.get((bits, group))
    fits = has_biases and scales_dtype in FLOATS and bits in AFFINE_BITS and group in AFFINE_GROUPS
    return "affine" if fits else None


def check_configured(config: dict[str, Any], path: str, found: Quantization) -> None:
    """Raises CheckpointMismatch when config.json describes the matrix at `path` otherwise than its tensors do."""
    described = config.get("quantization")
    wanted = described.get(path) if isinstance(described, dict) else None
    if not isinstance(wanted, dict):
        return
    spec = Quantization(wanted.get("group_size", 64), wanted.get("bits", 4), wanted.get("mode", "affine"))
    if spec != found:
        raise CheckpointMismatch(
            f"config.json says {spec.bits} bits in groups of {spec.group_size} ({spec.mode}) for {path}, its tensors "
            f"are {found.bits} bits in groups of {found.group_size} ({found.mode})",
            "check that config.json belongs to these tensors, or download both again",
        )


def decide_quantization(model: nn.Module, group_size: int, bits: int) -> dict[str, Quantization]:
    """Which modules of a floating-point model are quantised, by path, as mlx-lm's conversion decides."""
    predicate = getattr(model, "quant_predicate", None)
    found: dict[str, Quantization] = {}
    for path, module in model.named_modules():
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % group_size:
            continue
        decision = predicate(path, module) if predicate else True
        if isinstance(decision, dict):
            own: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"} | decision
            found[path] = Quantization(own["group_size"], own["bits"], own["mode"])
        elif decision:
            found[path] = Quantization(group_size, bits)
    return found
