"""What kind of machine and interpreter this is, and whether MLX works in it.

Each check takes what it judges as parameters with this process's own as defaults, so that each can be tried.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path

from streamoe_engine import kernels

from .check import Check, graded

_REINSTALL = "reinstall MLX: pip install --force-reinstall --no-deps mlx mlx-cpu"
# A record file a layer, the resident files, and what the interpreter and a server hold open.
_ENOUGH_FILES = 512
_KERNEL_FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "asimd", "asimddp")


def host_checks() -> list[Check]:
    """All checks of the host group that need no MLX, and whether MLX is there."""
    return [system_check(), processor_check(), python_check(), mlx_check(), kernels_check(), open_files_check()]


def system_check(system: str = platform.system(), release: str = platform.release()) -> Check:
    """Linux and macOS are what the engine has direct reads for."""
    fix = "use Linux, or macOS on Apple Silicon"
    return graded("host", "system", f"{system} {release}", fail="" if system in ("Linux", "Darwin") else fix)


def processor_check(name: str | None = None, flags: frozenset[str] | None = None, machine: str | None = None) -> Check:
    """The processor, and the vector instructions that the CPU kernels gain from."""
    machine = machine or platform.machine()
    name, flags = name or processor_name(), cpu_flags() if flags is None else flags
    usable = [flag for flag in _KERNEL_FLAGS if flag in flags]
    measured = f"{name}, {os.cpu_count()} cores{', ' + ' '.join(usable) if usable else ''}"
    slow = machine in ("x86_64", "AMD64") and not {"avx2", "fma"} <= flags
    return graded(
        "host", "processor", measured, warn="use a processor with AVX2 for several times the speed" if slow else ""
    )


def python_check(
    system: str = sys.platform, machine: str | None = None, version: tuple[int, int] | None = None
) -> Check:
    """The interpreter's version and architecture; on macOS an x86-64 one runs translated and has no Metal."""
    machine, version = machine or platform.machine(), version or sys.version_info[:2]
    translated = system == "darwin" and machine != "arm64"
    measured = f"{platform.python_implementation()} {version[0]}.{version[1]}, {machine}" + (
        ", translated by Rosetta" if translated else ""
    )
    fix = "install Python 3.11 or later" if version < (3, 11) else ""
    return graded("host", "python", measured, fail="install an arm64 Python and streamoe in it" if translated else fix)


def mlx_check(versions: dict[str, str | None] | None = None, system: str = sys.platform) -> Check:
    """MLX imports, on which device it computes, and whether its two Linux packages are of one version."""
    versions = installed_versions("mlx", "mlx-cpu") if versions is None else versions
    listed = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    try:
        import mlx.core as mx
    except ImportError as error:
        return graded("host", "mlx", f"does not import ({error}); {listed}", fail=_REINSTALL)
    device = mx.default_device()
    measured = f"{listed if system == 'linux' else 'mlx ' + str(versions['mlx'])}, computes on {device.type.name}"
    if system == "linux" and versions["mlx"] != versions["mlx-cpu"] and device.type.name == "cpu":
        return graded("host", "mlx", measured, fail=_REINSTALL)
    no_metal = system == "darwin" and device.type.name != "gpu"
    return graded(
        "host", "mlx", measured, warn="use an arm64 Python on macOS 14 or later, for Metal" if no_metal else ""
    )


def kernels_check(reason: str | None = None) -> Check:
    """Whether the C kernels are there, and for which instruction sets; `reason` why not, for tests."""
    reason = kernels.unavailable_reason() if reason is None else reason
    if reason:
        lost = f"{reason}; computing falls back to MLX, ten times slower on x86"
        return graded("host", "C kernels", lost, warn="install a C compiler, then streamoe again")
    return graded("host", "C kernels", f"built for {', '.join(kernels.available_isas())}")


def open_files_check(limit: int | None = None) -> Check:
    """How many files this process may hold open; RLIM_INFINITY is as many as it likes."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    enough = limit == resource.RLIM_INFINITY or limit >= _ENOUGH_FILES
    measured = "no limit" if limit == resource.RLIM_INFINITY else f"{limit} at once"
    return graded("host", "open files", measured, warn="" if enough else "raise the limit first: ulimit -n 4096")


def installed_versions(*names: str) -> dict[str, str | None]:
    """The versions of installed distributions, None for one that is not there."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def processor_name() -> str:
    """What the processor calls itself."""
    if sys.platform == "darwin":
        return sysctl("machdep.cpu.brand_string") or platform.machine()
    match = re.search(r"^(?:model name|CPU part)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match[1] if match else platform.machine()


def cpu_flags() -> frozenset[str]:
    """The instruction sets Linux lists; empty elsewhere."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


def sysctl(name: str) -> str:
    """A kernel setting of macOS as text, "" where it has none of that name."""
    done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""
