"""How this coordinator speaks to a place: mTLS with a node of its cluster, or plainly where nobody else can listen in.

Owns that decision and the channels' credentials. Plain speech is for this machine, and for a private network that the
user has called trusted; it never takes over from a certificate that was refused there. Refuses to know the services.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from streamoe_node.errors import CredentialsUnusable, ExposureRefused
from streamoe_node.security.authority import Credentials
from streamoe_node.security.credentials import ask_member, channel_credentials, expects_node
from streamoe_node.security.exposure import reach
from streamoe_node.security.folder import cluster_folder, has_credentials, load_credentials, node_folders
from streamoe_proto.channel_options import client_options

from .places import Place

_NOT_PAIRED = "pair that node (streamoe-node pair there, streamoe-coord pair here)"


@dataclass(frozen=True, slots=True)
class Door:
    """How to speak to a place. node_id: whose certificate it shows; None: it shows none, and speech is plain."""

    place: Place
    node_id: str | None


@dataclass
class Access:
    """What this coordinator can show. credentials None: no cluster was made here."""

    credentials: Credentials | None = None
    insecure_lan: bool = False
    timeout_s: float = 3.0
    _known: dict[Place, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of_user(cls, *, insecure_lan: bool = False, folders: Sequence[Path] | None = None) -> Access:
        """With the credentials of this user's cluster, as its coordinator or else as one of its nodes.

        Raises CredentialsUnusable for broken ones.
        """
        for folder in folders or (cluster_folder(), *node_folders()):
            if has_credentials(folder):
                credentials = load_credentials(folder)
                channel_credentials(credentials)  # in date, and by its authority: said now, not at each node
                return cls(credentials, insecure_lan)
        return cls(None, insecure_lan)

    def door(self, place: Place) -> Door:
        """Look at a place. Raises NodeUnreachable, CredentialsUnusable for one that is not of this cluster, and
        ExposureRefused where only plain speech is possible and not allowed."""
        if self.credentials is None:
            self._check_plain(place, f"{place} is on a network, and this coordinator has no cluster")
            return Door(place, None)
        with self._lock:
            known = self._known.get(place)
        if known is not None:
            return Door(place, known)
        try:
            member = ask_member(place.host, place.port, self.credentials, self.timeout_s)
        except CredentialsUnusable as error:
            self._check_plain(place, error.message)
            return Door(place, None)
        if member.role != "node":
            raise CredentialsUnusable(f"{place} is the {member.role} {member.member_id}, not a node", _NOT_PAIRED)
        with self._lock:
            self._known[place] = member.member_id
        return Door(place, member.member_id)

    def channel(self, door: Door) -> grpc.Channel:
        """A new channel; the caller closes it."""
        options = list(client_options())
        if door.node_id is None:
            return grpc.insecure_channel(door.place.grpc_target, options=options)
        assert self.credentials is not None
        named = [*options, *expects_node(door.node_id)]
        return grpc.secure_channel(door.place.grpc_target, channel_credentials(self.credentials), options=named)

    def forget(self, place: Place) -> None:
        """Whoever was there has gone: look again next time."""
        with self._lock:
            self._known.pop(place, None)

    def _check_plain(self, place: Place, why_not_tls: str) -> None:
        where = reach(place.host)
        if where == "machine" or (where == "network" and self.insecure_lan):
            return
        raise ExposureRefused(
            why_not_tls,
            f"make a cluster (streamoe-coord init) and {_NOT_PAIRED}"
            + (", or on a network that you trust add --insecure-lan" if where == "network" else ""),
        )
