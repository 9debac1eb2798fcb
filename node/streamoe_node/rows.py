"""What serving costs beside the band: the rows of the plan that a node adds, and the frame size they allow.

Owns the formulas, each held against a measured peak (tests/node/test_cap.py). Pure. Per session a stream may hold one
frame on its way in, `credits` steps queued or running, the kept result, and one frame on its way out; and one frame at
a time in the node is being turned from bytes to numbers or back, which takes three copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamoe_engine.manifest import Manifest
from streamoe_engine.plan import snapshot_bytes
from streamoe_engine.plan_types import PlanRequest
from streamoe_engine.sizes import MIB, format_size
from streamoe_proto.channel_options import FRAME_OVERHEAD_BYTES, MAX_FRAME_BYTES

# gRPC's threads and buffers and zeroconf's sockets, measured with 4 streams open (docs/lab-log.md).
GRPC_BYTES = 12 * MIB
DEFAULT_MAX_SESSIONS, DEFAULT_CREDITS = 4, 2
_CONVERTING = 3
_SNAPSHOT_CHUNKS_BYTES = 2 * MIB  # two chunks on their way between disk and network
_MOST_STEP_TOKENS, FEWEST_STEP_TOKENS = 2048, 64
_MOST_SHARE = 12  # left to itself, a node gives frames at most this part of its cap


@dataclass(frozen=True, slots=True)
class Network:
    """What a node grants: sessions, steps in flight a session, the tokens of one step."""

    max_sessions: int = DEFAULT_MAX_SESSIONS
    credits: int = DEFAULT_CREDITS
    step_tokens: int = _MOST_STEP_TOKENS


def frame_bytes(manifest: Manifest, step_tokens: int) -> int:
    """The numbers of the largest frame: hidden states of so many tokens, or a row of logits where that is larger."""
    largest = max(4 * manifest.hidden_size * step_tokens, 4 * manifest.vocab_size)
    return min(largest, MAX_FRAME_BYTES - FRAME_OVERHEAD_BYTES)


def network_rows(
    manifest: Manifest, request: PlanRequest, network: Network, supervisor_bytes: int = 0
) -> tuple[tuple[str, int], ...]:
    """(name, bytes) of each row, for BandOptions.extra_bytes. request: its layers, context and KV format count."""
    frame, sessions = frame_bytes(manifest, network.step_tokens) + FRAME_OVERHEAD_BYTES, network.max_sessions
    return (
        ("frames in flight", frame * (sessions * (network.credits + 2) + 2 * _CONVERTING)),
        ("kept results", frame * sessions),
        ("snapshot buffer", snapshot_bytes(manifest, request, request.ctx_tokens) + _SNAPSHOT_CHUNKS_BYTES),
        ("gRPC and mDNS", GRPC_BYTES),
        *([("supervising parent", supervisor_bytes)] if supervisor_bytes else []),
    )


def row_reasons(manifest: Manifest, network: Network) -> dict[str, str]:
    """Why each row has its size, in words."""
    frame, sessions = format_size(frame_bytes(manifest, network.step_tokens)), network.max_sessions
    return {
        "frames in flight": f"{sessions} sessions with {network.credits} steps each, {frame} a frame",
        "kept results": f"the last of each of {sessions} sessions",
        "snapshot buffer": "one session at full context, being saved or loaded",
        "gRPC and mDNS": "threads and sockets, measured",
        "supervising parent": "the process that watches this one, measured now",
    }


def default_step_tokens(manifest: Manifest, request: PlanRequest, network: Network) -> int:
    """The tokens of one step that a cap has room for: as many as the context, while frames stay a small part of it."""
    most = min(_MOST_STEP_TOKENS, request.ctx_tokens)
    tokens = most
    frames = network.max_sessions * (network.credits + 3) + 2 * _CONVERTING
    while tokens > FEWEST_STEP_TOKENS and frames * frame_bytes(manifest, tokens) > request.budget_bytes // _MOST_SHARE:
        tokens //= 2
    return tokens
