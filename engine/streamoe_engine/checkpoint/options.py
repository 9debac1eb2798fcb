"""What a caller may choose about a conversion, and what it is told on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from .formats import AFFINE_BITS, AFFINE_GROUPS


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """quantize "auto": floating-point weights are quantised (affine, `bits` in groups of `group_size`, with the model
    class's own exceptions), a checkpoint that is quantised already is copied as it is. "keep": all are copied.

    Raises UsageError for bits or a group size that MLX has not.
    """

    quantize: Literal["auto", "keep"] = "auto"
    bits: int = 4
    group_size: int = 64

    def __post_init__(self) -> None:
        if self.quantize not in ("auto", "keep"):
            raise UsageError(f"quantize cannot be '{self.quantize}'", "give auto or keep")
        if self.bits not in AFFINE_BITS:
            raise UsageError(f"{self.bits} bits is no quantisation of MLX", f"give one of {AFFINE_BITS}")
        if self.group_size not in AFFINE_GROUPS:
            raise UsageError(f"groups of {self.group_size} are none of MLX's", f"give one of {AFFINE_GROUPS}")


@dataclass(frozen=True, slots=True)
class Progress:
    """done_bytes of total_bytes are made or checked (files kept from an earlier run count); part: the file in hand."""

    done_bytes: int
    total_bytes: int
    part: str


Report = Callable[[Progress], None]
