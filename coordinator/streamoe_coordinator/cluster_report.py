"""What front ends show of several nodes: JSON objects and lines, all from the same values.

Owns the JSON's shape and the lines' wording. Refuses to print, and to ask nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamoe_engine.errors import StreamoeError
from streamoe_engine.sizes import MIB, format_size
from streamoe_proto.messages import NodeFacts

from .cluster.addresses import Measured
from .cluster.assembly import Assembly
from .cluster.assembly_words import missing_layers
from .cluster.predict import ASSUMPTIONS, BandPrediction, Prediction, advice
from .cluster.roster import SeenNode, Silent
from .cluster.splits import BandSplit
from .cluster.verify import Canary
from .edge import SCHEMA, error_json

Addresses = Mapping[str, Sequence[Measured]]


def nodes_json(
    nodes: Sequence[SeenNode],
    silent: Sequence[Silent],
    addresses: Addresses,
    assembly: Assembly | None,
    problem: StreamoeError | None,
) -> dict[str, Any]:
    """Who is there, what is missing, and whether they make a model."""
    return {
        "schema": SCHEMA,
        "complete": assembly is not None,
        "problem": None if problem is None else error_json(problem)["error"],
        "missing_layers": [list(layers) for layers in missing_layers(seen.facts for seen in nodes)],
        "bands": [] if assembly is None else [facts.node_id for facts in assembly.bands],
        "nodes": [_node_json(seen, addresses.get(seen.facts.node_id, ())) for seen in nodes],
        "silent": [{"address": str(s.place), "why": s.why, "named": s.is_static} for s in silent],
    }


def _node_json(seen: SeenNode, measured: Sequence[Measured]) -> dict[str, Any]:
    facts = seen.facts
    return {
        **facts_json(facts),
        "rtt_s": seen.rtt_s,
        "addresses": [_address_json(entry) for entry in measured] or [{"address": str(p)} for p in seen.places],
    }


def facts_json(facts: NodeFacts) -> dict[str, Any]:
    """What a node tells of itself."""
    return {
        "node_id": facts.node_id,
        "boot_id": facts.boot_id,
        "name": facts.name,
        "state": facts.state,
        "version": facts.version,
        "protocol": f"{facts.protocol_major}.{facts.protocol_minor}",
        "family": facts.family,
        "fingerprint": facts.fingerprint,
        "num_layers": facts.num_layers,
        "first_layer": facts.first_layer,
        "last_layer": facts.last_layer,
        "ctx_tokens": facts.ctx_tokens,
        "chunk_tokens": facts.chunk_tokens,
        "max_sessions": facts.max_sessions,
        "kv": facts.kv,
        "compute_dtype": facts.compute_dtype,
        "backend": facts.backend,
        "canary": facts.canary,
        "cap_bytes": facts.cap_bytes,
        "footprint_bytes": facts.footprint_bytes,
        "peak_bytes": facts.peak_bytes,
        "plan": [{"name": row.name, "bytes": row.num_bytes, "why": row.why} for row in facts.plan],
    }


def _address_json(measured: Measured) -> dict[str, Any]:
    speed = measured.speed
    if speed is None:
        return {"address": str(measured.place), "why": measured.why}
    return {"address": str(measured.place), "rtt_s": speed.rtt_s, "bytes_per_s": speed.bytes_per_s}


NODE_COLUMNS = ("node", "id", "layers", "cap", "now", "peak", "rtt", "MiB/s", "state", "address")


def node_row(seen: SeenNode, measured: Sequence[Measured]) -> tuple[str, ...]:
    """A node as NODE_COLUMNS; measured: its addresses, the best first."""
    facts = seen.facts
    best = measured[0] if measured else None
    speed = best.speed if best else None
    return (
        facts.name,
        facts.node_id[:8],
        f"{facts.first_layer}-{facts.last_layer}",
        format_size(facts.cap_bytes),
        format_size(facts.footprint_bytes),
        format_size(facts.peak_bytes),
        f"{(speed.rtt_s if speed else seen.rtt_s) * 1000:.1f} ms",
        f"{speed.bytes_per_s / MIB:.0f}" if speed else "",
        facts.state,
        str(best.place if best else seen.places[0]),
    )


def standing_lines(
    nodes: Sequence[SeenNode], silent: Sequence[Silent], assembly: Assembly | None, problem: StreamoeError | None
) -> list[str]:
    """What a table of nodes does not say."""
    lines = [entry.why for entry in silent]
    models = sorted({(seen.facts.family, seen.facts.fingerprint, seen.facts.num_layers) for seen in nodes})
    lines += [f"model: {family}, {num_layers} layers, fingerprint {root[:16]}" for family, root, num_layers in models]
    if assembly is not None:
        order = " > ".join(f"{facts.name} {facts.first_layer}-{facts.last_layer}" for facts in assembly.bands)
        lines += [str(entry.why.message) for entry in assembly.rejected]
        lines.append(f"complete: {order}")
    elif problem is not None and nodes:
        lines.append(f"not complete: {problem.message}")
        lines += [problem.next_step] if problem.next_step else []
    return lines


# ---- plans


def cluster_plan_json(
    facts: Sequence[NodeFacts], predictions: Sequence[Prediction], canary: Canary, addresses: Addresses
) -> dict[str, Any]:
    """Each node's plan, what was measured, and what 1..N nodes would do."""
    return {
        "schema": SCHEMA,
        "nodes": [
            {**facts_json(node), "addresses": [_address_json(entry) for entry in addresses.get(node.node_id, ())]}
            for node in facts
        ],
        "canary": canary_json(canary),
        "predictions": [_prediction_json(entry) for entry in predictions],
        "advice": list(advice(predictions)),
        "assumptions": list(ASSUMPTIONS),
    }


def canary_json(canary: Canary) -> dict[str, Any]:
    """The end-to-end check's figures."""
    return {
        "tokens": canary.num_tokens,
        "prompt_s": canary.prompt_s,
        "token_s": canary.token_s,
        "digest": canary.digest,
        "prompt_split": [split.as_json() for split in canary.prompt],
    }


def _prediction_json(entry: Prediction) -> dict[str, Any]:
    return {
        "num_nodes": entry.num_nodes,
        "fits": entry.fits,
        "tokens_per_s": entry.tokens_per_s,
        "all_tokens_per_s": entry.all_tokens_per_s,
        "bands": [_band_json(band) for band in entry.bands],
    }


def _band_json(band: BandPrediction) -> dict[str, Any]:
    return {
        "node_id": band.node_id,
        "first_layer": band.first_layer,
        "last_layer": band.last_layer,
        "hit_share": band.hit_share,
        "read_bytes": band.read_bytes,
        "compute_s": band.compute_s,
        "wait_s": band.wait_s,
        "hop_s": band.hop_s,
    }


PREDICTION_COLUMNS = ("nodes", "tok/s", "N chats", "compute", "wait", "hops", "hit", "bands")


def prediction_row(entry: Prediction, names: Mapping[str, str]) -> tuple[str, ...]:
    """A prediction as PREDICTION_COLUMNS; names: by node id."""
    if not entry.fits:
        return (str(entry.num_nodes), "-", "-", "-", "-", "-", "-", "does not fit the caps")
    bands = entry.bands
    layers = sum(band.last_layer - band.first_layer + 1 for band in bands)
    hits = sum(band.hit_share * (band.last_layer - band.first_layer + 1) for band in bands) / layers
    return (
        str(entry.num_nodes),
        f"{entry.tokens_per_s:.2f}",
        f"{entry.all_tokens_per_s:.2f}",
        _ms(sum(band.compute_s for band in bands)),
        _ms(sum(band.wait_s for band in bands)),
        _ms(sum(band.hop_s for band in bands)),
        f"{hits:.0%}",
        ", ".join(f"{names[band.node_id]} {band.first_layer}-{band.last_layer}" for band in bands),
    )


def ready_line(facts: Sequence[NodeFacts], canary: Canary) -> str:
    """What is said once the canary came through."""
    order = " > ".join(f"{node.name} {node.first_layer}-{node.last_layer}" for node in facts)
    return (
        f"ready: {order}; {canary.num_tokens} tokens came through in {canary.prompt_s:.2f} s, "
        f"then {canary.token_s * 1000:.0f} ms a token"
    )


def split_line(splits: Sequence[BandSplit]) -> str:
    """Where the last token's time went, band by band."""
    parts = (
        f"{split.node} {split.layers[0]}-{split.layers[1]}: compute {_ms(split.compute_s)}, wait {_ms(split.wait_s)}, "
        f"queue {_ms(split.queue_s)}, wire {_ms(split.wire_s)}"
        for split in splits
    )
    return " | ".join(parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
