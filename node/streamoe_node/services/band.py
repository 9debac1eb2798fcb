"""BandService: a coordinator's stream to one session, over gRPC.

Owns each stream's two threads: gRPC's own, which sends what is queued, and one that reads. Refuses to know what frames
mean: bytes become frames in streamoe_proto.wire, and frames go to the core.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator

import grpc

from streamoe_proto import wire
from streamoe_proto.messages import Failed, FromNode, Open

from ..core import Attachment, NodeCore
from .traffic import Traffic

SERVICE = "streamoe_proto.v1.BandService"
OPEN_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)


class BandService:
    """Serves streams. core: None while the band is not open yet."""

    def __init__(self, core: Callable[[], NodeCore | None], traffic: Traffic) -> None:
        self._core, self._traffic = core, traffic
        # Turning bytes into numbers takes copies; the plan has room for one frame at a time each way.
        self._reading, self._writing = threading.Lock(), threading.Lock()

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for grpc.Server.add_generic_rpc_handlers: bytes in, bytes out."""
        run: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self.run, None, None)
        return grpc.method_handlers_generic_handler(SERVICE, {"Run": run})

    def run(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """One stream, from Open to its end."""
        stream = _Stream(self._core, self._traffic, self._reading)
        if not context.add_callback(stream.end):
            return
        reader = threading.Thread(target=stream.read, args=(requests,), daemon=True, name="stream reader")
        reader.start()
        try:
            for frame in stream.frames():
                with self._writing:
                    data = wire.encode_from_node(frame)
                self._traffic.sent(len(data))
                yield data
                del frame, data  # not held while the next one is waited for
        finally:
            stream.close()


class _Stream:
    """What two threads share of a stream."""

    def __init__(self, core: Callable[[], NodeCore | None], traffic: Traffic, reading: threading.Lock) -> None:
        self._core, self._traffic, self._reading = core, traffic, reading
        self._frames: queue.SimpleQueue[FromNode | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._attachment: Attachment | None = None
        self._is_closed = False

    def frames(self) -> Iterator[FromNode]:
        """The frames to send, until the stream's end. A stream that opens nothing ends soon."""
        is_first = True
        while True:
            try:
                frame = self._frames.get(timeout=OPEN_TIMEOUT_S if is_first and self._attachment is None else None)
            except queue.Empty:
                if self._attachment is None:
                    return
                is_first = False
                continue
            is_first = False
            if frame is None:
                return
            yield frame

    def end(self) -> None:
        """Nothing more is to be sent."""
        self._frames.put(None)

    def close(self) -> None:
        """The stream is gone: the session is without a coordinator."""
        with self._lock:
            self._is_closed = True
            attachment = self._attachment
        if attachment is not None:
            attachment.detach()

    def read(self, requests: Iterator[bytes]) -> None:
        """Feed the core with what comes, until nothing does."""
        try:
            for data in requests:
                self._traffic.received(len(data))
                if not self._take(data):
                    break
                del data
        except grpc.RpcError:
            pass  # the peer has gone
        except Exception:
            _log.exception("a stream's reader met an error of our own")
            raise
        finally:
            self.end()

    def _take(self, data: bytes) -> bool:
        """One message; False ends the stream."""
        try:
            with self._reading:
                frame = wire.decode_to_node(data)
        except wire.ProtocolDiffers as error:
            self._frames.put(Failed("wrong_model", str(error), "install the same version of streamoe everywhere"))
            return False
        except wire.WireError as error:
            self._frames.put(Failed("bad_frame", str(error), "send it again", retryable=True))
            return self._attachment is not None
        if self._attachment is not None:
            self._attachment.receive(frame)
            return True
        if not isinstance(frame, Open):
            self._frames.put(Failed("bad_frame", "a stream begins with Open", "open the session first"))
            return False
        return self._open(frame)

    def _open(self, frame: Open) -> bool:
        core = self._core()
        if core is None:
            self._frames.put(Failed("draining", "this node is not ready yet", "try again soon", retryable=True))
            return False
        attachment = core.attach(frame, self._frames.put, self.end)
        with self._lock:
            self._attachment = attachment
            is_late = self._is_closed
        if is_late:  # the stream went while it was being opened
            attachment.detach()
        return attachment.is_live
