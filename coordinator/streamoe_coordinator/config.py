"""The user's configuration file, under the name that commands use; `streamoe_node.config` owns it."""

from __future__ import annotations

from streamoe_node.config import KEYS, config_file, read_config, write_config

__all__ = ["KEYS", "config_file", "read_config", "write_config"]
