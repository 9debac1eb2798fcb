"""Finding nodes: mDNS on every interface and addresses named by hand, each looked at by our own questions.

Owns the browser, the asking threads and the watch over interfaces. mDNS only says where to look: a node is there
because it answers. Refuses to know which nodes make a model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

from streamoe_node.errors import ClusterError

from .access import Access
from .node_client import NodeClient
from .places import Place
from .roster import Roster, SeenNode, Sight, Silent

_ASK_TIMEOUT_S = 3.0
_MAX_ASKED_AT_ONCE = 16


class Ask(Protocol):
    """Asks a place who is there."""

    def __call__(self, place: Place, timeout_s: float) -> Sight:
        """Raises ClusterError."""
        ...


class Browser(Protocol):
    """Something that hears announcements."""

    def close(self) -> None:
        """Stop."""
        ...


StartBrowser = Callable[["Discovery"], Browser]


class Discovery:
    """The nodes around, kept up to date by threads of its own. Use as a context manager."""

    def __init__(self, ask: Ask, *, static: Iterable[Place] = (), start_browser: StartBrowser | None = None) -> None:
        self._ask, self._start_browser = ask, start_browser
        self._roster, self._changed = Roster(), threading.Condition()
        self._roster.sight(static, time.monotonic(), is_static=True)
        self._is_closed = False
        self._pool = ThreadPoolExecutor(_MAX_ASKED_AT_ONCE, thread_name_prefix="ask")
        self._thread = threading.Thread(target=self._run, daemon=True, name="discovery")
        self._browser: Browser | None = None

    def start(self) -> Discovery:
        """Begin to look."""
        self._thread.start()
        self._browser = self._start_browser(self) if self._start_browser is not None else None
        return self

    def close(self) -> None:
        """Stop looking; returns within the time of one question."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._browser is not None:
            self._browser.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def sight(self, places: Iterable[Place]) -> None:
        """These places were announced."""
        with self._changed:
            self._roster.sight(places, time.monotonic())
            self._changed.notify_all()

    def hurry(self, places: Iterable[Place]) -> None:
        """These places said farewell, or something changed on the way to them."""
        with self._changed:
            self._roster.hurry(places, time.monotonic())
            self._changed.notify_all()

    def nodes(self) -> tuple[SeenNode, ...]:
        """Who is there now."""
        with self._changed:
            return self._roster.nodes(time.monotonic())

    def silent(self) -> tuple[Silent, ...]:
        """Places that do not answer."""
        with self._changed:
            return self._roster.silent(time.monotonic())

    @property
    def is_settled(self) -> bool:
        """Whether every place known so far has answered or failed once."""
        with self._changed:
            return self._roster.is_settled

    def wait(self, is_enough: Callable[[tuple[SeenNode, ...]], bool], timeout_s: float) -> tuple[SeenNode, ...]:
        """The nodes as soon as they are enough, or when the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            nodes = self.nodes()
            left_s = deadline_s - time.monotonic()
            if is_enough(nodes) or left_s <= 0:
                return nodes
            with self._changed:
                self._changed.wait(min(left_s, 0.5))

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now_s = time.monotonic()
                due = self._roster.take_due(now_s)
                if not due:
                    # `+ 0.005`: a wait for nothing would spin
                    self._changed.wait(self._roster.next_due_s(now_s) - now_s + 0.005)
                    continue
            for place in due:
                self._pool.submit(self._look, place)

    def _look(self, place: Place) -> None:
        sight, why = None, ""
        try:
            sight = self._ask(place, _ASK_TIMEOUT_S)
        except ClusterError as error:
            why = error.message
        with self._changed:
            if sight is not None:
                self._roster.answered(place, sight, time.monotonic())
            else:
                self._roster.failed(place, why, time.monotonic())
            self._changed.notify_all()

    def __enter__(self) -> Discovery:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AskNodes:
    """Asks over gRPC; keeps the channel to each place, so that a question costs one round trip."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clients: dict[Place, NodeClient] = {}
        self._lock = threading.Lock()

    def __call__(self, place: Place, timeout_s: float) -> Sight:
        """Raises ClusterError."""
        client = self._client(place)
        start_s = time.perf_counter()
        try:
            facts = client.facts(timeout_s)
        except ClusterError:
            self._drop(place)
            raise
        return Sight(facts, time.perf_counter() - start_s)

    def close(self) -> None:
        """Close all channels."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _client(self, place: Place) -> NodeClient:
        with self._lock:
            known = self._clients.get(place)
        if known is not None:
            return known
        made = NodeClient(self._access, place)
        with self._lock:
            self._clients[place] = made
        return made

    def _drop(self, place: Place) -> None:
        with self._lock:
            client = self._clients.pop(place, None)
        if client is not None:
            client.close()
