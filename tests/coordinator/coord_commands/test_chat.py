"""`streamoe-coord chat` over real nodes: the tokens of one machine, and errors that name what is wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.conftest import Run, error_of
from tests.coordinator.coord_commands.conftest import BUDGET, RunCoord, StartNodes, flags_of

ASK = ["--prompt", "List five animals.", "--max-tokens", 12]
NEXT = ["--prompt", "Which one is the largest?", "--max-tokens", 12]


def answer(run: Any, *args: object, **options: Any) -> dict[str, Any]:
    done = run(*args, "--json", **options)
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


@pytest.fixture(scope="module")
def alone(run_streamoe: Run, embedded_folder: Path) -> list[int]:
    """What one machine says."""
    tokens: list[int] = answer(run_streamoe, "chat", embedded_folder, "--budget", BUDGET, *ASK)["token_ids"]
    return tokens


def test_the_tokens_of_one_machine(run_coord: RunCoord, two_nodes: list[str], alone: list[int]) -> None:
    said = answer(run_coord, "chat", *two_nodes, *ASK)
    assert said["token_ids"] == alone
    assert said["text"].startswith("Here is a list of 5 animals")
    assert [(node["first_layer"], node["last_layer"]) for node in said["nodes"]] == [(0, 7), (8, 15)]
    assert all(0 < node["peak_bytes"] <= node["cap_bytes"] for node in said["nodes"])
    assert [split["layers"] for split in said["last_token_split"]] == [[0, 7], [8, 15]]


def test_a_node_that_does_not_answer_ends_with_4(run_coord: RunCoord, two_nodes: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    done = run_coord("chat", *two_nodes[:2], "--node", dead, "--wait", 0.5, *ASK, "--json")
    assert done.returncode == 4
    error = error_of(done)
    assert error["code"] == "NodeUnreachable" and dead in error["message"] and error["next_step"]


def test_missing_layers_are_named(run_coord: RunCoord, two_nodes: list[str]) -> None:
    done = run_coord("chat", *two_nodes[:2], "--wait", 0.5, *ASK, "--json")
    assert done.returncode == 1
    error = error_of(done)
    assert error["code"] == "NodesDoNotTile" and "layers 8-15 of 0-15 are on no node" in error["message"]
    assert "waiting: layers 8-15" in done.stderr


def test_usage(run_coord: RunCoord) -> None:
    for wrong in (["--json"], ["--node", "nonsense", *ASK], ["--node", "fe80::1:7", *ASK]):
        done = run_coord("chat", *wrong)
        assert (done.returncode, done.stderr == "") == (2, "--json" in wrong), wrong


@pytest.mark.slow
def test_another_model_than_the_nodes(run_coord: RunCoord, two_nodes: list[str], small_folder: Path) -> None:
    done = run_coord("chat", *two_nodes, "--model", small_folder, *ASK, "--json")
    assert error_of(done)["code"] == "FingerprintMismatch"
    done = run_coord("chat", *two_nodes, "--fingerprint", "ffff", "--wait", 0.5, *ASK, "--json")
    assert error_of(done)["code"] == "FingerprintMismatch"


@pytest.mark.slow
def test_no_node_and_a_budget_is_one_machine(
    run_coord: RunCoord, embedded_folder: Path, alone: list[int], tmp_path: Path
) -> None:
    # Addresses that worked are remembered: here they are not.
    nowhere = {"XDG_CACHE_HOME": str(tmp_path), "STREAMOE_WAIT": "0.2"}
    said = answer(run_coord, "chat", "--budget", BUDGET, "--model", embedded_folder, *ASK, env=nowhere)
    assert said["token_ids"] == alone and said["plan"]["budget_bytes"] == 320 * 1024**2


@pytest.mark.slow
def test_missing_layers_are_opened_here_where_a_budget_is_given(
    run_coord: RunCoord, two_nodes: list[str], embedded_folder: Path, alone: list[int]
) -> None:
    here = ["--budget", BUDGET, "--model", embedded_folder, "--wait", 0.5]
    for node, layers in ((two_nodes[:2], [8, 15]), (two_nodes[2:], [0, 7])):
        said = answer(run_coord, "chat", *node, *here, *ASK)
        assert said["token_ids"] == alone
        own = next(entry for entry in said["nodes"] if entry["name"] == "this process")
        assert own["first_layer"] == layers[0] and own["peak_bytes"] <= own["cap_bytes"]


@pytest.mark.slow
def test_nodes_are_remembered_and_other_models_are_none(
    run_coord: RunCoord, two_nodes: list[str], alone: list[int], small_folder: Path
) -> None:
    """No mDNS, no --node: they answer where they did before. Another model's nodes are as good as none."""
    answer(run_coord, "chat", *two_nodes, *ASK)
    assert answer(run_coord, "chat", *ASK)["token_ids"] == alone
    done = run_coord("chat", "--model", small_folder, "--wait", 1, *ASK, "--json")
    assert error_of(done)["code"] == "NodeUnreachable" and done.returncode == 4
    said = answer(run_coord, "chat", "--model", small_folder, "--budget", "400MiB", "--wait", 1, *ASK)
    assert "plan" in said


@pytest.mark.slow
@pytest.mark.parametrize("bands", [("0-3", "4-9", "10-15"), ("0-15",), ("0-0", "1-15")])
def test_a_talk_moves_to_other_bands(
    run_coord: RunCoord, two_nodes: list[str], start_nodes: StartNodes, tmp_path: Path, bands: tuple[str, ...]
) -> None:
    """Saved over two bands, gone on with over one, two or three others: the words are those of the undisturbed."""
    talk = tmp_path / "talk"
    first = answer(run_coord, "snapshot", "save", talk, *two_nodes, *ASK)
    onward = answer(run_coord, "snapshot", "restore", talk, *two_nodes, *NEXT)
    assert first["usage"]["cached_tokens"] == 0 and onward["usage"]["cached_tokens"] > 30
    others = flags_of(start_nodes(*bands))
    moved = answer(run_coord, "chat", *others, "--restore", talk, *NEXT, "--save", talk)
    assert moved["token_ids"] == onward["token_ids"]
    assert moved["usage"] == onward["usage"]
    back = answer(run_coord, "chat", *two_nodes, "--restore", talk, "--prompt", "Why?", "--max-tokens", 4)
    assert back["usage"]["cached_tokens"] > moved["usage"]["prompt_tokens"]


@pytest.mark.slow
def test_the_terminal_saves_and_goes_on(run_coord: RunCoord, two_nodes: list[str], tmp_path: Path) -> None:
    talk = tmp_path / "talk"
    lines = f"List five animals.\n/snapshot {talk}\n/clear\n/restore {talk}\n/ctx\n/plan\n/split\n/snapshot\n/quit\n"
    done = run_coord("chat", *two_nodes, "--max-tokens", 12, stdin=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Here is a list of 5 animals")
    assert f"36 tokens with their state are in {talk}" in done.stderr
    assert "37 of 512 tokens used" in done.stderr
    assert done.stderr.count("n8-15") >= 3 and "wire" in done.stderr
    assert "/snapshot needs a file name" in done.stderr


@pytest.mark.slow
def test_a_talk_with_another_model_is_refused(
    run_coord: RunCoord, two_nodes: list[str], small_folder: Path, tmp_path: Path
) -> None:
    talk = tmp_path / "talk"
    answer(run_coord, "snapshot", "save", talk, *two_nodes, *ASK)
    done = run_coord("chat", "--wait", 0, "--budget", "400MiB", "--model", small_folder, "--restore", talk, *NEXT)
    assert done.returncode == 1 and "the conversation is with" in done.stderr
    data = bytearray(talk.read_bytes())
    data[len(data) // 2] ^= 1
    talk.write_bytes(data)
    done = run_coord("chat", *two_nodes, "--restore", talk, *NEXT, "--json")
    assert error_of(done)["code"] == "SnapshotUnusable"
