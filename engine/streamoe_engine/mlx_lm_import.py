"""mlx-lm's model classes, imported past its package `__init__`.

Importing `mlx_lm` itself lowers this process's limit of open files and pulls in transformers (83 to 277 MB);
its submodules alone cost 23 MB. This module registers a bare package first, and is the only one that names mlx-lm.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from typing import Any

if sys.platform == "linux":
    # On the CPU, mx.compile starts a C++ compiler at the first call (+4.9 s) into a folder with a
    # predictable name, for the same speed and the same bits (docs/lab-log.md).
    os.environ.setdefault("MLX_DISABLE_COMPILE", "1")


def _register_bare_package() -> None:
    if "mlx_lm" in sys.modules:
        return
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None and spec.submodule_search_locations is not None, "mlx-lm is a declared dependency"
    package = types.ModuleType("mlx_lm")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["mlx_lm"] = package


def submodule(name: str) -> Any:
    """The mlx-lm submodule `name`, such as "models.cache". Raises ImportError where mlx-lm has none."""
    _register_bare_package()
    return importlib.import_module(f"mlx_lm.{name}")


switch_layers = submodule("models.switch_layers")
cache = submodule("models.cache")
base = submodule("models.base")
