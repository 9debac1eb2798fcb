"""A file exposed as a read-only block device with a read-ahead of its own.

Owns the loop device: direct, so that the file is not cached twice, and gone with this process in every case. Needs
root, and Linux. Read-ahead decides how fast a mapped file is under a memory limit, and a file on a disk has the
disk's, which is not ours to change.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECTOR_BYTES = 4096


class LoopDeviceFailed(RuntimeError):
    """The device cannot be had; the text says why and what to do."""


@contextmanager
def loop_device(file: Path, read_ahead_kb: int) -> Iterator[Path]:
    """The path of a block device with the file's content. Raises LoopDeviceFailed."""
    num_bytes = file.stat().st_size
    if num_bytes % SECTOR_BYTES:
        raise LoopDeviceFailed(
            f"{file} has {num_bytes} B, no multiple of {SECTOR_BYTES}, and a loop device would cut the rest off: "
            f"pad it with `truncate -s %{SECTOR_BYTES} {file}`, which GGUF allows, or use --bare-file"
        )
    device = Path(_losetup("--find", "--show", "--read-only", "--direct-io=on", str(file)))
    try:
        fd = os.open(device, os.O_RDONLY)
    finally:
        # While it is open, detaching only marks it: it goes when the last process closes it, even if killed.
        _losetup("--detach", str(device))
    try:
        _configure(device, read_ahead_kb)
        yield device
    finally:
        os.close(fd)


def disk_of(path: Path) -> Path | None:
    """The queue settings of the disk that a file or a block device is on, or None where there is no single one."""
    status = path.stat()
    number = status.st_rdev or status.st_dev
    node = Path("/sys/dev/block", f"{os.major(number)}:{os.minor(number)}").resolve()
    # A partition has no queue of its own, its disk one level up has.
    return next((place / "queue" for place in (node, node.parent) if (place / "queue").is_dir()), None)


def read_ahead_kb(path: Path) -> int | None:
    """The read-ahead in KiB of the disk that a file or a block device is on."""
    queue = disk_of(path)
    return int((queue / "read_ahead_kb").read_text()) if queue else None


def _configure(device: Path, wanted_kb: int) -> None:
    node = Path("/sys/block", device.name)
    if (node / "loop" / "dio").read_text().strip() != "1":
        raise LoopDeviceFailed(f"the kernel made {device} without direct I/O: put the file on ext4 or XFS")
    (node / "queue" / "read_ahead_kb").write_text(str(wanted_kb))


def _losetup(*arguments: str) -> str:
    try:
        done = subprocess.run(["losetup", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LoopDeviceFailed("losetup is missing: install util-linux, or use --bare-file") from error
    if done.returncode:
        raise LoopDeviceFailed(f"losetup {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
