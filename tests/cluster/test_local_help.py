"""A band opened beside a chain shares the cap with what the chain keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamoe_coordinator.cluster import local
from streamoe_coordinator.cluster.history import DEFAULT_HISTORY_BYTES
from streamoe_coordinator.local_help import LocalHelp
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import MIB, parse_size
from streamoe_node.opening import EngineFlags
from tests.running import HOST

from .toy_server import toy_facts


@pytest.mark.parametrize(("budget", "history_bytes"), [("400MiB", 25 * MIB), ("2GiB", DEFAULT_HISTORY_BYTES)])
def test_the_plan_has_rows_for_what_the_chain_keeps(
    embedded_folder: Path, budget: str, history_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    # Late in a long run of tests this process is larger than the smaller cap.
    monkeypatch.setattr(local, "host_costs", lambda _: replace(HOST, tokenizer_bytes=9 * MIB))
    manifest = read_manifest(embedded_folder)
    like = replace(
        toy_facts("n", (0, 7), fingerprint=fingerprint(manifest)), ctx_tokens=256, max_frame_bytes=4 * MIB, kv="f32"
    )
    with LocalHelp(EngineFlags(budget, None, None, None, None, threads=1), embedded_folder) as helper:
        facts = helper.open((8, 15), like).facts
        rows = {row.name: row.num_bytes for row in facts.plan}
    assert helper.history_bytes == rows["steps kept for replay"] == history_bytes
    assert rows["frames and gRPC"] > 4 * 4 * MIB
    assert rows["tokenizer"] == 9 * MIB
    assert sum(rows.values()) == facts.cap_bytes == parse_size(budget)
