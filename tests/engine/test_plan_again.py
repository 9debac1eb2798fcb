"""Planning several times in one process: what is slow to find out about a model is found out once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamoe_engine import kernels
from streamoe_engine.band_options import BandOptions, plan_for
from streamoe_engine.checkpoint import convert
from streamoe_engine.layers import kernel_describe, kernel_swap
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import GIB
from tests.checkpoints import write_checkpoint
from tests.tiny_models import TINY_CONFIGS

pytestmark = pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())
ASKED = BandOptions(budget_bytes=GIB, ctx_tokens=64, backend="kernels")


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Configurations whose model was built to see what can run it."""
    built: list[dict[str, Any]] = []
    for module in (kernel_describe, kernel_swap):
        true_build = module.build_model

        def build(config: dict[str, Any], true_build: Any = true_build) -> Any:
            built.append(config)
            return true_build(config)

        monkeypatch.setattr(module, "build_model", build)
    return built


def converted(folder: Path, family: str, **changes: object) -> Path:
    source = write_checkpoint(folder / "source", family, config={**TINY_CONFIGS[family], **changes})
    convert(source, folder / "model")
    return folder / "model"


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_a_model_is_built_once_however_often_it_is_planned(
    family: str, tmp_path: Path, builds: list[dict[str, Any]]
) -> None:
    # A length of its own, so that no other test of this process has asked about this configuration.
    folder = converted(tmp_path / "a", family, max_position_embeddings=4321)
    plans = [plan_for(folder, ASKED) for _ in range(3)]
    assert builds == [json.loads((folder / "config.json").read_text())]
    assert len({plan.backend for plan in plans}) == 1
    other = converted(tmp_path / "b", family, max_position_embeddings=4322)
    plan_for(other, ASKED)
    assert [config["max_position_embeddings"] for config in builds] == [4321, 4322]


def test_a_reason_belongs_to_a_configuration_and_to_how_the_folder_stores_it(tmp_path: Path) -> None:
    folder = converted(tmp_path / "c", "olmoe")
    manifest, config = read_manifest(folder), json.loads((folder / "config.json").read_text())
    stretched = config | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    unsupported = kernel_describe.unsupported_reason
    for _ in range(2):
        assert unsupported(manifest, config) == ""
        assert unsupported(manifest, stretched) == "its rotary positions are scaled"
        assert kernel_swap.swap_reason(manifest, config) == ""
        assert "packed" in kernel_swap.swap_reason(replace(manifest, resident={}), config)
