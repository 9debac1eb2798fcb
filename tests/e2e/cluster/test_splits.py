"""The same words from one process and from any split over several, whatever their caps, one at a time or together."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.cluster.conftest import Alone
from tests.e2e.cluster.machines import LONG, SHORT, Cluster, addresses_of, chat_over, sessions_of

TWO, THREE = ("0-7", "8-15"), ("0-4", "5-10", "11-15")
FIVE = ("0-2", "3-5", "6-9", "10-12", "13-15")
ROOMY = "400MiB"
PROMPTS = (SHORT, "Explain gravity to a child.", LONG)


def size_of(cluster: Cluster, band: str, budget: str) -> str:
    return f"{cluster.smallest_budget(band)}B" if budget == "smallest" else budget


def test_two_nodes_say_what_one_process_says(cluster: Cluster, alone: Alone, home: Path) -> None:
    nodes = addresses_of(cluster.start_ready(TWO, "--budget", ROOMY))
    with chat_over(nodes, home, LONG, 12) as long, chat_over(nodes[::-1], home, SHORT, 12) as short:
        assert (long.tokens(), short.tokens()) == (alone(LONG, 12), alone(SHORT, 12))


@pytest.mark.slow
@pytest.mark.parametrize("bands", [TWO, ("0-0", "1-15"), ("0-14", "15-15"), THREE, FIVE], ids="+".join)
@pytest.mark.parametrize("budget", ["smallest", "300MiB", "700MiB"])
def test_every_split_and_cap(cluster: Cluster, alone: Alone, home: Path, bands: tuple[str, ...], budget: str) -> None:
    nodes = [cluster.start(band, f"n{band}", "--budget", size_of(cluster, band, budget)) for band in bands]
    for node in nodes:
        node.event("ready")
    for prompt in PROMPTS:
        with chat_over(addresses_of(nodes), home, prompt, 16) as asking:
            answer = asking.answer()
            assert answer["token_ids"] == alone(prompt, 16), asking.stderr
            assert [(node["first_layer"], node["last_layer"]) for node in answer["nodes"]] == [
                tuple(map(int, band.split("-"))) for band in bands
            ]
            assert all(node["peak_bytes"] <= node["cap_bytes"] for node in answer["nodes"])


@pytest.mark.slow
@pytest.mark.parametrize("bands", [TWO, THREE, FIVE], ids="+".join)
@pytest.mark.parametrize("budget", ["smallest", ROOMY])
def test_coordinators_at_once(cluster: Cluster, alone: Alone, home: Path, bands: tuple[str, ...], budget: str) -> None:
    """Three coordinators over the same nodes: their sessions take turns, and each gets its own words."""
    nodes = [cluster.start(band, f"n{band}", "--budget", size_of(cluster, band, budget)) for band in bands]
    for node in nodes:
        node.event("ready")
    addresses = addresses_of(nodes)
    most_at_once = 0
    with ExitStack() as running:
        askings = [running.enter_context(chat_over(addresses, home, prompt, 64)) for prompt in PROMPTS]
        sessions = running.enter_context(sessions_of(addresses[-1]))
        while not all(asking.is_over for asking in askings):
            most_at_once = max(most_at_once, sum(is_attached for _, _, is_attached in sessions()))
            time.sleep(0.02)
        assert [asking.tokens() for asking in askings] == [alone(prompt, 64) for prompt in PROMPTS]
    assert most_at_once > 1, "they did not meet"
