"""Byte sizes: parsing what people type, printing what they read.

Sizes are `int` bytes everywhere else; text exists only here and at the edges.
"""

from __future__ import annotations

import re

from .errors import UsageError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
_UNITS = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_UNITS |= {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024**4}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def parse_size(text: str) -> int:
    """Bytes of a size with its unit: "4GiB" is 4294967296, "4GB" is 4000000000.

    Raises UsageError for a bare number, an unknown unit, or less than one byte.
    """
    match = _PATTERN.fullmatch(text)
    unit = {name.lower(): scale for name, scale in _UNITS.items()}.get(match[2].lower()) if match else None
    if match is None or unit is None or int(float(match[1]) * unit) < 1:
        raise UsageError(f"'{text}' is not a size such as 4GiB", "give a number and a unit: 512MiB, 4GiB, 4GB")
    return int(float(match[1]) * unit)


def format_size(num_bytes: int) -> str:
    """A size for people, in binary units with two decimals: "4.00 GiB", "512 B"."""
    for scale, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(num_bytes) >= scale:
            return f"{num_bytes / scale:.2f} {unit}"
    return f"{num_bytes} B"


def size_argument(num_bytes: int) -> str:
    """The shortest `--budget` value, in whole MiB or tenths of GiB, that is not below num_bytes."""
    mib = -(-num_bytes // MIB)
    tenths = -(-num_bytes * 10 // GIB)
    if num_bytes < GIB or tenths * GIB // 10 - num_bytes > 64 * MIB:
        return f"{mib}MiB"
    return f"{tenths / 10:g}GiB"


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below value."""
    return -(-value // multiple) * multiple
