"""Finding nodes over real sockets on loopback: named by hand, and by real mDNS."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from zeroconf import IPVersion, ServiceInfo, Zeroconf

from streamoe_coordinator.cluster.access import Access
from streamoe_coordinator.cluster.addresses import LastKnown, LinkSpeed, Measured, measure_all, measure_nodes, ranked
from streamoe_coordinator.cluster.bonjour import BonjourBrowser
from streamoe_coordinator.cluster.discovery import AskNodes, Discovery
from streamoe_coordinator.cluster.node_client import NodeClient
from streamoe_coordinator.cluster.places import Place
from streamoe_coordinator.cluster.roster import SeenNode
from streamoe_engine.sizes import MIB
from streamoe_node.errors import (
    ClusterError,
    CredentialsUnusable,
    ExposureRefused,
    NodeUnreachable,
    ProtocolMismatch,
)
from streamoe_node.security.authority import Authority, Member
from streamoe_node.security.credentials import server_credentials
from streamoe_node.security.folder import save_credentials
from streamoe_proto.announcement import SERVICE_TYPE, Announcement
from streamoe_proto.messages import NodeFacts
from tests.cluster.facts import node
from tests.cluster.node_server import serving
from tests.waiting import eventually

NOW = datetime.now(UTC)


def here(port: int) -> Place:
    return Place("127.0.0.1", port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return int(closed.getsockname()[1])


@contextmanager
def looking(*places: Place, access: Access | None = None) -> Iterator[Discovery]:
    ask = AskNodes(access or Access())
    try:
        with Discovery(ask, static=places) as discovery:
            yield discovery
    finally:
        ask.close()


def ids(nodes: tuple[SeenNode, ...]) -> list[str]:
    return [seen.facts.node_id for seen in nodes]


def at_least(count: int) -> Callable[[tuple[SeenNode, ...]], bool]:
    return lambda nodes: len(nodes) >= count


def test_nodes_named_by_hand_need_no_mdns() -> None:
    dead = here(free_port())
    with (
        serving(node("a", 0, 7)) as (a, _),
        serving(node("b", 8, 15)) as (b, _),
        looking(here(a), here(b), dead) as discovery,
    ):
        assert ids(discovery.wait(at_least(2), 10)) == ["a", "b"]
        discovery.wait(lambda _: discovery.is_settled, 10)
        (silent,) = discovery.silent()
        assert silent.place == dead and str(dead) in silent.why and silent.is_static


def test_a_node_that_comes_back_is_found_again_and_its_changes_are_seen() -> None:
    port = free_port()
    with looking(here(port)) as discovery:
        assert discovery.wait(at_least(1), 0.5) == ()
        with serving(node("a", 0, 15, state="loading"), port=port) as (_, service):
            (seen,) = discovery.wait(at_least(1), 10)
            assert (seen.facts.state, seen.places) == ("loading", (here(port),))
            service.facts = node("a", 0, 15)
            assert discovery.wait(lambda nodes: nodes[0].facts.state == "ready", 10)[0].facts.state == "ready"
        with serving(node("a", 0, 15, boot_id="second"), port=port):
            found = discovery.wait(lambda nodes: any(n.facts.boot_id == "second" for n in nodes), 10)
            assert [n.facts.boot_id for n in found] == ["second"]


def test_closing_does_not_wait_for_long() -> None:
    with serving(node("a", 0, 15)) as (port, service):
        service.delay_s = 60
        with looking(here(port)):
            time.sleep(0.2)
            start_s = time.monotonic()
        assert time.monotonic() - start_s < 5
        service.delay_s = 0


# ---- who may be spoken to, and how


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("home", NOW)


def test_a_cluster_of_our_own_is_spoken_to_by_tls(authority: Authority) -> None:
    ours = Access(authority.issue(Member("coordinator", "desk"), NOW))
    shown = server_credentials(authority.issue(Member("node", "a"), NOW), "a")
    with serving(node("a", 0, 15), credentials=shown) as (port, service):
        assert ours.door(here(port)).node_id == "a"
        with looking(here(port), access=ours) as discovery:
            assert ids(discovery.wait(at_least(1), 10)) == ["a"]
        with NodeClient(ours, here(port)) as client:
            assert client.facts().node_id == "a"
            service.facts = node("b", 0, 15)
            with pytest.raises(CredentialsUnusable, match="calls itself b"):
                client.facts()
        # Without a cluster we speak plainly, and the node does not listen.
        with NodeClient(Access(), here(port)) as client, pytest.raises(NodeUnreachable):
            client.facts()
        strangers = Access(Authority.create("x", NOW).issue(Member("coordinator", "desk"), NOW))
        with NodeClient(strangers, here(port)) as client, pytest.raises(ClusterError):
            client.facts()


def test_the_users_credentials_are_the_clusters_or_else_a_nodes(authority: Authority, tmp_path: Path) -> None:
    cluster, node_folder = tmp_path / "cluster", tmp_path / "node" / "a"
    assert Access.of_user(folders=[cluster, node_folder]).credentials is None
    save_credentials(node_folder, authority.issue(Member("node", "a"), NOW))
    found = Access.of_user(folders=[cluster, node_folder]).credentials
    assert found is not None and found.member == Member("node", "a")
    save_credentials(cluster, authority.issue(Member("coordinator", "desk"), NOW))
    found = Access.of_user(folders=[cluster, node_folder]).credentials
    assert found is not None and found.member.role == "coordinator"
    (cluster / "member.crt").write_text("nonsense")
    with pytest.raises(CredentialsUnusable):
        Access.of_user(folders=[cluster, node_folder])


def test_plain_speech_stays_on_this_machine(authority: Authority) -> None:
    for place, insecure_lan in ((Place("192.168.77.1", 1), False), (Place("8.8.8.8", 1), True)):
        with pytest.raises(ExposureRefused, match="no cluster") as error:
            Access(insecure_lan=insecure_lan).door(place)
        assert "streamoe-coord init" in error.value.next_step
    assert Access(insecure_lan=True).door(Place("192.168.77.1", 1)).node_id is None
    with serving(node("a", 0, 15)) as (port, _):
        ours = Access(authority.issue(Member("coordinator", "desk"), NOW))
        assert ours.door(here(port)).node_id is None  # loopback, unpaired


def test_what_is_no_node(authority: Authority) -> None:
    with pytest.raises(NodeUnreachable) as error, NodeClient(Access(), here(free_port())) as client:
        client.facts()
    assert error.value.exit_code == 4 and error.value.next_step
    with serving(node("a", 0, 15)) as (port, service), NodeClient(Access(), here(port)) as client:
        service.delay_s = 2.0
        with pytest.raises(NodeUnreachable, match="no answer in time"):
            client.facts(timeout_s=0.3)
        service.delay_s = 0
        with pytest.raises(ProtocolMismatch, match="ListFiles"):
            client.files()
        service.facts = node("a", 0, 16)
        with pytest.raises(ProtocolMismatch, match="nonsense"):
            client.facts()


# ---- addresses


def test_addresses_are_measured_and_the_dead_come_last() -> None:
    with serving(node("a", 0, 15)) as (port, _):
        dead = here(free_port())
        first, last = measure_all(Access(), [dead, here(port)])
        assert first.place == here(port) and first.speed is not None and 0 < first.speed.rtt_s < 1
        assert first.speed.bytes_per_s > 1 * MIB
        assert last.place == dead and last.speed is None and str(dead) in last.why
        assert measure_nodes(Access(), {"a": [here(port)], "b": [dead]})["a"][0].speed is not None


def test_rank_counts_round_trip_and_bandwidth() -> None:
    near_but_narrow = Measured(here(1), LinkSpeed(rtt_s=0.0005, bytes_per_s=2e6))
    wide = Measured(here(2), LinkSpeed(rtt_s=0.002, bytes_per_s=1e8))
    far = Measured(here(3), LinkSpeed(rtt_s=0.2, bytes_per_s=1e9))
    dead = Measured(here(0), None, "refused")
    assert [m.place.port for m in ranked([dead, far, near_but_narrow, wide])] == [2, 1, 3, 0]


def test_addresses_that_worked_are_remembered(tmp_path: Path) -> None:
    known = LastKnown(tmp_path / "deep" / "nodes.json")
    assert known.load() == {}
    known.save({"a": [here(1), Place("fe80::1%en0", 2)]})
    known.save({"b": [here(3)]})
    assert known.load() == {"a": (here(1), Place("fe80::1%en0", 2)), "b": (here(3),)}
    for text in ("", "[]", '{"nodes": []}', '{"nodes": {"a": ["nonsense"]}}', '{"nodes": {"a": 7}}'):
        (tmp_path / "deep" / "nodes.json").write_text(text)
        assert known.load() == {}
    LastKnown(Path("/proc/nothing/here")).save({"a": []})


# ---- mDNS


def announce(zeroconf: Zeroconf, facts: NodeFacts, port: int) -> ServiceInfo:
    said = Announcement(
        facts.node_id, facts.boot_id, 1, f"{facts.first_layer}-{facts.last_layer}", facts.state, facts.fingerprint
    )
    info = ServiceInfo(
        SERVICE_TYPE,
        f"{facts.node_id}-{facts.boot_id}.{SERVICE_TYPE}",
        addresses=[socket.inet_aton("127.0.0.1")],
        port=port,
        properties=said.to_txt(),
        server=f"{facts.node_id}.local.",
    )
    zeroconf.register_service(info)
    return info


def test_announced_nodes_are_found_and_a_farewell_is_checked() -> None:
    """Real multicast on loopback. A farewell of a node that answers removes nothing."""
    facts = node(f"t{time.time_ns()}", 0, 15)
    ask = AskNodes(Access())
    zeroconf = Zeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)
    try:
        with serving(facts) as (port, service), Discovery(ask, start_browser=BonjourBrowser) as discovery:
            info = announce(zeroconf, facts, port)
            found = discovery.wait(lambda nodes: facts.node_id in ids(nodes), 15)
            seen = next(n for n in found if n.facts.node_id == facts.node_id)
            assert seen.places == (here(port),)
            asked = service.num_asked
            zeroconf.unregister_service(info)
            eventually(lambda: service.num_asked > asked)
            assert facts.node_id in ids(discovery.nodes())
    finally:
        zeroconf.close()
        ask.close()
