"""One network by two interfaces, and bridges that could close a ring; what systems list is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamoe_coordinator.cluster.places import Interface
from streamoe_coordinator.doctor.links import Bridge, bridges_of_ifconfig, bridges_of_sysfs, link_checks

CABLE = Interface("en0", 4, ("192.168.1.5",), ("192.168.1.0/24", "2001:db8::/64"))
WIFI = Interface("en1", 5, ("192.168.1.6",), ("192.168.1.0/24",))
OTHER = Interface("en5", 9, ("10.0.0.2",), ("10.0.0.0/8",))

IFCONFIG = """\
lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384
\tinet 127.0.0.1 netmask 0xff000000
en1: flags=8963<UP,BROADCAST,SMART,RUNNING,PROMISC,SIMPLEX,MULTICAST> mtu 1500
\tether 36:aa:00:00:00:00
\tmedia: autoselect <full-duplex>
\tstatus: active
en2: flags=8963<UP,BROADCAST,SMART,RUNNING,PROMISC,SIMPLEX,MULTICAST> mtu 1500
\tstatus: active
en3: flags=8963<UP,BROADCAST,SMART,RUNNING,PROMISC,SIMPLEX,MULTICAST> mtu 1500
\tstatus: inactive
bridge0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500
\tether 36:aa:00:00:00:00
\tConfiguration:
\t\tid 0:0:0:0:0:0 priority 0 hellotime 0 fwddelay 0
\tmember: en1 flags=3<LEARNING,DISCOVER>
\t        ifmaxaddr 0 port 6 priority 0 path cost 0
\tmember: en2 flags=3<LEARNING,DISCOVER>
\t        ifmaxaddr 0 port 7 priority 0 path cost 0
\tmember: en3 flags=3<LEARNING,DISCOVER>
\t        ifmaxaddr 0 port 8 priority 0 path cost 0
\tstatus: active
"""


def test_a_network_by_two_interfaces_is_named_with_both() -> None:
    (check,) = link_checks([CABLE, WIFI, OTHER], [])
    assert (check.status, check.name) == ("warn", "networks")
    assert "192.168.1.0/24 by en0 and en1" in check.measured
    assert "Wi-Fi" in check.fix


@pytest.mark.parametrize(
    "interfaces",
    [
        [CABLE, OTHER],
        [],
        [CABLE, Interface("en0:1", 4, ("192.168.1.7",), ("192.168.1.0/24",))],
        # Two cables without addresses of a network: each its own, reached by fe80.
        [Interface("en1", 5, ("169.254.1.1", "fe80::1")), Interface("en2", 6, ("169.254.2.1", "fe80::2"))],
    ],
)
def test_networks_by_one_interface_each_are_well(interfaces: list[Interface]) -> None:
    assert [check.status for check in link_checks(interfaces, [])] == ["ok"]


def test_a_bridge_of_two_cables_may_close_a_ring() -> None:
    bridges = [
        Bridge("bridge0", ("en1", "en2"), has_stp=False),
        Bridge("br1", ("eth0", "eth1"), has_stp=True),
        Bridge("docker0", (), has_stp=False),
    ]
    _, ring, guarded = link_checks([], bridges)
    assert (ring.status, ring.name, ring.measured) == (
        "warn",
        "bridge bridge0",
        "joins en1, en2, without spanning tree",
    )
    assert "ring" in ring.fix
    assert (guarded.status, guarded.name) == ("ok", "bridge br1")


def test_ifconfig_is_read() -> None:
    assert bridges_of_ifconfig(IFCONFIG) == [Bridge("bridge0", ("en1", "en2"), has_stp=False)]
    guarded = IFCONFIG.replace("flags=3<LEARNING,DISCOVER>", "flags=7<LEARNING,DISCOVER,STP>")
    assert bridges_of_ifconfig(guarded) == [Bridge("bridge0", ("en1", "en2"), has_stp=True)]
    assert bridges_of_ifconfig("") == bridges_of_ifconfig(IFCONFIG.partition("bridge0")[0]) == []


def test_linux_bridges_are_read(tmp_path: Path) -> None:
    ports = {"eth0": ("1", True), "eth1": ("1", True), "eth2": ("0", True), "veth7": ("1", False)}
    for name, (carrier, is_hardware) in ports.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "carrier").write_text(f"{carrier}\n")
        if is_hardware:
            (tmp_path / name / "device").mkdir()
        (tmp_path / "br0" / "brif" / name).mkdir(parents=True)
    (tmp_path / "br0" / "bridge").mkdir()
    state = tmp_path / "br0" / "bridge" / "stp_state"
    state.write_text("0\n")
    assert bridges_of_sysfs(tmp_path) == [Bridge("br0", ("eth0", "eth1"), has_stp=False)]
    state.write_text("1\n")
    assert bridges_of_sysfs(tmp_path)[0].has_stp
    (tmp_path / "eth1" / "carrier").unlink()  # as of an interface that is down
    assert bridges_of_sysfs(tmp_path)[0].cabled == ("eth0",)
    assert bridges_of_sysfs(tmp_path / "missing") == []
