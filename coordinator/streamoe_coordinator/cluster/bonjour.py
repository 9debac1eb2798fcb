"""mDNS through python-zeroconf: hears nodes on every interface that is up, also on those that come later.

Owns zeroconf's objects and the watch over interfaces. What it hears are places to look at, no more: a farewell only
makes us look sooner. Refuses to know whether a node is there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceListener, Zeroconf

from streamoe_proto.announcement import SERVICE_TYPE, Announcement

from .discovery import Discovery
from .places import Interface, Place, places_of, up_interfaces

_POLL_S = 2.0
_INFO_TIMEOUT_MS = 3000
_log = logging.getLogger(__name__)


class BonjourBrowser:
    """Hears announcements and tells a Discovery where to look."""

    def __init__(self, discovery: Discovery, interfaces: Callable[[], Sequence[Interface]] = up_interfaces) -> None:
        """Raises OSError when multicast cannot be used at all."""
        self._discovery, self._interfaces = discovery, interfaces
        self._known = tuple(interfaces())
        self._zeroconf = Zeroconf(interfaces=InterfaceChoice.All, ip_version=IPVersion.All)
        self._listener = _Listener(discovery, lambda: self._known)
        self._browser = ServiceBrowser(self._zeroconf, SERVICE_TYPE, self._listener)
        self._is_closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="interfaces")
        self._watcher.start()

    def close(self) -> None:
        """Leave the multicast groups."""
        self._is_closed.set()
        self._watcher.join()
        self._browser.cancel()
        self._zeroconf.close()

    def _watch(self) -> None:
        before = self._known
        while not self._is_closed.wait(_POLL_S):
            now = tuple(self._interfaces())
            # Two equal looks in a row: an interface that comes and goes is left alone until it stays.
            if now == before and now != self._known:
                self._known = now
                self._listen_anew()
            before = now

    def _listen_anew(self) -> None:
        try:
            self._zeroconf.update_interfaces(InterfaceChoice.All, IPVersion.All)
        except (OSError, TimeoutError, RuntimeError) as error:
            _log.warning("listening on changed interfaces failed, what was heard before stays known: %s", error)
            return
        # A new browser asks at once; the old one would ask on the new interface only when its time comes.
        self._browser.cancel()
        self._browser = ServiceBrowser(self._zeroconf, SERVICE_TYPE, self._listener)
        self._listener.again()


class _Listener(ServiceListener):
    def __init__(self, discovery: Discovery, interfaces: Callable[[], Sequence[Interface]]) -> None:
        self._discovery, self._interfaces = discovery, interfaces
        self._heard: dict[str, tuple[list[str], int]] = {}

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        self.update_service(zc, type_, name)

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        info: Any = zc.get_service_info(type_, name, timeout=_INFO_TIMEOUT_MS)
        if info is None or info.port is None or Announcement.from_txt(info.properties) is None:
            return
        self._heard[name] = (info.parsed_addresses(), info.port)
        self._discovery.sight(self._places(name))

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        if name in self._heard:
            self._discovery.hurry(self._places(name))

    def again(self) -> None:
        """Interfaces have changed: the same addresses may be reached by other ways."""
        for name in list(self._heard):
            self._discovery.sight(self._places(name))

    def _places(self, name: str) -> tuple[Place, ...]:
        addresses, port = self._heard[name]
        return places_of(addresses, port, self._interfaces())


def bonjour_if_possible(discovery: Discovery) -> BonjourBrowser | _Silence:
    """A browser; where multicast cannot be used, none, and one line in the log: named addresses work without it."""
    try:
        return BonjourBrowser(discovery)
    except OSError as error:
        _log.warning("no mDNS on this machine (%s): name nodes with --node host:port", error)
        return _Silence()


class _Silence:
    def close(self) -> None:
        pass
