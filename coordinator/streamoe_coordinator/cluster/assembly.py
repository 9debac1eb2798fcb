"""Which nodes make the model: bands that tile its layers exactly, of one model, and who could stand in for each.

Owns the choice. Pure: facts in, an Assembly or a typed error out. Refuses to know how facts were got, and addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamoe_node.errors import ClusterError, NodesDoNotTile
from streamoe_proto.messages import PROTOCOL_MINOR, NodeFacts

from .assembly_words import (
    advice,
    layers_of,
    missing_layers,
    named,
    other_format,
    other_model,
    overlapping,
    range_text,
    same_id,
    several_models,
    unfit,
)

BandSeconds = Callable[[NodeFacts], float]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A node that is not considered, and the error that says why."""

    facts: NodeFacts
    why: ClusterError


@dataclass(frozen=True, slots=True)
class Assembly:
    """The chosen nodes in layer order.

    replicas: for each chosen node's id, others with the very same layers, the better first. spares: compatible nodes
    that are neither. band_s: the predicted seconds of a token, all bands and hops. minor: the protocol's minor
    version that all of them speak.
    """

    bands: tuple[NodeFacts, ...]
    replicas: Mapping[str, tuple[NodeFacts, ...]]
    spares: tuple[NodeFacts, ...]
    rejected: tuple[Rejected, ...]
    token_s: float
    minor: int

    @property
    def first(self) -> NodeFacts:
        """The node that embeds."""
        return self.bands[0]

    @property
    def ctx_tokens(self) -> int:
        """The context that every band has room for."""
        return min(band.ctx_tokens for band in self.bands)

    @property
    def chunk_tokens(self) -> int:
        """The most tokens at once for which every band has room."""
        return min(band.chunk_tokens for band in self.bands)


def assemble(
    nodes: Iterable[NodeFacts], *, fingerprint: str | None = None, band_s: BandSeconds = lambda facts: facts.token_s
) -> Assembly:
    """The best tiling of layers 0 to the last by whole bands: least predicted time, then node ids in layer order.

    fingerprint: only nodes of this model (a prefix will do); None: whichever model is there, if it is one.
    band_s: predicted seconds of a token in a node's band, its hop included.
    Raises DuplicateNode, ProtocolMismatch, NodeNotReady, FingerprintMismatch and NodesDoNotTile, each with the nodes
    and layers.
    """
    usable, rejected = _screen(nodes)
    by_model: dict[tuple[str, str], list[NodeFacts]] = defaultdict(list)
    for facts in usable:
        if fingerprint is None or facts.fingerprint.startswith(fingerprint):
            by_model[facts.fingerprint, facts.kv].append(facts)
        else:
            rejected.append(Rejected(facts, other_model(facts, fingerprint)))
    tilings = {model: tiling for model, group in by_model.items() if (tiling := _best_tiling(group, band_s))}
    if len({model for model, _ in tilings}) > 1:
        raise several_models([tiling[0] for tiling in tilings.values()])
    if not tilings:
        raise _why_none(usable, rejected, by_model)
    model = min(tilings, key=lambda key: _cost(tilings[key], band_s))
    rejected += [
        Rejected(facts, other_format(facts, tilings[model][0]))
        for other, group in by_model.items()
        if other != model
        for facts in group
    ]
    return _assembly(tilings[model], by_model[model], rejected, band_s)


def _screen(nodes: Iterable[NodeFacts]) -> tuple[list[NodeFacts], list[Rejected]]:
    """Nodes that may take part, one entry each, in order of their ids; and the others."""
    by_id: dict[str, dict[str, NodeFacts]] = defaultdict(dict)
    for facts in nodes:
        by_id[facts.node_id][facts.boot_id] = facts
    usable: list[NodeFacts] = []
    rejected: list[Rejected] = []
    for _, boots in sorted(by_id.items()):
        twins = [boots[boot] for boot in sorted(boots)]
        for facts in twins:
            why = same_id(twins) if len(twins) > 1 else unfit(facts)
            if why is None:
                usable.append(facts)
            else:
                rejected.append(Rejected(facts, why))
    return usable, rejected


def _best_tiling(group: Sequence[NodeFacts], band_s: BandSeconds) -> tuple[NodeFacts, ...] | None:
    """From the last layer backwards: the best way to cover layer..last, for each layer that a band begins with."""
    num_layers = group[0].num_layers
    best: dict[int, tuple[float, tuple[str, ...], tuple[NodeFacts, ...]]] = {num_layers: (0.0, (), ())}
    for facts in sorted(group, key=lambda node: -node.first_layer):
        after = best.get(facts.last_layer + 1)
        if after is None:
            continue
        candidate = (band_s(facts) + after[0], (facts.node_id, *after[1]), (facts, *after[2]))
        known = best.get(facts.first_layer)
        if known is None or candidate[:2] < known[:2]:
            best[facts.first_layer] = candidate
    return best[0][2] if 0 in best else None


def _cost(tiling: Sequence[NodeFacts], band_s: BandSeconds) -> tuple[float, tuple[str, ...]]:
    # Added from the last layer on, as _best_tiling does: floats must agree to the bit.
    total = 0.0
    for facts in reversed(tiling):
        total = band_s(facts) + total
    return total, tuple(facts.node_id for facts in tiling)


def _assembly(
    tiling: tuple[NodeFacts, ...], group: Sequence[NodeFacts], rejected: Sequence[Rejected], band_s: BandSeconds
) -> Assembly:
    chosen = {facts.node_id for facts in tiling}
    others = sorted((f for f in group if f.node_id not in chosen), key=lambda f: (band_s(f), f.node_id))
    replicas = {band.node_id: tuple(f for f in others if layers_of(f) == layers_of(band)) for band in tiling}
    standing_in = {facts.node_id for twins in replicas.values() for facts in twins}
    return Assembly(
        bands=tiling,
        replicas=replicas,
        spares=tuple(facts for facts in others if facts.node_id not in standing_in),
        rejected=tuple(rejected),
        token_s=_cost(tiling, band_s)[0],
        minor=min(PROTOCOL_MINOR, *(facts.protocol_minor for facts in tiling)),
    )


# ---- why there is none


def _why_none(
    usable: Sequence[NodeFacts], rejected: Sequence[Rejected], by_model: Mapping[tuple[str, str], Sequence[NodeFacts]]
) -> ClusterError:
    if not by_model:
        return (
            rejected[0].why if rejected else NodesDoNotTile("no node", "start streamoe-node, or name one with --node")
        )
    mixed = _would_tile_if_one_model(usable, by_model)
    if mixed is not None:
        return mixed
    # The model that lacks least is the one that was meant.
    group = min(by_model.values(), key=lambda nodes: (_num_missing(nodes), -len(nodes), nodes[0].fingerprint))
    gaps, overlaps = missing_layers(group), overlapping(group)
    num_layers = group[0].num_layers
    parts = []
    if gaps:
        layers = ", ".join(map(range_text, gaps))
        parts.append(f"layers {layers} of 0-{num_layers - 1} are on no node")
    if overlaps:
        parts.append("; ".join(f"{named(a)} and {named(b)} overlap" for a, b in overlaps))
    parts += [entry.why.message for entry in rejected if entry.facts.fingerprint == group[0].fingerprint]
    return NodesDoNotTile("; ".join(parts), advice(gaps, overlaps))


def _would_tile_if_one_model(
    usable: Sequence[NodeFacts], by_model: Mapping[tuple[str, str], Sequence[NodeFacts]]
) -> ClusterError | None:
    same_depth = [facts for facts in usable if facts.num_layers == usable[0].num_layers]
    tiling = _best_tiling(same_depth, lambda _: 0.0) if len(by_model) > 1 else None
    if tiling is None:
        return None
    odd = next(f for f in tiling if (f.fingerprint, f.kv) != (tiling[0].fingerprint, tiling[0].kv))
    return other_format(odd, tiling[0])


def _num_missing(nodes: Sequence[NodeFacts]) -> int:
    return sum(last - first + 1 for first, last in missing_layers(nodes))
