"""The wired limit: within the cap, within the system's own limit, and set back."""

from __future__ import annotations

from streamoe_engine.plan import HostCosts, PlanRequest, make_plan
from streamoe_engine.sizes import GIB, MIB
from streamoe_engine.wired import Gpu, WiredLimit, gpu, wired_bytes
from tests.manifests import qwen36_manifest

HOST = HostCosts(72 * MIB, 66 * MIB, 16 * MIB)
PLAN = make_plan(qwen36_manifest(), PlanRequest(4 * GIB, compute_dtype="bfloat16", kv="bf16"), HOST)


class Limit:
    """What MLX keeps: a limit that can be asked for by setting another."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def set(self, limit: int) -> int:
        before, self.limit = self.limit, limit
        return before


def test_it_is_what_the_plan_gives_to_buffers() -> None:
    wired = wired_bytes(PLAN, Gpu("M9", 64 * GIB))
    assert wired == PLAN.budget_bytes - sum(PLAN.item_bytes(name) for name in ("runtime", "system", "tokenizer"))
    buffers = ("resident weights", "KV cache", "recurrent state", "scratch", "landing slots", "hot tier")
    assert wired == sum(PLAN.item_bytes(name) for name in buffers) < PLAN.budget_bytes


def test_the_system_may_allow_less() -> None:
    assert wired_bytes(PLAN, Gpu("M1", 3 * GIB)) == 3 * GIB


def test_it_is_set_at_open_and_set_back_at_close() -> None:
    mlx = Limit(5 * MIB)
    limit = WiredLimit(PLAN, Gpu("M1", 3 * GIB), mlx.set)
    assert mlx.limit == 3 * GIB
    limit.close()
    assert mlx.limit == 5 * MIB
    mlx.limit = 7
    limit.close()
    assert mlx.limit == 7


def test_a_cpu_wires_nothing() -> None:
    mlx = Limit(5)
    assert gpu() is None
    WiredLimit(PLAN, gpu(), mlx.set).close()
    assert mlx.limit == 5
