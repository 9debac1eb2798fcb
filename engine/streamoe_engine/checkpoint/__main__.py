"""A conversion from the shell, for measurements: python -m streamoe_engine.checkpoint SRC DST [auto|keep]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ..errors import StreamoeError
from ..sizes import format_size
from . import ConvertOptions, convert


def main(arguments: list[str]) -> int:
    """Exit status: 0, or that of the error that was printed."""
    source, target, *rest = arguments
    start = time.monotonic()
    try:
        options = ConvertOptions(quantize="keep" if rest == ["keep"] else "auto")
        manifest = convert(Path(source), Path(target), options)
    except StreamoeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    seconds = time.monotonic() - start
    total = sum(entry.num_bytes for entry in manifest.files.values())
    print(f"{format_size(total)} in {seconds:.2f} s: {total / seconds / 1e9:.3f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
