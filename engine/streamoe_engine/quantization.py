"""Reading a matrix's quantisation off its tensors. Pure.

Configurations name a default and some overrides; the shapes never lie.
"""

from __future__ import annotations

from .errors import CheckpointMismatch
from .manifest import Field, Quantization

# Formats with one byte a group as scale allow exactly one (bits, group size) each.
_BYTE_SCALE_MODES = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}
_AFFINE_BITS = (2, 3, 4, 5, 6, 8)
_AFFINE_GROUPS = (32, 64, 128)


def stored_quantization(input_width: int, weight: Field, scales: Field) -> Quantization:
    """How a matrix of input_width columns is packed, from its weight (…, columns * bits / 32) and scales tensors.

    Raises CheckpointMismatch when no format of MLX has such shapes.
    """
    bits = weight.shape[-1] * 32 // input_width
    group_size = input_width // scales.shape[-1] if scales.shape[-1] else 0
    mode: str | None = "affine" if bits in _AFFINE_BITS and group_size in _AFFINE_GROUPS else None
    if scales.dtype == "U8":
        mode = _BYTE_SCALE_MODES.get((bits, group_size))
    fits = weight.shape[-1] * 32 == input_width * bits and scales.shape[-1] * group_size == input_width
    if mode is None or not fits:
        raise CheckpointMismatch(
            f"{weight.name} {weight.shape} with scales {scales.shape} ({scales.dtype}) is no quantisation of "
            f"{input_width} columns that MLX has",
            "check that config.json belongs to these tensors",
        )
    return Quantization(group_size, bits, mode)
