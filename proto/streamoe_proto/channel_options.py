"""gRPC's options, the same table for both ends, with the reasons.

Owns every number that must agree between a coordinator and a node. Pure: no gRPC is imported.

A peer that stops answering is noticed after keepalive time + timeout, 15 s at most; `ping_timeout_ms` must be set too,
for its default of 60 s holds the call longer. The server allows pings at that pace, or it would cut idle streams.
"""

from __future__ import annotations

MAX_FRAME_BYTES = 32 * 1024 * 1024
# gRPC's own limit lies above ours, so that a frame that is too large gets our sentence and not the stream's end.
MAX_MESSAGE_BYTES = MAX_FRAME_BYTES + 64 * 1024
# What a message has beside its numbers.
FRAME_OVERHEAD_BYTES = 1024
CHUNK_BYTES = 1024 * 1024

KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S = 10.0, 5.0
Options = list[tuple[str, int]]

_BOTH: Options = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", int(1000 * KEEPALIVE_TIME_S)),
    ("grpc.keepalive_timeout_ms", int(1000 * KEEPALIVE_TIMEOUT_S)),
    ("grpc.http2.ping_timeout_ms", int(1000 * KEEPALIVE_TIMEOUT_S)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.default_compression_algorithm", 0),
]


def client_options() -> Options:
    """Options of a channel. A proxy variable must not capture links on the local network."""
    return [
        *_BOTH,
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.enable_http_proxy", 0),
        # One TCP connection a channel: streams of two channels must not wait for one another.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def server_options(max_frame_bytes: int = MAX_FRAME_BYTES) -> Options:
    """Options of a server; it refuses messages larger than its plan has room for before it makes room for them.

    Two nodes must not share a port silently.
    """
    receive = max(CHUNK_BYTES, min(max_frame_bytes, MAX_FRAME_BYTES)) + 64 * 1024
    both = [(name, receive if name == "grpc.max_receive_message_length" else value) for name, value in _BOTH]
    return [
        *both,
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]
