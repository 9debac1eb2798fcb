"""Node facts as tests need them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamoe_proto.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR, NodeFacts

MODEL_A, MODEL_B = "a" * 64, "b" * 64


def node(node_id: str, first: int, last: int, num_layers: int = 16, **changes: Any) -> NodeFacts:
    """A ready node with these layers, inclusive."""
    facts = NodeFacts(
        node_id=node_id,
        boot_id=f"boot-{node_id}",
        name=f"{node_id}.local",
        protocol_major=PROTOCOL_MAJOR,
        protocol_minor=PROTOCOL_MINOR,
        version="0.1.0",
        state="ready",
        family="qwen3_moe",
        fingerprint=MODEL_A,
        num_layers=num_layers,
        first_layer=first,
        last_layer=last,
        hidden_size=64,
        vocab_size=100,
        ctx_tokens=4096,
        chunk_tokens=256,
        max_frame_bytes=2**25,
        kv="f32",
        compute_dtype="float32",
        backend="kernels",
        row_invariant=True,
        max_sessions=4,
        cap_bytes=2**30,
        footprint_bytes=2**29,
        peak_bytes=2**29,
        token_s=0.01 * (last - first + 1),
    )
    return replace(facts, **changes)
