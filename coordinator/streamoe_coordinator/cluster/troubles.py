"""What can go wrong with one step on one node, sorted by what helps.

Internal to the cluster room: the ladder of `recovery` ends in a BandLost for the user.
"""

from __future__ import annotations

from streamoe_proto.messages import Failed


class Trouble(Exception):
    """Base. cause: a phrase for a message."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class LinkTrouble(Trouble):
    """The stream died, fell silent or brought nonsense: dial again, the session may be as it was."""


class ReplayNeeded(Trouble):
    """The node's state is not where the step begins; it can go on from from_position."""

    def __init__(self, cause: str, from_position: int) -> None:
        super().__init__(cause)
        self.from_position = from_position


class StepFailed(Trouble):
    """The node could not compute the step, and lost the state by trying."""


class NodeUnfit(Trouble):
    """This node will not serve the session, however often it is asked: it drains, or holds something else.

    is_leaving: it still answers, so its snapshots can be had.
    """

    def __init__(self, cause: str, *, is_leaving: bool = False) -> None:
        super().__init__(cause)
        self.is_leaving = is_leaving


class SessionTaken(Trouble):
    """Another coordinator has the session: nothing to recover."""


def phrase_of(failed: Failed) -> str:
    """A node's refusal as a phrase."""
    return f"{failed.message} ({failed.code})"


def trouble_of(failed: Failed, *, is_opening: bool) -> Trouble:
    """What a refusal means for a session that opens, or for a step."""
    cause = phrase_of(failed)
    if failed.code == "need_replay":
        return ReplayNeeded(cause, failed.from_pos)
    if failed.code in ("draining", "wrong_model"):
        return NodeUnfit(cause, is_leaving=failed.code == "draining")
    if failed.code == "fenced" and is_opening:
        return SessionTaken(cause)
    if failed.code in ("read_failed", "internal") and not is_opening:
        return StepFailed(cause)
    # Also a fence while the session runs: perhaps it was only a belated dial of our own. Dialling anew tells.
    return LinkTrouble(cause)
