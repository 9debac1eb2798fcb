"""A conversion from the shell, for measurements: python -m streamoe_engine.checkpoint SRC DST [auto|keep]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ..errors import StreamoeError, UsageError
from ..sizes import format_size
from . import ConvertOptions, convert


def main(arguments: list[str]) -> int:
    """Exit status: 0, or that of the error that was printed."""
    start = time.monotonic()
    try:
        source, target, options = _parsed(arguments)
        manifest = convert(source, target, options)
    except StreamoeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    seconds = time.monotonic() - start
    total = sum(entry.num_bytes for entry in manifest.files.values())
    print(f"{format_size(total)} in {seconds:.2f} s: {total / seconds / 1e9:.3f} GB/s")
    return 0


def _parsed(arguments: list[str]) -> tuple[Path, Path, ConvertOptions]:
    match arguments:
        case [source, target]:
            return Path(source), Path(target), ConvertOptions()
        case [source, target, ("auto" | "keep") as quantize]:
            return Path(source), Path(target), ConvertOptions(quantize=quantize)
    raise UsageError("two folders are needed", "python -m streamoe_engine.checkpoint SRC DST [auto|keep]")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
