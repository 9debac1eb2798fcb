"""Model folders, under the name that commands use; `streamoe_node.models` owns them, for nodes need them too."""

from __future__ import annotations

from streamoe_node.models import (
    EMBEDDED_BUDGET,
    embedded_checkpoint,
    embedded_target,
    is_checkpoint_folder,
    is_converted,
    models_folder,
    resolve_model,
)

__all__ = [
    "EMBEDDED_BUDGET",
    "embedded_checkpoint",
    "embedded_target",
    "is_checkpoint_folder",
    "is_converted",
    "models_folder",
    "resolve_model",
]
