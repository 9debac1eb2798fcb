"""The names and element sizes of KV formats; pure, for the planner."""

from __future__ import annotations

from typing import Literal

KvFormat = Literal["f32", "f16", "bf16"]
KV_DTYPE_NAMES: dict[KvFormat, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
KV_ELEMENT_BYTES: dict[KvFormat, int] = {"f32": 4, "f16": 2, "bf16": 2}


def kv_format(compute_dtype: str) -> KvFormat:
    """The format that keeps keys and values as they are computed."""
    return "f32" if compute_dtype == "float32" else "bf16"
