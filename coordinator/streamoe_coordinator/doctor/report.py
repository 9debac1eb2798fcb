"""All checks in one order.

Owns which checks are run for what was given. Refuses to print, and to choose exit codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamoe_engine.manifest import Manifest
from streamoe_node.models import models_folder

from .check import Check, graded
from .disk import Probe, disk_checks
from .host import host_checks
from .memory import memory_checks
from .model import hashes_check, manifest_check, sizes_check


def run_checks(
    model_folder: Path | None, budget_bytes: int | None, verify: bool = False, probe: Probe | None = None
) -> list[Check]:
    """Every check of this machine, in about three seconds. The model's are left out without a model folder.

    budget_bytes: the cap that is meant, if any. verify: read all of the model too, and compare its hashes.
    probe: how to measure the disk, None for disk_checks' own way.
    """
    host = host_checks()
    model, manifest = _model_checks(model_folder, verify)
    place = models_folder() if model_folder is None or manifest is None else model_folder
    disk = disk_checks(place, manifest, probe)
    return [*host, *memory_checks(budget_bytes), *disk, *model, *_arithmetic_checks(host)]


def _model_checks(folder: Path | None, verify: bool) -> tuple[list[Check], Manifest | None]:
    # the manifest only of a folder whose files are all there
    if folder is None:
        return [], None
    check, manifest = manifest_check(folder)
    if manifest is None:
        return [check], None
    sizes = sizes_check(folder, manifest)
    hashes = [hashes_check(folder)] if verify and sizes.status == "ok" else []
    return [check, sizes, *hashes], manifest if sizes.status == "ok" else None


def _arithmetic_checks(host: Sequence[Check]) -> list[Check]:
    mlx = next(check for check in host if check.name == "mlx")
    if mlx.status == "fail":
        return [graded("arithmetic", "self-test", "not run, since MLX is not in order", fail=mlx.fix)]
    from .arithmetic import arithmetic_checks

    return arithmetic_checks()
