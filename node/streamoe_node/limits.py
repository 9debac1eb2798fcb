"""What a node grants its sessions, as its plan has room for it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

ORPHAN_TTL_S = 600.0


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """max_sessions: states held at once. max_frame_bytes: the largest frame either way. credits: steps a session may
    have sent and not yet seen answered. orphan_ttl_s: how long a session without a coordinator is kept in memory.
    progress_s: how often a running step tells so. stuck_s: after how long without any sign of work it stops telling.
    """

    max_sessions: int = 4
    max_frame_bytes: int = 32 * 1024 * 1024
    credits: int = 2
    orphan_ttl_s: float = ORPHAN_TTL_S
    progress_s: float = 0.9
    stuck_s: float = 15.0
