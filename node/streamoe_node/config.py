"""The user's configuration file: what `streamoe bench tune` found best on this machine, defaults for the engine.

Owns the file and its keys. Flags and environment variables go before it; nothing in it changes a token.
Refuses to know how the values are measured and used.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from streamoe_engine.errors import UsageError

KEYS: dict[str, type] = {"guess": str, "guess_width": int, "reader_threads": int}


def config_file() -> Path:
    """Where it is, or would be."""
    return platformdirs.user_config_path("streamoe") / "config.toml"


def read_config() -> dict[str, Any]:
    """Keys and values, none when there is no file. Raises UsageError for a file that cannot be meant."""
    path = config_file()
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unusable(path, str(error)) from error
    for key, value in values.items():
        if key not in KEYS:
            raise _unusable(path, f"'{key}' is not one of {', '.join(KEYS)}")
        if type(value) is not KEYS[key]:
            raise _unusable(path, f"{key} = {value!r} is no {KEYS[key].__name__}")
    return values


def write_config(values: dict[str, Any]) -> Path:
    """Set these keys, keep the others; returns the file. Raises UsageError when it cannot be written."""
    path = config_file()
    lines = [f"{key} = {_toml(value)}" for key, value in (read_config() | values).items()]
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text("\n".join(["# Written by `streamoe bench tune`.", *lines, ""]), encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "check its folder's permissions") from error
    return path


def _toml(value: Any) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not usable: {why}", "correct or delete it; `streamoe bench tune` writes it anew")
