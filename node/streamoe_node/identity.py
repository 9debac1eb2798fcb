"""Who this node is: an id that stays, and a nonce that each start makes anew.

Owns the file of ids in the user's configuration folder, and the lock that keeps two running nodes from having one id.
A named node (--name) has its name's id. Others take the first id that no running node has, so that one node on a
machine always has the same, whatever its layers. A copied home folder copies ids: the coordinator, which sees both,
says so. Refuses to know certificates, whose ids are these.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from streamoe_engine.errors import UsageError

_FILE, _LOCK = "nodes.json", "nodes.lock"


@dataclass(frozen=True, slots=True)
class Identity:
    """node_id: 16 hexadecimal digits. boot_id: of this start. name: for people. held: an open file whose lock says
    that the id is in use, or -1.
    """

    node_id: str
    boot_id: str
    name: str
    held: int = -1


def take_identity(name: str | None, folder: Path | None = None) -> Identity:
    """This node's identity, held until the process ends. Raises UsageError: the name is in use, or files are not."""
    folder = folder or platformdirs.user_config_path("streamoe")
    for number in range(1, 1000):
        shown = shown_name(name, number)
        node_id = known_id(name, folder, number)
        held = _hold(folder / f"node-{node_id}.lock")
        if held is not None:
            return Identity(node_id, secrets.token_hex(8), shown, held)
        if name is not None:
            raise UsageError(f"a node named {name} is running on this machine already", "give this one another --name")
    raise AssertionError("a thousand nodes run on this machine")


def shown_name(name: str | None, number: int = 1) -> str:
    """The name for people: the one given, or the host's, with a number from the second node on."""
    host = socket.gethostname().partition(".")[0] or "node"
    return name or (host if number == 1 else f"{host}-{number}")


def known_id(name: str | None, folder: Path | None = None, number: int = 1) -> str:
    """The id of a name, or the number-th id of nodes without one; made where there is none. Raises UsageError."""
    folder = folder or platformdirs.user_config_path("streamoe")
    key = f"name {name}" if name is not None else f"number {number}"
    path = folder / _FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ids = _read(path)
            if key not in ids:
                ids[key] = secrets.token_hex(8)
                _write(path, ids)
            return ids[key]
    except OSError as error:
        raise UsageError(f"{path} cannot be used: {error.strerror}", "check its folder's permissions") from error


def _hold(path: Path) -> int | None:
    """An open file with its lock, None when another process has it. It is closed when the process ends."""
    try:
        held = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be used: {error.strerror}", "check its folder's permissions") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    return held


def _read(path: Path) -> dict[str, str]:
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}", "delete it; this node then gets a new id") from error
    if not isinstance(ids, dict) or not all(isinstance(value, str) for value in ids.values()):
        raise UsageError(f"{path} is no list of node ids", "delete it; this node then gets a new id")
    return ids


def _write(path: Path, ids: dict[str, str]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(ids, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, path)
