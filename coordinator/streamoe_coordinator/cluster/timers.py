"""How long the coordinator waits for what. Pure data; seconds.

A silent node is suspected, asked again, and given up; then the ladder of `recovery` has its budget. Time in which a
replay moves on does not count against it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timers:
    """suspect_s and lost_s: silence of a node that owes a result. step_s: most for one step, however alive the node is.

    dial_s: a connection and an answer to GetInfo. ready_s: a Ready, which a node may hold back while it frees another
    session. open_s: all of opening a new session on one band. recover_s: the ladder's budget. grace_s: how long the
    same node is tried alone before another is asked. Backoff doubles between its two figures, with jitter.
    """

    suspect_s: float = 5.0
    lost_s: float = 15.0
    step_s: float = 3600.0
    dial_s: float = 5.0
    ready_s: float = 10.0
    open_s: float = 30.0
    recover_s: float = 120.0
    grace_s: float = 4.0
    backoff_first_s: float = 0.2
    backoff_most_s: float = 2.0


# A frame is allowed this much time on the wire before silence counts: 100 Mbit/s gives 12, a poor Wi-Fi 2.
SLOWEST_LINK_BYTES_PER_S = 2_000_000


def wire_allowance_s(num_bytes: int) -> float:
    """Seconds that a frame may take on a slow link."""
    return num_bytes / SLOWEST_LINK_BYTES_PER_S


class MachineClock:
    """This machine's monotonic clock."""

    def now_s(self) -> float:
        """Seconds since boot or so."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
