"""One stream of steps over gRPC, as the chain needs it: send without waiting, receive with a deadline.

Owns the stream, its reading thread and its gRPC channel. That the stream died is all that counts; how gRPC calls it is
only told. Frames become bytes in streamoe_proto.wire. Refuses to know addresses.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import grpc

from streamoe_proto.messages import FromNode, Open, ToNode
from streamoe_proto.wire import WireError, decode_from_node, encode_to_node

from .ports import ChannelLost, ChannelTimeout

RUN = "/streamoe_proto.v1.BandService/Run"
# A closed stream may take so long to bring its last frames out; then it is cut.
LINGER_S = 2.0


@dataclass(frozen=True, slots=True)
class _Lost:
    cause: str


class GrpcChannel:
    """A Channel. It closes the gRPC channel it was given; on_gone is called when nothing of it is left."""

    def __init__(
        self, channel: grpc.Channel, opening: Open, on_gone: Callable[[GrpcChannel], None] = lambda _: None
    ) -> None:
        self._channel, self._on_gone = channel, on_gone
        self._to_send: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._received: queue.SimpleQueue[bytes | _Lost] = queue.SimpleQueue()
        self._lost: _Lost | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._linger: threading.Timer | None = None
        self.gone = threading.Event()
        self._to_send.put(encode_to_node(opening))
        run: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(RUN, None, None)
        # No deadline on the stream: it lives as long as its session. Each wait on it has one.
        self._call = run(self._requests())
        threading.Thread(target=self._read, daemon=True, name="stream of a band").start()

    def send(self, frame: ToNode) -> None:
        """Queue a frame for gRPC's sending thread. Raises ChannelLost."""
        if self._is_closed or self._lost is not None:
            raise ChannelLost(self._lost.cause if self._lost else "the stream is closed")
        self._to_send.put(encode_to_node(frame))

    def receive(self, timeout_s: float) -> FromNode:
        """The next frame. Raises ChannelTimeout and ChannelLost."""
        if self._is_closed or self._lost is not None:
            raise ChannelLost(self._lost.cause if self._lost else "the stream is closed")
        try:
            item = self._received.get(timeout=timeout_s)
        except queue.Empty:
            raise ChannelTimeout from None
        if isinstance(item, _Lost):
            self._lost = item
            raise ChannelLost(item.cause)
        try:
            return decode_from_node(item)
        except WireError as error:
            self._lost = _Lost(f"a damaged frame came: {error}")
            raise ChannelLost(self._lost.cause) from None

    @property
    def is_lost(self) -> bool:
        """Whether the stream has died."""
        return self._lost is not None or self.gone.is_set()

    def close(self) -> None:
        """Let what is queued go out, then end. Never blocks."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._to_send.put(None)
            self._received.put(_Lost("the stream is closed"))
            if not self.gone.is_set():
                self._linger = threading.Timer(LINGER_S, self._call.cancel)
                self._linger.daemon = True
                self._linger.start()

    def _requests(self) -> Iterator[bytes]:
        while (data := self._to_send.get()) is not None:
            yield data

    def _read(self) -> None:
        cause = "the node ended the stream"
        try:
            for data in self._call:
                self._received.put(data)
        except grpc.RpcError as error:
            call = cast(Any, error)  # every error of a call is one, though its class does not say so
            cause = f"the stream died: {(call.details() or str(call.code())).rpartition(': ')[2].strip()}"
        finally:
            self._received.put(_Lost(cause))
            self._to_send.put(None)
            with self._lock:
                self.gone.set()
                if self._linger is not None:
                    self._linger.cancel()
            self._channel.close()
            self._on_gone(self)
