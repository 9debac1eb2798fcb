"""Addresses as they are typed and announced."""

from __future__ import annotations

import pytest

from streamoe_coordinator.cluster.places import Interface, Place, parse_place, places_of, up_interfaces
from streamoe_engine.errors import UsageError


@pytest.mark.parametrize(
    ("text", "place", "is_loopback"),
    [
        ("127.0.0.1:7650", Place("127.0.0.1", 7650), True),
        (" mini.local:1 ", Place("mini.local", 1), False),
        ("localhost:80", Place("localhost", 80), True),
        ("[::1]:65535", Place("::1", 65535), True),
        ("[fe80::1%en0]:7650", Place("fe80::1%en0", 7650), False),
        ("[fe80::1%25en0]:7650", Place("fe80::1%en0", 7650), False),
    ],
)
def test_good_forms(text: str, place: Place, is_loopback: bool) -> None:
    assert parse_place(text) == place
    assert place.is_loopback == is_loopback
    assert parse_place(str(place)) == place == parse_place(place.grpc_target)


@pytest.mark.parametrize(
    "text",
    ["", "mini", "mini:", ":7650", "mini:x", "mini:0", "mini:70000", "::1:7650", "[mini]:7650", "[::1]", "[fe80::1]:1"],
)
def test_bad_forms_fail_at_once(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_place(text)
    assert error.value.next_step


def test_link_local_addresses_are_tried_on_each_interface() -> None:
    """Two cables: mDNS tags both fe80 addresses with one interface, wrongly for one of them."""
    interfaces = [
        Interface("en0", 1, ("192.168.1.5", "fe80::aa")),
        Interface("en1", 2, ("fe80::bb",)),
        Interface("lo", 3, ("127.0.0.1", "::1")),
    ]
    places = places_of(["192.168.1.20", "fe80::20%1", "fe80::21", "fe80::20%2", "nonsense"], 7, interfaces)
    assert places == (
        Place("192.168.1.20", 7),
        Place("fe80::20%en0", 7),
        Place("fe80::20%en1", 7),
        Place("fe80::21%en0", 7),
        Place("fe80::21%en1", 7),
    )


def test_this_machine_has_a_loopback() -> None:
    assert any("127.0.0.1" in interface.addresses for interface in up_interfaces())
