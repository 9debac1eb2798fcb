"""The words for why nodes do not make a model: each names the nodes, the layers and the next step.

Owns the sentences and how layers are written. Pure. Refuses to know how bands are chosen (assembly.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamoe_node.errors import (
    ClusterError,
    DuplicateNode,
    FingerprintMismatch,
    NodeNotReady,
    NodesDoNotTile,
    ProtocolMismatch,
)
from streamoe_proto.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR, NodeFacts

_USABLE = ("ready", "busy")
_ON_THE_WAY = ("loading", "selftest")


def named(facts: NodeFacts) -> str:
    """How a node is called in messages: "mini (02d46671, layers 0-19)"."""
    return f"{facts.name} ({facts.node_id[:8]}, layers {range_text(layers_of(facts))})"


def missing_layers(nodes: Iterable[NodeFacts]) -> tuple[tuple[int, int], ...]:
    """Layers, as inclusive ranges, that no node covers; of the model with the most layers there. () for no nodes."""
    facts = list(nodes)
    num_layers = max((node.num_layers for node in facts), default=0)
    covered = {layer for node in facts for layer in range(node.first_layer, node.last_layer + 1)}
    return tuple(_ranges(layer for layer in range(num_layers) if layer not in covered))


def layers_of(facts: NodeFacts) -> tuple[int, int]:
    """First and last layer, both included."""
    return facts.first_layer, facts.last_layer


def unfit(facts: NodeFacts) -> ClusterError | None:
    """Why a node cannot take part, whatever the others are; None where it can."""
    if facts.protocol_major != PROTOCOL_MAJOR:
        return ProtocolMismatch(
            f"node {named(facts)} speaks protocol {facts.protocol_major}.{facts.protocol_minor} (streamoe "
            f"{facts.version}), this coordinator {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}",
            "install the same version of streamoe on both machines",
        )
    if facts.state not in _USABLE:
        wait = "wait for it" if facts.state in _ON_THE_WAY else "start it again, or another node with these layers"
        return NodeNotReady(f"node {named(facts)} is {facts.state}", wait)
    if not 0 <= facts.first_layer <= facts.last_layer < facts.num_layers:
        return NodesDoNotTile(
            f"node {named(facts)} says it has layers {facts.first_layer}-{facts.last_layer} of {facts.num_layers}",
            "start it with --layers within the model",
        )
    return None


def same_id(twins: Sequence[NodeFacts]) -> DuplicateNode:
    """Two processes with one id."""
    where = " and ".join(f"{facts.name} (started as {facts.boot_id[:8]})" for facts in twins)
    return DuplicateNode(
        f"{len(twins)} running nodes have the id {twins[0].node_id}: {where}; none of them is used",
        "a copied home folder gives two machines one id: on one of them delete nodes.json in streamoe's configuration "
        "folder and start the node again",
    )


def other_model(facts: NodeFacts, fingerprint: str) -> FingerprintMismatch:
    """A node of another model than the one that is wanted."""
    return FingerprintMismatch(
        f"node {named(facts)} has the model {facts.fingerprint[:12]}, {fingerprint[:12]} is wanted",
        "start it with the same model folder, or choose its model with --fingerprint",
    )


def other_format(facts: NodeFacts, chosen: NodeFacts) -> ClusterError:
    """A node of another model, or of another KV format, than the chosen one."""
    if facts.fingerprint != chosen.fingerprint:
        return other_model(facts, chosen.fingerprint)
    return FingerprintMismatch(
        f"node {named(facts)} keeps keys and values as {facts.kv}, the others as {chosen.kv}",
        f"start it with --kv {chosen.kv}",
    )


def several_models(firsts: Sequence[NodeFacts]) -> FingerprintMismatch:
    """More than one model is whole: the user has to choose."""
    models = {facts.fingerprint: facts for facts in firsts}
    told = " and ".join(f"{f.family} {key[:12]} (on {f.name})" for key, f in sorted(models.items()))
    return FingerprintMismatch(f"whole models on these nodes: {told}", "choose one with --fingerprint")


def advice(gaps: Sequence[tuple[int, int]], overlaps: Sequence[tuple[NodeFacts, NodeFacts]]) -> str:
    """The next step for gaps, or else for overlaps."""
    if gaps:
        first, last = gaps[0]
        return f"start a node for them: streamoe-node --layers {range_text((first, last))} --budget ..."
    before, after = overlaps[0]
    if after.last_layer > before.last_layer:
        layers = f"{before.last_layer + 1}-{after.last_layer}"
        return f"bands run whole: start {after.name} with --layers {layers}"
    return f"bands run whole: stop {after.name}, or start it with layers that begin where another band ends"


def overlapping(group: Sequence[NodeFacts]) -> list[tuple[NodeFacts, NodeFacts]]:
    """Neighbours by their first layer that share some layers, though not all of them."""
    ordered = sorted(group, key=lambda facts: (layers_of(facts), facts.node_id))
    return [
        (a, b)
        for number, a in enumerate(ordered)
        for b in ordered[number + 1 :]
        if b.first_layer <= a.last_layer and layers_of(a) != layers_of(b)
    ]


def range_text(layers: tuple[int, int]) -> str:
    """Layers as people type them: "0-19", or "7"."""
    return str(layers[0]) if layers[0] == layers[1] else f"{layers[0]}-{layers[1]}"


def _ranges(layers: Iterable[int]) -> Iterable[tuple[int, int]]:
    start = previous = None
    for layer in layers:
        if previous is None or start is None or layer != previous + 1:
            if previous is not None and start is not None:
                yield start, previous
            start = layer
        previous = layer
    if previous is not None and start is not None:
        yield start, previous
