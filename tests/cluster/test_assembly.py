"""Which nodes make the model: against brute force, and each refusal by its words."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.cluster.assembly import Assembly, assemble
from streamoe_coordinator.cluster.assembly_words import missing_layers
from streamoe_node.errors import (
    DuplicateNode,
    FingerprintMismatch,
    NodeNotReady,
    NodesDoNotTile,
    ProtocolMismatch,
)
from streamoe_proto.messages import NodeFacts
from tests.cluster.facts import MODEL_A, MODEL_B, node

LAYERS = 6


def ids(assembly: Assembly) -> list[str]:
    return [facts.node_id for facts in assembly.bands]


def brute_force(nodes: list[NodeFacts]) -> list[str] | None:
    """Every subset that tiles, the cheapest, then the smallest ids in layer order. Times are whole numbers."""
    best: tuple[float, list[str]] | None = None
    for size in range(1, len(nodes) + 1):
        for subset in combinations(nodes, size):
            ordered = sorted(subset, key=lambda facts: facts.first_layer)
            layers = [layer for facts in ordered for layer in range(facts.first_layer, facts.last_layer + 1)]
            if layers == list(range(LAYERS)):
                candidate = (sum(facts.token_s for facts in ordered), [facts.node_id for facts in ordered])
                best = candidate if best is None or candidate < best else best
    return None if best is None else best[1]


@st.composite
def some_nodes(draw: st.DrawFn) -> list[NodeFacts]:
    nodes = []
    for number in range(draw(st.integers(1, 8))):
        first = draw(st.integers(0, LAYERS - 1))
        last = draw(st.integers(first, LAYERS - 1))
        nodes.append(node(f"n{number}", first, last, LAYERS, token_s=float(draw(st.integers(1, 4)))))
    return draw(st.permutations(nodes))


@given(some_nodes())
def test_as_brute_force_chooses(nodes: list[NodeFacts]) -> None:
    expected = brute_force(nodes)
    if expected is None:
        with pytest.raises(NodesDoNotTile) as error:
            assemble(nodes)
        covered = {layer for facts in nodes for layer in range(facts.first_layer, facts.last_layer + 1)}
        assert ("on no node" in error.value.message) == (len(covered) < LAYERS)
        assert len(covered) < LAYERS or "overlap" in error.value.message
        assert error.value.next_step
        return
    assembly = assemble(nodes)
    assert ids(assembly) == expected
    assert assembly.token_s == sum(facts.token_s for facts in assembly.bands)
    # Everyone is accounted for once.
    replicas = [facts for band in assembly.bands for facts in assembly.replicas[band.node_id]]
    everyone = [*assembly.bands, *replicas, *assembly.spares]
    assert sorted(facts.node_id for facts in everyone) == sorted(facts.node_id for facts in nodes)
    for band in assembly.bands:
        twins = assembly.replicas[band.node_id]
        assert all((t.first_layer, t.last_layer) == (band.first_layer, band.last_layer) for t in twins)
        assert [t.token_s for t in twins] == sorted(t.token_s for t in twins)


@given(some_nodes())
def test_missing_layers_are_those_that_nobody_has(nodes: list[NodeFacts]) -> None:
    covered = {layer for facts in nodes for layer in range(facts.first_layer, facts.last_layer + 1)}
    ranges = missing_layers(nodes)
    assert {layer for first, last in ranges for layer in range(first, last + 1)} == set(range(LAYERS)) - covered
    assert all(after[0] > before[1] + 1 for before, after in pairwise(ranges))


def test_gaps_and_overlaps_are_named() -> None:
    with pytest.raises(NodesDoNotTile, match="layers 8-15 of 0-15 are on no node") as error:
        assemble([node("a", 0, 7)])
    assert "--layers 8-15" in error.value.next_step
    with pytest.raises(NodesDoNotTile, match=r"layers 0-2, 8, 15 of 0-15"):
        assemble([node("a", 3, 7), node("b", 9, 14)])
    with pytest.raises(
        NodesDoNotTile, match=r"a\.local \(a, layers 0-9\) and b\.local \(b, layers 8-15\) overlap"
    ) as error:
        assemble([node("a", 0, 9), node("b", 8, 15)])
    assert "start b.local with --layers 10-15" in error.value.next_step


def test_the_better_of_two_tilings() -> None:
    whole, first, second = node("z", 0, 15, token_s=0.5), node("a", 0, 7, token_s=0.2), node("b", 8, 15, token_s=0.2)
    assert ids(assemble([whole, first, second])) == ["a", "b"]
    # A hop that costs more than the second machine saves.
    assert ids(assemble([whole, first, second], band_s=lambda f: f.token_s + 0.11)) == ["z"]


def test_two_nodes_with_one_id_are_both_out() -> None:
    twins = [node("a", 0, 7), node("a", 0, 7, boot_id="other", name="clone.local")]
    with pytest.raises(NodesDoNotTile) as none:
        assemble([*twins, node("b", 8, 15)])
    assert "2 running nodes have the id a" in none.value.message
    with pytest.raises(DuplicateNode, match=r"clone\.local"):
        assemble(twins)
    assembly = assemble([*twins, node("b", 8, 15), node("c", 0, 7)])
    assert ids(assembly) == ["c", "b"]
    assert [type(entry.why) for entry in assembly.rejected] == [DuplicateNode, DuplicateNode]
    # Heard of twice, it is still one node.
    assert ids(assemble([node("a", 0, 7), node("a", 0, 7), node("b", 8, 15)])) == ["a", "b"]


def test_models_are_not_mixed() -> None:
    with pytest.raises(FingerprintMismatch, match="bbbbbbbbbbbb") as error:
        assemble([node("a", 0, 7), node("b", 8, 15, fingerprint=MODEL_B)])
    assert error.value.next_step
    with pytest.raises(FingerprintMismatch, match="keeps keys and values as f16"):
        assemble([node("a", 0, 7), node("b", 8, 15, kv="f16")])
    both = [node("a", 0, 15), node("b", 0, 15, fingerprint=MODEL_B)]
    with pytest.raises(FingerprintMismatch, match="whole models"):
        assemble(both)
    assert ids(assemble(both, fingerprint=MODEL_B[:8])) == ["b"]
    only = assemble([*both, node("c", 0, 15)], fingerprint=MODEL_A)
    assert ids(only) == ["a"] and [entry.facts.node_id for entry in only.rejected] == ["b"]
    with pytest.raises(FingerprintMismatch, match="cccc is wanted"):
        assemble(both, fingerprint="cccc")


def test_one_whole_model_among_pieces_of_another_is_taken() -> None:
    assembly = assemble([node("a", 0, 15), node("b", 0, 7, fingerprint=MODEL_B)])
    assert ids(assembly) == ["a"]
    assert [type(entry.why) for entry in assembly.rejected] == [FingerprintMismatch]


def test_both_formats_of_keys_whole() -> None:
    nodes = [node("a", 0, 15, kv="f16", token_s=0.1), node("b", 0, 15, token_s=0.2)]
    assert ids(assemble(nodes)) == ["a"]


@pytest.mark.parametrize("state", ["loading", "selftest", "draining", "degraded", "quarantined", "closed"])
def test_only_ready_nodes_take_part(state: str) -> None:
    with pytest.raises(NodeNotReady, match=f"a.*is {state}"):
        assemble([node("a", 0, 15, state=state)])
    with pytest.raises(NodesDoNotTile, match=f"layers 8-15.*is {state}"):
        assemble([node("a", 0, 7), node("b", 8, 15, state=state)])
    assert ids(assemble([node("a", 0, 15, state="busy")])) == ["a"]


def test_another_major_version() -> None:
    with pytest.raises(ProtocolMismatch, match=r"protocol 9\.0") as error:
        assemble([node("a", 0, 15, protocol_major=9)])
    assert "same version" in error.value.next_step
    assert assemble([node("a", 0, 15, protocol_minor=7)]).minor == 0


def test_no_nodes_and_nodes_that_lie() -> None:
    with pytest.raises(NodesDoNotTile, match="no node"):
        assemble([])
    with pytest.raises(NodesDoNotTile, match="says it has layers 0-16 of 16"):
        assemble([node("a", 0, 16)])


def test_the_smallest_plan_counts() -> None:
    assembly = assemble([node("a", 0, 7, ctx_tokens=512), node("b", 8, 15, chunk_tokens=32)])
    assert (assembly.ctx_tokens, assembly.chunk_tokens, assembly.first.node_id) == (512, 32, "a")
