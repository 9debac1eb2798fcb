"""Frames to bytes and back: exact, checked, and every damage noticed."""

from __future__ import annotations

import contextlib
from dataclasses import fields, is_dataclass
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamoe_proto import wire
from streamoe_proto.channel_options import MAX_FRAME_BYTES, client_options, server_options
from streamoe_proto.facts_wire import facts_from_wire, facts_to_wire
from streamoe_proto.messages import (
    EMPTY_PREFIX,
    Cancel,
    Checkpoint,
    Checkpointed,
    Close,
    Credit,
    Failed,
    NodeFacts,
    Open,
    PlanRow,
    Progress,
    Ready,
    Result,
    Step,
    Timing,
    TopWords,
    Trim,
    prefix_hash,
)
from streamoe_proto.v1 import band_pb2

COUNTS = st.integers(0, 2**31 - 1)
SEQS = st.integers(1, 2**63)
BYTES = st.integers(0, 2**63)
HASHES = st.binary(min_size=8, max_size=8)
TEXTS = st.text(max_size=30)
FLOATS = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 5)))
TOKENS = hnp.arrays(np.int32, st.integers(1, 9))
WANTS = st.sampled_from(("ack", "hidden", "top_k", "logits"))
TO_NODE = st.one_of(
    st.builds(Open, st.text(min_size=1, max_size=50), BYTES, TEXTS, COUNTS, HASHES),
    st.builds(Step, SEQS, COUNTS, st.one_of(FLOATS, TOKENS), WANTS, HASHES, HASHES, st.integers(0, 1000)),
    st.builds(Trim, COUNTS),
    st.builds(Cancel, BYTES),
    st.just(Checkpoint()),
    st.just(Close()),
)
TIMINGS = st.builds(Timing, *[st.integers(0, 10**9).map(lambda us: us / 1e6)] * 3, BYTES, BYTES, BYTES)
TOP = st.builds(
    lambda ids, noise: TopWords(ids, np.resize(noise, len(ids)).astype(np.float32), float(noise[0, 0])),
    TOKENS,
    hnp.arrays(np.float32, (1, 4), elements=st.floats(-9, 9, width=32)),
)
OUTPUTS = st.one_of(st.none(), FLOATS, hnp.arrays(np.float32, st.integers(1, 9)), TOP)
CODES = st.sampled_from(sorted(wire._CODES))
FROM_NODE = st.one_of(
    st.builds(Ready, COUNTS, HASHES, BYTES, st.integers(0, 99), BYTES),
    st.builds(Progress, BYTES, st.integers(-1, 999), BYTES),
    st.builds(Result, SEQS, COUNTS, OUTPUTS, TIMINGS),
    st.builds(Credit, st.integers(0, 99)),
    st.builds(Checkpointed, COUNTS, TEXTS, BYTES),
    st.builds(Failed, CODES, TEXTS, TEXTS, BYTES, COUNTS, st.booleans()),
)


def same(one: Any, other: Any) -> bool:
    """Equal, arrays bit for bit."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and (one.shape, one.dtype) == (other.shape, other.dtype)
            and one.tobytes() == other.tobytes()
        )
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    return bool(one == other)


@given(TO_NODE)
def test_frames_to_a_node_come_back_the_same(frame: Any) -> None:
    assert same(wire.decode_to_node(wire.encode_to_node(frame)), frame)


@given(FROM_NODE)
def test_frames_from_a_node_come_back_the_same(frame: Any) -> None:
    assert same(wire.decode_from_node(wire.encode_from_node(frame)), frame)


@settings(max_examples=300)
@given(st.one_of(TO_NODE.map(wire.encode_to_node), FROM_NODE.map(wire.encode_from_node)), st.data())
def test_a_flipped_bit_or_a_lost_byte_is_noticed(encoded: bytes, data: st.DataObject) -> None:
    damaged = bytearray(encoded)
    at = data.draw(st.integers(0, len(encoded) - 1))
    if data.draw(st.booleans()):
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del damaged[at:]
    for decode in (wire.decode_to_node, wire.decode_from_node):
        with pytest.raises(wire.WireError):
            decode(bytes(damaged))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_wire_error(data: bytes) -> None:
    sealed = data + b"\x7d" + google_crc32c.value(data).to_bytes(4, "little")
    for encoded in (data, sealed):
        for decode in (wire.decode_to_node, wire.decode_from_node):
            with contextlib.suppress(wire.WireError):
                decode(encoded)


def sealed(request: band_pb2.RunRequest) -> bytes:
    return wire._sealed(request)


def test_lengths_kinds_and_numbers_are_checked() -> None:
    def step(**changes: Any) -> bytes:
        given: dict[str, Any] = {
            "seq": 1, "want": band_pb2.WANT_ACK, "prefix_hash": bytes(8), "next_hash": bytes(8),
            "inputs": band_pb2.Numbers(kind=band_pb2.KIND_TOKENS, rows=2, columns=1, data=bytes(8)),
        }  # fmt: skip
        return sealed(band_pb2.RunRequest(step=band_pb2.Step(**{**given, **changes})))

    def numbers(**given: Any) -> dict[str, Any]:
        return {"inputs": band_pb2.Numbers(**given)}

    assert isinstance(wire.decode_to_node(step()), Step)
    for changes, sentence in (
        (numbers(kind=band_pb2.KIND_TOKENS, rows=3, columns=1, data=bytes(8)), "3 x 1 numbers take 12 B, 8 B came"),
        (numbers(kind=band_pb2.KIND_TOKENS, rows=1, columns=2, data=bytes(8)), "columns"),
        (numbers(kind=band_pb2.KIND_HIDDEN, rows=1 << 31, columns=1 << 31, data=bytes(8)), "8 B came"),
        (numbers(kind=band_pb2.KIND_LOGITS, rows=1, columns=2, data=bytes(8)), "kind"),
        ({"seq": 0}, "at least 1"),
        ({"want": 77}, "not known"),
        ({"prefix_hash": b"short"}, "8 bytes"),
        ({"position": 1 << 40}, "cannot be"),
    ):
        with pytest.raises(wire.WireError, match=sentence):
            wire.decode_to_node(step(**changes))
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.decode_to_node(bytes(MAX_FRAME_BYTES + 1))


def test_another_protocol_is_told_apart() -> None:
    open_ = band_pb2.Open(session="s", protocol_major=2, protocol_minor=3, prefix_hash=bytes(8))
    with pytest.raises(wire.ProtocolDiffers, match=r"the peer speaks protocol 2.3, this one 1\.0"):
        wire.decode_to_node(sealed(band_pb2.RunRequest(open=open_)))


def test_numbers_are_little_endian_on_the_wire() -> None:
    data = wire.encode_to_node(Step(1, 0, np.array([1, 2], ">i4"), "ack", EMPTY_PREFIX, EMPTY_PREFIX))
    assert b"\x01\x00\x00\x00\x02\x00\x00\x00" in data


def test_prefix_hash_does_not_depend_on_the_cut() -> None:
    whole = prefix_hash(EMPTY_PREFIX, [1, 2, 3])
    assert whole == prefix_hash(prefix_hash(EMPTY_PREFIX, [1]), [2, 3]) != prefix_hash(EMPTY_PREFIX, [1, 3, 2])


def test_facts_come_back_the_same() -> None:
    facts = NodeFacts(
        "id", "boot", "mini", 1, 0, "0.1", "busy", "qwen", "f" * 64, 40, 20, 39, 2048, 248320, 4096, 256, 1 << 24,
        "f32", "float32", "kernels", True, 4, 4 << 30, 1 << 30, 2 << 30, (PlanRow("hot tier", 5, "rest"),), "c", 0.1, 7,
    )  # fmt: skip
    info = facts_to_wire(facts)
    assert facts_from_wire(info) == facts and (info.layers.first, info.layers.end) == (20, 40)
    info.layers.end = 41
    with pytest.raises(wire.WireError, match="cannot be"):
        facts_from_wire(info)


def test_both_ends_agree_on_pings_and_sizes() -> None:
    client, server = dict(client_options()), dict(server_options(4 << 20))
    interval_ms = server["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert interval_ms <= client["grpc.keepalive_time_ms"] and server["grpc.http2.max_ping_strikes"] == 0
    waits_ms = [client[f"grpc.{name}"] for name in ("keepalive_timeout_ms", "http2.ping_timeout_ms")]
    assert client["grpc.keepalive_time_ms"] + max(waits_ms) <= 15_000
    assert server["grpc.max_receive_message_length"] >= 4 << 20
    assert client["grpc.max_receive_message_length"] >= MAX_FRAME_BYTES
    assert server["grpc.so_reuseport"] == 0 and client["grpc.enable_http_proxy"] == 0
