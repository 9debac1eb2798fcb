"""The errors of several machines, each with the place, the cause and the next step.

StreamoeError (streamoe_engine.errors)
└── ClusterError               something between machines
    ├── NodeUnreachable        a node does not answer, or its port cannot be dialled     (exit 4)
    ├── BandLost               a band's session could not be recovered in time           (exit 4)
    ├── NodesDoNotTile         the nodes' bands leave gaps or overlap
    ├── FingerprintMismatch    nodes hold different models
    ├── ProtocolMismatch       nodes speak another major version
    ├── PairingFailed          a pairing code or a certificate was not accepted
    ├── CredentialsUnusable    a key or a certificate is missing, broken, of another cluster, or out of date
    ├── DuplicateNode          two running nodes have one id
    ├── ExposureRefused        an address would be open to others without credentials    (exit 2)
    ├── PortInUse              another process listens where this node should            (exit 1)
    ├── NodeNotReady           a node was asked before it was ready, or while it drains
    ├── ShelfFull              a snapshot cannot be written: disk full, folder not writable
    ├── SelfTestFailed         a band's canary is not what it should be
    └── EngineEnded            the engine's process ended by a signal or an error

Owns the wording rule for errors between machines. Refuses to know gRPC's codes: its two edges map them.
"""

from __future__ import annotations

from streamoe_engine.errors import SnapshotUnusable, StreamoeError

__all__ = ["SnapshotUnusable"]


class ClusterError(StreamoeError):
    """Base of the errors between machines."""


class NodeUnreachable(ClusterError):
    """Raised when a node does not answer within its deadline, or cannot be dialled."""

    exit_code = 4


class BandLost(ClusterError):
    """Raised when a band's session could not be recovered: names layers, node and cause."""

    exit_code = 4


class NodesDoNotTile(ClusterError):
    """Raised when bands do not cover each layer once: names the gaps and overlaps."""


class FingerprintMismatch(ClusterError):
    """Raised when two nodes, or a node and a file, are of different models."""


class ProtocolMismatch(ClusterError):
    """Raised when a peer speaks another major version of the protocol: names both."""


class PairingFailed(ClusterError):
    """Raised when a pairing code, a request or a certificate was not accepted."""


class CredentialsUnusable(ClusterError):
    """Raised when a key or a certificate is missing, broken, of another cluster, or out of date."""


class DuplicateNode(ClusterError):
    """Raised when two running nodes have one id: neither is used."""


class ExposureRefused(ClusterError):
    """Raised when an address would be open to others without credentials."""

    exit_code = 2


class PortInUse(ClusterError):
    """Raised, before anything is loaded, when the address to listen on cannot be had."""


class NodeNotReady(ClusterError):
    """Raised when a node is still loading, draining, or quarantined."""


class ShelfFull(ClusterError):
    """Raised when a snapshot cannot be kept on the node's disk."""


class SelfTestFailed(ClusterError):
    """Raised when a band's answer to the fixed input is not a number, or not the same twice."""


class EngineEnded(ClusterError):
    """Raised by the supervising process when the engine ended: names the signal or the exit code."""
