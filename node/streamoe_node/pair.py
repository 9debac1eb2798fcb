"""`streamoe-node pair`: show a one-time code, wait for the coordinator that knows it, keep the certificate it gives.

Owns the command's order and its words. Refuses to know how a pairing is proved.
"""

from __future__ import annotations

import shlex
import signal
import sys
import threading
import time
from pathlib import Path

from .announce import reachable_addresses
from .edge import print_json
from .identity import known_id, shown_name
from .security.authority import Credentials
from .security.code import CODE_LIFE_S, OneTimeCode, new_code
from .security.folder import node_folder, save_credentials
from .security.pairing_link import PairingListener


def pair(name: str | None, host: str, port: int, *, as_json: bool, folder: Path | None = None) -> bool:
    """Pair this node; False when it was stopped first. Raises PairingFailed, PortInUse, CredentialsUnusable."""
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with PairingListener(host, port) as listener:
            code = OneTimeCode(new_code(), time.monotonic)
            _show(code.code, reachable_addresses(host), listener.port, as_json=as_json)
            node_id, shown = known_id(name), shown_name(name)
            found = listener.serve(node_id, shown, code, _tell, stopped=stopping.is_set)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if found is None:
        return False
    save_credentials(folder or node_folder(node_id), found)
    _done(node_id, name, found, as_json=as_json)
    return True


def _show(code: str, addresses: tuple[str, ...], port: int, *, as_json: bool) -> None:
    places = [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses]
    if as_json:
        print_json({"event": "pairing", "code": code, "addresses": places, "life_s": CODE_LIFE_S})
        return
    # An IPv4 address is the easier one to type.
    shown = min(places, key=lambda place: place.startswith("["))
    print(f"on the coordinator: streamoe-coord pair {shown}")
    print(f"code: {code}   ({CODE_LIFE_S / 60:.0f} minutes, once)", flush=True)


def _tell(line: str) -> None:
    print(f"an attempt failed: {line}", file=sys.stderr)


def _done(node_id: str, name: str | None, found: Credentials, *, as_json: bool) -> None:
    if as_json:
        print_json({"event": "paired", "node_id": node_id, "member_id": found.member.member_id})
    else:
        # Its id is its name's: under another it would have no certificate.
        named = "" if name is None else f" --name {shlex.quote(name)}"
        start = f"streamoe-node{named} --layers A-B --budget SIZE"
        print(f"paired: this node is {node_id} in the cluster; start it with {start}")
