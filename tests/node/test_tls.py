"""A paired node speaks TLS with members of its cluster, and with nobody else; pairing by the command itself."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from streamoe_node.identity import known_id
from streamoe_node.security.authority import Authority, Member
from streamoe_node.security.credentials import channel_credentials, expects_node
from streamoe_node.security.folder import has_credentials, save_credentials
from streamoe_node.security.pairing import CoordinatorPairing
from streamoe_node.security.pairing_link import pair_with
from streamoe_proto.channel_options import client_options
from streamoe_proto.v1 import node_pb2, node_pb2_grpc
from tests.node.processes import NodeProcess, clean_environment


def test_paired_node_answers_its_cluster_only(embedded_folder: Path, tmp_path: Path) -> None:
    authority, now = Authority.create("c", datetime.now(UTC)), datetime.now(UTC)
    node_id = known_id(None, tmp_path / "config" / "streamoe")
    issued = authority.issue(Member("node", node_id), now)
    save_credentials(tmp_path / "config" / "streamoe" / "node" / node_id, issued)
    mine = authority.issue(Member("coordinator", "me"), now)
    other = Authority.create("other", now).issue(Member("coordinator", "me"), now)
    with NodeProcess(embedded_folder, tmp_path, "--budget", "300MiB", "--ctx", "256", "--layers", "0-1") as node:
        event = node.event("ready")
        assert event["node_id"] == node_id and event["address"].startswith("[::]:")
        place = f"127.0.0.1:{event['address'].rpartition(':')[2]}"
        options = [*client_options(), *expects_node(node_id)]
        with grpc.secure_channel(place, channel_credentials(mine), options=options) as channel:
            answer = node_pb2_grpc.NodeServiceStub(channel).GetInfo(node_pb2.GetInfoRequest(), timeout=10)
            assert answer.info.node_id == node_id
        strangers = [
            grpc.secure_channel(place, channel_credentials(other), options=options),
            grpc.insecure_channel(place, options=client_options()),
        ]
        for channel in strangers:
            with channel, pytest.raises(grpc.RpcError):
                node_pb2_grpc.NodeServiceStub(channel).GetInfo(node_pb2.GetInfoRequest(), timeout=5)


def test_pair_command_keeps_what_the_coordinator_gives(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamoe_node", "pair", "--host", "127.0.0.1", "--port", "0", "--json"]
    environment = clean_environment(tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as waiting:
        assert waiting.stdout is not None
        shown = json.loads(waiting.stdout.readline())
        host, _, port = shown["addresses"][0].rpartition(":")
        authority = Authority.create("c", datetime.now(UTC))
        done = pair_with(host, int(port), lambda peer: CoordinatorPairing(authority, shown["code"], peer))
        paired = json.loads(waiting.stdout.readline())
        assert waiting.wait(30) == 0
    assert paired["node_id"] == done.node_id == known_id(None, tmp_path / "config" / "streamoe")
    assert has_credentials(tmp_path / "config" / "streamoe" / "node" / done.node_id)
