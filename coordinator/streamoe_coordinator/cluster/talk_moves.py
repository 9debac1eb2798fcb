"""Conversations between running bands and files: collected from every node, given to every node.

Owns the order of things; the file's format is saved_talk's, and what a state means the engine's. Refuses to know
sampling and text: a talk's text side passes through as it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from streamoe_engine.band import Band, SequenceState
from streamoe_engine.errors import SnapshotMismatch
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.snapshot_stream import stream_bytes, to_chunks
from streamoe_node.errors import BandLost, FingerprintMismatch, SnapshotUnusable
from streamoe_proto.messages import Checkpointed

from .access import Access
from .chain import Chain
from .node_client import NodeClient, RemoteSnapshot
from .places import parse_place
from .ports import Seat
from .saved_talk import Part, SavedTalk, Talk, write_talk
from .states import ChainState

STORE_S = 120.0


def save_chain_talk(
    path: Path, chain: Chain, state: ChainState, tokens: Sequence[int], talk: dict[str, Any], access: Access
) -> int:
    """Have every node keep the state as it is, fetch it from each, write the file; returns its size in bytes.

    Raises SnapshotUnusable, NodeUnreachable, BandLost; an older file stays then.
    """
    seats = chain.seats
    kept = chain.checkpoint(state)
    parts = [_kept_part(seat, entry, len(tokens), access) for seat, entry in zip(seats, kept, strict=True)]
    facts = seats[0].facts
    return write_talk(path, Talk(facts.fingerprint, facts.family, facts.num_layers, tuple(tokens), talk), parts)


def _kept_part(
    seat: Seat, kept: Checkpointed | None, num_tokens: int, access: Access
) -> tuple[Part, Callable[[], Iterator[bytes]]]:
    if kept is None or kept.position != num_tokens:
        found = "none" if kept is None else f"one after {kept.position} tokens"
        raise SnapshotUnusable(
            f"{seat} was asked for a snapshot after {num_tokens} tokens and kept {found}",
            "look at that node's disk, then save again",
        )
    return Part(*seat.layers, kept.num_bytes), partial(_fetched, seat, kept.snapshot_id, access)


def _fetched(seat: Seat, snapshot_id: str, access: Access) -> Iterator[bytes]:
    with _client(seat, access) as client:
        yield from client.fetch_snapshot(snapshot_id)


def restore_chain_talk(saved: SavedTalk, chain: Chain, access: Access) -> ChainState:
    """Give each node its layers of the state, and open the conversation there.

    Raises FingerprintMismatch for another model's, SnapshotUnusable, NodeUnreachable, BandLost.
    """
    talk, session = saved.talk, uuid.uuid4().hex
    _check_model(talk, chain.seats[0].facts.fingerprint)
    if not talk.tokens:
        return chain.new_state()
    for seat in chain.seats:
        num_bytes, chunks = saved.band_stream(*seat.layers)
        header = RemoteSnapshot("", session, talk.position, talk.prefix_hash, num_bytes, talk.fingerprint)
        with _client(seat, access) as client:
            client.store_snapshot(header, chunks, STORE_S)
    try:
        return chain.adopt_state(session, talk.position, talk.prefix_hash)
    except BandLost as error:
        raise SnapshotUnusable(
            f"the nodes did not take the state: {error.message}",
            "a state needs the same KV format, compute type and backend as where it was saved",
        ) from error


def _client(seat: Seat, access: Access) -> NodeClient:
    return NodeClient(access, parse_place(seat.target.addresses[0]))


def save_band_talk(path: Path, band: Band, state: SequenceState, tokens: Sequence[int], talk: dict[str, Any]) -> int:
    """The same for one band of all layers in this process. The copy of the state is memory beside the plan's rows,
    for as long as the file is written. Raises SnapshotUnusable."""
    snapshot, manifest = band.snapshot(state), band.manifest
    part = Part(0, manifest.num_layers - 1, stream_bytes(snapshot))
    told = Talk(snapshot.fingerprint, manifest.family, manifest.num_layers, tuple(tokens), talk)
    return write_talk(path, told, [(part, lambda: to_chunks(snapshot))])


def restore_band_talk(saved: SavedTalk, band: Band) -> SequenceState:
    """The state in this process. Raises FingerprintMismatch and SnapshotUnusable."""
    _check_model(saved.talk, fingerprint(band.manifest))
    try:
        return band.restore(saved.state(0, band.manifest.num_layers - 1))
    except SnapshotMismatch as error:
        raise SnapshotUnusable(error.message, error.next_step) from error


def _check_model(talk: Talk, wanted: str) -> None:
    if talk.fingerprint != wanted:
        raise FingerprintMismatch(
            f"the conversation is with {talk.family} {talk.fingerprint[:12]}, here is {wanted[:12]}",
            "open the model that it was saved from",
        )
