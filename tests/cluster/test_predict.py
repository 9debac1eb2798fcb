"""Predicted speeds: the best split against brute force, what moves them, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_coordinator.cluster.predict import ModelShape, NodeSpeed, advice, band_prediction, predict
from streamoe_engine.manifest import read_manifest
from streamoe_engine.plan import PlanRequest, resident_bytes
from streamoe_engine.sizes import GIB, MIB

SHAPE = ModelShape((10 * MIB,) * 8, (400 * MIB,) * 8, (12 * MIB,) * 8, 50 * MIB)


def speed(node_id: str = "a", **changes: float) -> NodeSpeed:
    base = NodeSpeed(
        node_id=node_id,
        cap_bytes=1 * GIB,
        fixed_bytes=200 * MIB,
        state_bytes=4 * MIB,
        compute_s=0.004,
        wait_s=1 / 2e9,
        reads_per_miss=1.2,
        hit_power=0.33,
        hop_s=0.001,
    )
    return replace(base, node_id=node_id, **changes)


def brute_force_s(shape: ModelShape, nodes: list[NodeSpeed], num_nodes: int) -> float | None:
    """The shortest token over every choice of nodes, in order, and every cut."""
    times = []
    for chosen in combinations(nodes, num_nodes):
        for cuts in combinations(range(1, shape.num_layers), num_nodes - 1):
            edges = [0, *cuts, shape.num_layers]
            bands = [
                band_prediction(shape, node, a, b - 1) for node, a, b in zip(chosen, edges, edges[1:], strict=False)
            ]
            if all(bands):
                times.append(sum(band.token_s for band in bands if band))
    return min(times, default=None)


speeds = st.builds(
    speed,
    node_id=st.uuids().map(str),
    cap_bytes=st.integers(200, 2000).map(lambda mib: mib * MIB),
    compute_s=st.floats(0.0001, 0.05),
    hop_s=st.floats(0.0, 0.05),
    hit_power=st.floats(0.05, 1.0),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(speeds, min_size=1, max_size=4))
def test_the_best_split_for_each_number_of_nodes(nodes: list[NodeSpeed]) -> None:
    predictions = predict(SHAPE, nodes)
    assert [entry.num_nodes for entry in predictions] == list(range(1, len(nodes) + 1))
    for entry in predictions:
        expected = brute_force_s(SHAPE, nodes, entry.num_nodes)
        assert entry.fits == (expected is not None)
        if expected is None:
            continue
        assert entry.token_s == pytest.approx(expected)
        layers = [layer for band in entry.bands for layer in range(band.first_layer, band.last_layer + 1)]
        assert layers == list(range(SHAPE.num_layers))
        assert len({band.node_id for band in entry.bands}) == entry.num_nodes
    assert len(advice(predictions)) in (1, len(nodes) + 1)


@given(st.integers(300, 4000), st.integers(1, 500))
def test_more_memory_never_reads_more(mib: int, more: int) -> None:
    less = band_prediction(SHAPE, speed(cap_bytes=mib * MIB), 0, 7)
    much = band_prediction(SHAPE, speed(cap_bytes=(mib + more) * MIB), 0, 7)
    if less is not None:
        assert much is not None and much.read_bytes <= less.read_bytes and much.hit_share >= less.hit_share
        assert much.compute_s == less.compute_s


def test_two_nodes_help_on_cable_and_hurt_on_a_slow_link() -> None:
    cable = predict(SHAPE, [speed("a"), speed("b")])
    assert cable[1].tokens_per_s > 1.05 * cable[0].tokens_per_s
    assert "faster than 1 node" in advice(cable)[1] and advice(cable)[-1].startswith("fastest for one conversation: 2")
    slow = predict(SHAPE, [speed("a"), speed("b", hop_s=0.05)])
    one, two, best = advice(slow)
    assert slow[1].tokens_per_s < slow[0].tokens_per_s
    assert "SLOWER than 1 node" in two and "hops cost +50.0 ms" in two
    assert one.startswith("1 node: ") and best.startswith("fastest for one conversation: 1 node,")
    # Yet two conversations at once are served faster by two.
    assert slow[1].all_tokens_per_s > 1.5 * slow[0].all_tokens_per_s


def test_everything_in_memory_gains_nothing_from_another_node() -> None:
    predictions = predict(SHAPE, [speed(name, cap_bytes=8 * GIB, hop_s=0.0003) for name in "ab"])
    assert [band.read_bytes for entry in predictions for band in entry.bands] == [0, 0, 0]
    assert "no faster than 1 node" in advice(predictions)[1]


def test_the_slow_node_with_much_memory_does_not_get_the_biggest_share() -> None:
    fast, big = speed("fast", compute_s=0.002, cap_bytes=600 * MIB), speed("big", compute_s=0.04, cap_bytes=2 * GIB)
    shares = {band.node_id: band.last_layer - band.first_layer + 1 for band in predict(SHAPE, [fast, big])[1].bands}
    assert shares["fast"] > shares["big"]


def test_what_fits_only_together() -> None:
    small = [speed(name, cap_bytes=310 * MIB) for name in "abc"]
    one, two, three = predict(SHAPE, small)
    assert not one.fits and two.fits and three.fits
    assert advice([one, two, three])[0] == "1 node: the model does not fit the cap"
    assert "raise them, or add a node" in advice([one])[0]


def test_the_shape_of_a_real_model(embedded_folder: Path) -> None:
    manifest = read_manifest(embedded_folder)
    request = PlanRequest(1, backend="kernels")
    shape = ModelShape.of(manifest, request)
    last = manifest.num_layers - 1
    for first, end in ((0, last), (0, 3), (5, last), (last, last)):
        resident, experts, picked = shape.between(first, end)
        assert resident == resident_bytes(manifest, request, first, end)
        entries = manifest.experts[first : end + 1]
        assert experts == sum(entry.num_experts * entry.record.stride_bytes for entry in entries)
        assert picked == sum(entry.top_k * entry.record.stride_bytes for entry in entries)
