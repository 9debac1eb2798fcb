"""A node is heard of by mDNS on loopback, its state with it, and says farewell."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from zeroconf import ServiceBrowser, ServiceListener, Zeroconf

from streamoe_node.announce import Announcer, reachable_addresses
from streamoe_proto.announcement import SERVICE_TYPE, Announcement

TOLD = Announcement("0123456789abcdef", "b" * 16, 1, "0-7", "loading", "f" * 64, "", False)


class Heard(ServiceListener):
    def __init__(self) -> None:
        self.states: list[str] = []
        self.addresses: set[str] = set()
        self.num_left = 0
        self.changed = threading.Condition()

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        info = zc.get_service_info(type_, name, timeout=3000)
        if info is None or "01234567" not in name:
            return
        told = Announcement.from_txt(info.properties)
        assert told is not None and told.node_id == TOLD.node_id and info.port == 7777
        with self.changed:
            self.states.append(told.state)
            self.addresses |= set(info.parsed_addresses())
            self.changed.notify_all()

    update_service = add_service

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        with self.changed:
            self.num_left += "01234567" in name
            self.changed.notify_all()

    def wait_for(self, what: object) -> None:
        with self.changed:
            assert self.changed.wait_for(what, timeout=20), self.states  # type: ignore[arg-type]


@pytest.fixture
def heard() -> Iterator[Heard]:
    try:
        zeroconf = Zeroconf(interfaces=["127.0.0.1"])
    except OSError as error:
        pytest.skip(f"no multicast on loopback: {error}")
    listener = Heard()
    browser = ServiceBrowser(zeroconf, SERVICE_TYPE, listener)
    yield listener
    browser.cancel()
    zeroconf.close()


def test_node_on_loopback_is_heard_of_there_and_leaves(heard: Heard) -> None:
    announcer = Announcer(TOLD, "mini.local", "127.0.0.1", 7777)
    heard.wait_for(lambda: "loading" in heard.states)
    announcer.tell("ready")
    heard.wait_for(lambda: "ready" in heard.states)
    announcer.tell("busy")
    assert heard.addresses == {"127.0.0.1"}
    announcer.close()
    heard.wait_for(lambda: heard.num_left == 1)
    assert "busy" not in heard.states


def test_closing_at_once_does_not_hang() -> None:
    announcer = Announcer(TOLD, "mini", "127.0.0.1", 7777)
    start_s = time.monotonic()
    announcer.close()
    assert time.monotonic() - start_s < 9


def test_addresses_to_announce() -> None:
    assert reachable_addresses("localhost") == ("127.0.0.1",)
    assert reachable_addresses("192.168.1.20") == ("192.168.1.20",)
    assert reachable_addresses("[fe80::1%eth0]") == ("fe80::1",)
    everywhere = reachable_addresses("0.0.0.0")
    assert everywhere and not any(":" in address for address in everywhere)
    assert everywhere == ("127.0.0.1",) or "127.0.0.1" not in everywhere
