"""`streamoe-coord doctor`: why nodes are not found or do not answer, each step by itself."""

from __future__ import annotations

import time
from dataclasses import asdict

import typer

from streamoe_engine.errors import StreamoeError
from streamoe_proto.messages import PROTOCOL_MAJOR

from .. import cluster_options, options
from ..cluster.access import Access
from ..cluster.gathering import FIRST_LOOK_S, choose
from ..cluster.node_client import NodeClient
from ..cluster.places import Place
from ..cluster.roster import SeenNode
from ..doctor.check import Check, graded
from ..edge import EXIT_FAILURE, SCHEMA, print_json, reported
from ..looking import LookFlags, Looking, looking

# More than this and certificates of a new cluster may not be good yet somewhere.
_MOST_SKEW_S = 3600.0


def doctor(
    node: cluster_options.Nodes = None,
    *,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    as_json: options.AsJson = False,
) -> None:
    """Test multicast, mDNS and TCP apart, then each node: version, clock, model, bands; exit code 1 when one fails."""
    with reported(as_json):
        from ..doctor.network import network_checks

        with looking(LookFlags(tuple(node or ()), fingerprint, insecure_lan)) as found:
            checks = network_checks(found.flags.places)
            found.discovery.wait(lambda _: bool(node) and found.discovery.is_settled, FIRST_LOOK_S)
            checks += _nodes_checks(found)
        is_ok = all(check.status != "fail" for check in checks)
        if as_json:
            print_json({"schema": SCHEMA, "ok": is_ok, "checks": [asdict(check) for check in checks]})
        else:
            for check in checks:
                print(f"{check.status:4}  {check.group:10}  {check.name}: {check.measured}")
                if check.fix:
                    print(f"{'':18}fix: {check.fix}")
        if not is_ok:
            raise typer.Exit(EXIT_FAILURE)


def _nodes_checks(found: Looking) -> list[Check]:
    seen = found.discovery.nodes()
    checks = [
        graded("nodes", str(entry.place), entry.why, fail="start streamoe-node there, or correct the address")
        for entry in found.discovery.silent()
        if entry.is_static
    ]
    checks += [check for entry in seen for check in (_version_check(entry), _clock_check(found.access, entry))]
    return [*checks, _coverage_check(seen, found.flags.fingerprint)]


def _version_check(seen: SeenNode) -> Check:
    facts = seen.facts
    told = f"streamoe {facts.version}, protocol {facts.protocol_major}.{facts.protocol_minor}, {facts.state}"
    other = facts.protocol_major != PROTOCOL_MAJOR
    return graded(
        "nodes",
        f"{facts.name} {facts.node_id[:8]}",
        f"{told}, answers at {', '.join(map(str, seen.places))} in {seen.rtt_s * 1000:.1f} ms",
        fail=f"install one version of streamoe everywhere: here protocol {PROTOCOL_MAJOR}" if other else "",
    )


def _clock_check(access: Access, seen: SeenNode) -> Check:
    name = f"{seen.facts.name} clock"
    try:
        skew_s = _skew_s(access, seen.places[0])
    except StreamoeError as error:
        return graded("nodes", name, error.message, fail=error.next_step or "look at that node")
    fix = "set the clocks: certificates are good from a day before they were made" if abs(skew_s) > _MOST_SKEW_S else ""
    return graded("nodes", name, f"{skew_s:+.1f} s beside this machine's", warn=fix)


def _skew_s(access: Access, place: Place) -> float:
    with NodeClient(access, place) as client:
        client.facts()
        before_s = time.time()
        theirs_s = client.clock_s()
        return theirs_s - (before_s + time.time()) / 2


def _coverage_check(seen: tuple[SeenNode, ...], fingerprint: str | None) -> Check:
    if not seen:
        return graded(
            "nodes", "bands", "no node answers", warn="start streamoe-node, or name one with --node host:port"
        )
    try:
        assembly = choose(seen, fingerprint)
    except StreamoeError as error:
        return graded("nodes", "bands", error.message, warn=error.next_step or "look at the nodes")
    told = ", ".join(f"{facts.name} {facts.first_layer}-{facts.last_layer}" for facts in assembly.bands)
    return graded("nodes", "bands", f"complete: {told}")
