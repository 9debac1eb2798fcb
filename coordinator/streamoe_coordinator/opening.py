"""From flags to a band's options, under the name that commands use; `streamoe_node.opening` owns it."""

from __future__ import annotations

from streamoe_node.flags import parse_layers
from streamoe_node.opening import EMBEDDED_HOT_BYTES, EngineFlags, band_options, smallest_budget

__all__ = ["EMBEDDED_HOT_BYTES", "EngineFlags", "band_options", "parse_layers", "smallest_budget"]
