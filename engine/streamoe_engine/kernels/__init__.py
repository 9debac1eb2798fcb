"""The C kernels for CPUs, where this installation has them.

Owns finding the compiled library and saying why it cannot be used. Without it the engine computes through MLX.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path

from ..errors import UsageError
from .native import ABI, ISA_NAMES, Expert, Group, Kernels, Matrix

__all__ = [
    "ISA_NAMES",
    "Expert",
    "Group",
    "Kernels",
    "Matrix",
    "available_isas",
    "load",
    "shared_library",
    "unavailable_reason",
]

# Chooses the instruction set, for tests and for comparing machines: portable, avx2, avx512, neon, amx.
ISA_VARIABLE = "STREAMOE_ISA"


def load(threads: int) -> Kernels | None:
    """The kernels with a pool of `threads` threads, or None; then `unavailable_reason` says why.

    Raises UsageError when STREAMOE_ISA names no instruction set, PlatformUnsupported when the processor lacks it.
    """
    library, _ = _found()
    if library is None:
        return None
    isa = os.environ.get(ISA_VARIABLE) or None
    if isa is not None and isa not in ISA_NAMES:
        raise UsageError(f"{ISA_VARIABLE}={isa} is no instruction set", f"choose one of {', '.join(ISA_NAMES)}")
    return Kernels(library, threads, isa)


def shared_library() -> ctypes.CDLL | None:
    """The compiled library itself, for what needs no thread pool; None where there is none."""
    library, _ = _found()
    return None if library is None else ctypes.CDLL(str(library))


def unavailable_reason() -> str:
    """Why there are no kernels here, or ""."""
    return _found()[1]


def available_isas() -> tuple[str, ...]:
    """The instruction sets that `Kernels` can use on this processor."""
    library, _ = _found()
    if library is None:
        return ()
    lib = ctypes.CDLL(str(library))
    return tuple(name for code, name in enumerate(ISA_NAMES) if lib.st_isa_available(code))


@cache
def _found() -> tuple[Path | None, str]:
    spec = importlib.util.find_spec(f"{__name__}._native")
    if spec is None or spec.origin is None:
        return None, "the C kernels were not built: install a C compiler, then streamoe again"
    try:
        built_abi = ctypes.CDLL(spec.origin).st_abi()
    except OSError as error:
        return None, f"the C kernels cannot be loaded: {error}"
    if built_abi != ABI:
        return None, f"the C kernels were built from other sources (ABI {built_abi}, not {ABI}): install streamoe again"
    return Path(spec.origin), ""
