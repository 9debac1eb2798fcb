"""Whether the disk has room, lets reads pass the page cache, and is fast enough.

Owns what is measured on, and the judgement. Refuses to know how a measurement is made.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from streamoe_engine.errors import StreamoeError
from streamoe_engine.manifest import Manifest
from streamoe_engine.sizes import GIB, KIB, format_size

from .check import Check, graded
from .disk_probe import SCRATCH_BYTES, Pages, ReadSpeed, measure_files, measure_scratch, scratch_size

# No disk of a supported machine reads faster; a fresh file served from a cache read back at 90 GB/s.
IMPLAUSIBLE_GB_PER_S = 40.0
_SLOW_GB_PER_S = 1.0
_LONG_RECORD_BYTES = 256 * KIB
# A converted 35B model in 4 bits takes 19 GiB.
_ROOM_FOR_A_MODEL = 20 * GIB
_PAGES: tuple[Pages, ...] = ("ordinary", "huge")

Probe = Callable[[], list[ReadSpeed]]


def disk_checks(folder: Path, manifest: Manifest | None, probe: Probe | None = None) -> list[Check]:
    """All checks of the disk group. folder: the model folder when its manifest is given, else where models are kept
    (it need not exist). probe: how to measure; by default the model's own records are read, or a scratch file."""
    place = existing_part(folder)
    free_bytes = shutil.disk_usage(place).free
    source, measure = ("a given probe", probe) if probe else default_probe(place, manifest, free_bytes)
    return [space_check(place, free_bytes, needs_room=manifest is None), *speed_checks(measure, source)]


def default_probe(place: Path, manifest: Manifest | None, free_bytes: int) -> tuple[str, Probe]:
    """What is read, in words, and how. The records of a large model are best: they are cold and lie where they will
    be read. Those of a small one are too few, or so short that a read's start is all that would be measured."""
    experts = manifest.experts if manifest else ()
    record_bytes = max((entry.record.stride_bytes for entry in experts), default=0)
    all_bytes = sum(entry.record.stride_bytes * entry.num_experts for entry in experts)
    if record_bytes >= _LONG_RECORD_BYTES and all_bytes >= SCRATCH_BYTES:
        paths = [place / entry.file for entry in experts]
        return "the model's records", lambda: measure_files(paths, record_bytes)
    num_bytes = scratch_size(free_bytes)
    return f"a fresh file in {place}", lambda: measure_scratch(place, scratch_bytes=num_bytes) if num_bytes else []


def space_check(place: Path, free_bytes: int, needs_room: bool) -> Check:
    """Free space at a path; needs_room: for a model still to be converted."""
    fix = f"free {format_size(max(_ROOM_FOR_A_MODEL - free_bytes, 0))} there, or convert into a folder on another disk"
    short = needs_room and free_bytes < _ROOM_FOR_A_MODEL
    return graded("disk", "free space", f"{format_size(free_bytes)} at {place}", warn=fix if short else "")


def speed_checks(probe: Probe, source: str) -> list[Check]:
    """Run a probe and judge it: whether reads are direct, then a check for each kind of buffer."""
    try:
        speeds = probe()
    except (StreamoeError, OSError) as error:
        cause = error.message if isinstance(error, StreamoeError) else error.strerror or repr(error)
        return [_not_measured(f"{source}: {cause}", "make that place readable and writable, and leave 256 MiB free")]
    if not speeds:
        return [_not_measured("the disk is nearly full", "free some space at that place")]
    by_pages = [(pages, [speed for speed in speeds if speed.pages == pages]) for pages in _PAGES]
    judged = [bandwidth_check(pages, group, source) for pages, group in by_pages if group]
    return [direct_check(all(speed.is_direct for speed in speeds)), *judged]


def direct_check(is_direct: bool) -> Check:
    """Whether the file system reads past its cache, or each read's pages have to be given back afterwards."""
    measured = "past the page cache" if is_direct else "through the page cache, each read given back at once"
    fix = "keep the model on a file system with direct reads, such as ext4, XFS, Btrfs or APFS"
    return graded("disk", "direct reads", measured, warn="" if is_direct else fix)


def bandwidth_check(pages: Pages, speeds: list[ReadSpeed], source: str) -> Check:
    """Speeds of one kind of buffer, by number of readers; implausible ones are told as not measured."""
    fastest = max(speed.gb_per_s for speed in speeds)
    if not 0 < fastest <= IMPLAUSIBLE_GB_PER_S:
        why = f"{fastest:.3g} GB/s from {source} cannot be a disk's, a cache answered"
        return _not_measured(why, "give a model larger than memory, which no cache holds: streamoe doctor MODEL", pages)
    figures = ", ".join(f"{speed.gb_per_s:.2f} GB/s by {speed.num_readers}" for speed in speeds)
    measured = f"{figures} ({source}, {speeds[0].record_bytes} B a read)"
    fix = "keep the model on a faster disk, an internal NVMe one at best: reads bound the speed of answers"
    slow = fastest < _SLOW_GB_PER_S
    return graded("disk", _name(pages), measured, warn=fix if slow else "")


def existing_part(path: Path) -> Path:
    """The path itself, or its nearest parent that is a folder."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _name(pages: Pages) -> str:
    return f"read speed, {pages} pages"


def _not_measured(why: str, fix: str, pages: Pages = "ordinary") -> Check:
    return graded("disk", _name(pages), f"could not be measured: {why}", warn=fix)
