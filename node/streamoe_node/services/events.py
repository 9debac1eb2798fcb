"""EventsService: once a second, what the node costs beside what it planned, and what it did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import grpc

from streamoe_proto.facts_wire import rows_to_wire, state_to_wire
from streamoe_proto.messages import NodeFacts
from streamoe_proto.v1 import events_pb2, events_pb2_grpc

from ..core import NodeCore
from ..ports import BandCounts
from .traffic import Traffic

PERIOD_S = 1.0


class EventsService(events_pb2_grpc.EventsServiceServicer):
    """Streams events to any number of watchers, until `ending` is set."""

    def __init__(
        self,
        facts: Callable[[], NodeFacts],
        core: Callable[[], NodeCore | None],
        counts: Callable[[], BandCounts],
        traffic: Traffic,
        ending: threading.Event,
    ) -> None:
        self._facts, self._core, self._counts, self._traffic, self._ending = facts, core, counts, traffic, ending
        self._start_s = time.monotonic()

    def Watch(  # noqa: N802 (gRPC's name)
        self, request: events_pb2.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[events_pb2.WatchResponse]:
        """The plan first, then figures each second."""
        last_s, is_first = time.monotonic(), True
        while context.is_active() and (is_first or not self._ending.wait(PERIOD_S)):
            now_s = time.monotonic()
            yield self._event(now_s, now_s - last_s, with_plan=is_first)
            last_s, is_first = now_s, False

    def _event(self, now_s: float, since_s: float, *, with_plan: bool) -> events_pb2.WatchResponse:
        facts, core = self._facts(), self._core()
        counts = self._counts()
        sessions = core.sessions() if core is not None else ()
        return events_pb2.WatchResponse(
            state=state_to_wire(facts.state),
            uptime_ms=round(1000 * (now_s - self._start_s)),
            cap_bytes=facts.cap_bytes,
            footprint_bytes=facts.footprint_bytes,
            peak_bytes=facts.peak_bytes,
            plan=rows_to_wire(facts.plan) if with_plan else [],
            read_bytes=counts.read_bytes,
            picks=counts.picks,
            hits=counts.hits,
            wait_us=round(1e6 * counts.wait_s),
            received_bytes=self._traffic.received_bytes,
            sent_bytes=self._traffic.sent_bytes,
            tokens_run=counts.tokens_run,
            num_sessions=len(sessions),
            num_attached=sum(is_attached for *_, is_attached in sessions),
            since_last_ms=round(1000 * since_s),
        )
