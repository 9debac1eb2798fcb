"""Memory that a GPU uses kept wired, so that macOS does not compress it between two tokens.

Owns how much: what the plan gives to MLX's own buffers, within the cap and within what the system lets a process wire.
Unwired weights ran 43 to 88 times slower near that limit, by others' reports. Refuses to know what the buffers hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from .plan_types import Plan

# Rows of a plan that are not in MLX's buffers.
_OTHERS = ("runtime", "system", "tokenizer")


@dataclass(frozen=True, slots=True)
class Gpu:
    """The device that computes: the most bytes a process should have wired for it."""

    name: str
    max_wired_bytes: int


def gpu() -> Gpu | None:
    """The default device if it is a GPU."""
    if mx.default_device().type != mx.DeviceType.gpu:
        return None
    facts = mx.device_info()
    return Gpu(str(facts["device_name"]), int(facts["max_recommended_working_set_size"]))


def wired_bytes(plan: Plan, device: Gpu) -> int:
    """What to wire of a band: its buffers, at most what the system allows."""
    asked_for = plan.budget_bytes - sum(plan.item_bytes(name) for name in _OTHERS)
    return min(asked_for, device.max_wired_bytes)


class WiredLimit:
    """MLX's wired limit raised for one open band; close() sets it back. Does nothing where no GPU computes."""

    def __init__(self, plan: Plan, device: Gpu | None, set_limit: Callable[[int], int] = mx.set_wired_limit) -> None:
        self._set_limit = set_limit
        self._before = None if device is None else set_limit(wired_bytes(plan, device))

    def close(self) -> None:
        """Set the limit back to what it was."""
        if self._before is not None:
            self._set_limit(self._before)
            self._before = None
