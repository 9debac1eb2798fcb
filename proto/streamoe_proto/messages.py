"""What travels between a coordinator and a node, as plain values.

Owns the vocabulary of a band's stream and of a node's facts. `wire` gives these values their bytes. Refuses to know
gRPC, and what a band computes.

One stream a session and node. The coordinator sends Open first, then Step, Trim, Checkpoint, Cancel and Close; the
node answers Ready first, then Progress, Result, Credit, Checkpointed and Failed. Layers and bands are inclusive here
and half-open on the wire.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

PROTOCOL_MAJOR, PROTOCOL_MINOR = 1, 0
EMPTY_PREFIX = bytes(8)

# What a step's result shall be. "ack": nothing, the state moves on. "top_k": the last token's likeliest words.
StepWant = Literal["ack", "hidden", "top_k", "logits"]

# Why a node did not do what a frame asked. retryable ones leave the session as it was.
FailureCode = Literal[
    "need_replay",  # the state is not where the frame says: send the steps from Failed.from_pos again
    "fenced",  # a newer epoch has taken the session
    "unknown_session",
    "bad_frame",  # lengths, checksum or order are wrong
    "no_room",  # sessions, context or frame size are over the plan
    "draining",
    "wrong_model",  # fingerprint, protocol major, KV format or layers differ
    "cancelled",
    "read_failed",
    "internal",
]


@dataclass(frozen=True, slots=True)
class Open:
    """The first frame. epoch: higher than any that this coordinator's predecessors used for the session.

    position and prefix_hash: where the coordinator believes the state to be; 0 and EMPTY_PREFIX for a new session.
    """

    session: str
    epoch: int
    fingerprint: str
    position: int = 0
    prefix_hash: bytes = EMPTY_PREFIX


@dataclass(frozen=True, slots=True)
class Step:
    """Run the next tokens. seq rises by 1 within (session, epoch), from 1; a repeated last seq returns the kept result.

    inputs: (tokens,) int32 ids for the first band, else (tokens, width) float32. prefix_hash: of the tokens before
    these; next_hash: with these. top_k: how many words "top_k" wants.
    """

    seq: int
    position: int
    inputs: np.ndarray = field(compare=False)
    want: StepWant
    prefix_hash: bytes
    next_hash: bytes
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Trim:
    """Forget all tokens from `position` on. A band that cannot answers Failed("need_replay", from_pos)."""

    position: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Keep a snapshot of the state as it is now, on the node's disk; answered by Checkpointed."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop step `seq` at the next layer; the session is lost unless it had not begun."""

    seq: int


@dataclass(frozen=True, slots=True)
class Close:
    """The session is over: free its state and its snapshots."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is open at `position`. last_seq: the last step done in this epoch. credits: chunks in flight."""

    position: int
    prefix_hash: bytes
    last_seq: int
    credits: int
    max_frame_bytes: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The step is being computed; at least every second."""

    seq: int
    layer: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a step's time went on the node, seconds; read_bytes from its disk, picks and hits of its experts."""

    queue_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0
    read_bytes: int = 0
    picks: int = 0
    hits: int = 0


@dataclass(frozen=True, slots=True)
class TopWords:
    """The k likeliest words: ids (k,) int32, likeliest first, equal ones by id; their logits (k,) float32; and the
    logarithm of the sum of exp over the whole vocabulary's logits.
    """

    ids: np.ndarray
    logits: np.ndarray
    log_sum_exp: float


@dataclass(frozen=True, slots=True)
class Result:
    """Step `seq` is done and the state is at `position`. output: None (ack), hidden states (tokens, width), logits
    (vocabulary,) float32, or TopWords.
    """

    seq: int
    position: int
    output: np.ndarray | TopWords | None = field(compare=False)
    timing: Timing = Timing()


@dataclass(frozen=True, slots=True)
class Credit:
    """`count` more chunks may be in flight."""

    count: int


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A snapshot at `position` is on the node's disk, by this id."""

    position: int
    snapshot_id: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A frame was not carried out. seq 0: not about a step. from_pos: for need_replay, where to begin."""

    code: FailureCode
    message: str
    next_step: str = ""
    seq: int = 0
    from_pos: int = 0
    retryable: bool = False


ToNode = Open | Step | Trim | Checkpoint | Cancel | Close
FromNode = Ready | Progress | Result | Credit | Checkpointed | Failed

NodeState = Literal["loading", "selftest", "ready", "busy", "draining", "degraded", "quarantined", "closed"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One row of a node's plan."""

    name: str
    num_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What GetInfo tells of a node. Layers inclusive. cap_bytes and rows are its plan; canary: the digest of what its
    band makes of a fixed input (docs say which). row_invariant: a token's result does not depend on how many run
    together, bit for bit. speed figures are 0 until measured.
    """

    node_id: str
    boot_id: str
    name: str
    protocol_major: int
    protocol_minor: int
    version: str
    state: NodeState
    family: str
    fingerprint: str
    num_layers: int
    first_layer: int
    last_layer: int
    hidden_size: int
    vocab_size: int
    ctx_tokens: int
    chunk_tokens: int
    max_frame_bytes: int
    kv: str
    compute_dtype: str
    backend: str
    row_invariant: bool
    max_sessions: int
    cap_bytes: int
    footprint_bytes: int
    peak_bytes: int
    plan: tuple[PlanRow, ...] = ()
    canary: str = ""
    token_s: float = 0.0
    read_bytes_per_token: int = 0


def prefix_hash(previous: bytes, tokens: Iterable[int]) -> bytes:
    """The 8-byte hash of a token prefix lengthened by `tokens`: BLAKE2b chained token by token, so that it does not
    depend on how the tokens were cut into steps.
    """
    for token in tokens:
        previous = hashlib.blake2b(previous + struct.pack("<i", token), digest_size=8).digest()
    return previous
