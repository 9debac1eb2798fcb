"""Each node lives within its own cap by the kernel's count, while long prompts of several coordinators pass through."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from streamoe_engine.sizes import format_size
from tests.cgroup import Cgroup, unavailable_reason
from tests.e2e.cluster.machines import LONG, SHORT, Cluster, addresses_of, chat_alone, chat_over

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cgroup,
    pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or ""),
]
CTX, FRAME_TOKENS = 2560, 2048
SHAPE = ("--ctx", CTX, "--step-tokens", FRAME_TOKENS)
LONGER = f"{LONG} And then it went on. " * 4
BANDS = ("0-7", "8-15")


@pytest.mark.parametrize("budget", ["smallest", "600MiB"])
def test_nodes_keep_to_their_caps(cluster: Cluster, embedded_folder: Path, tmp_path: Path, budget: str) -> None:
    caps = [cluster.smallest_budget(band, *SHAPE) if budget == "smallest" else 600 << 20 for band in BANDS]
    prompts = (LONG, LONGER, LONG + SHORT)
    alone = [chat_alone(embedded_folder, tmp_path / "alone", "900MiB", prompt, 12, CTX) for prompt in prompts]
    assert all(a["usage"]["prompt_tokens"] > size for a, size in zip(alone, (512, 2048, 512), strict=True))
    with ExitStack() as things:
        groups = [things.enter_context(Cgroup(None)) for _ in BANDS]
        nodes = [
            cluster.start(band, f"n{band}", "--budget", f"{cap}B", *SHAPE, argv=group.command([]))
            for band, cap, group in zip(BANDS, caps, groups, strict=True)
        ]
        for node in nodes:
            node.event("ready")
        home = tmp_path / "coordinator"
        askings = [things.enter_context(chat_over(addresses_of(nodes), home, prompt, 12)) for prompt in prompts]
        assert [asking.tokens() for asking in askings] == [answer["token_ids"] for answer in alone]
        for cap, group in zip(caps, groups, strict=True):
            memory = group.memory()
            print(f"peak {format_size(memory.peak_bytes)} of {format_size(cap)}")
            assert memory.oom_kills == 0 and memory.peak_bytes <= cap, (memory, cap)
