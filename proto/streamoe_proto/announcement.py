"""What a node says of itself by mDNS, and how it stands in a TXT record: under 400 bytes, and never to be trusted.

Owns the record's keys, for the node that writes it and the coordinator that reads it. The truth is in GetInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SERVICE_TYPE = "_streamoe._tcp.local."
FINGERPRINT_PREFIX = 16


@dataclass(frozen=True, slots=True)
class Announcement:
    """A TXT record. layers "0-19", inclusive; fingerprint: its first letters; cluster: a hash, "" where there is no
    certificate; is_tls: the port speaks TLS.
    """

    node_id: str
    boot_id: str
    protocol_major: int
    layers: str
    state: str
    fingerprint: str
    cluster: str = ""
    is_tls: bool = False

    def to_txt(self) -> dict[str, str]:
        """The record's keys and values."""
        return {
            "v": str(self.protocol_major),
            "id": self.node_id,
            "boot": self.boot_id,
            "band": self.layers,
            "state": self.state,
            "fp": self.fingerprint[:FINGERPRINT_PREFIX],
            "cluster": self.cluster,
            "tls": "1" if self.is_tls else "0",
        }

    @classmethod
    def from_txt(cls, txt: Mapping[bytes, bytes | None]) -> Announcement | None:
        """The announcement in a record, None for a record that is none of ours."""
        try:
            known = {key.decode("ascii"): (value or b"").decode("utf-8") for key, value in txt.items()}
            return cls(
                node_id=known["id"],
                boot_id=known["boot"],
                protocol_major=int(known["v"]),
                layers=known["band"],
                state=known["state"],
                fingerprint=known["fp"],
                cluster=known.get("cluster", ""),
                is_tls=known.get("tls") == "1",
            )
        except (KeyError, ValueError):
            return None
