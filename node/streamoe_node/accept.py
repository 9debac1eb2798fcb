"""Whether a step may be taken, and what must come before it: the rules that keep a step from running twice.

Owns the rules; they look at one session's bookkeeping and change nothing. In words: numbers rise by 1; a repeat of
the last number with the same content has the kept result; a repeat of one that is taken waits for it; the state must
be where the step says, else it begins anew at 0 or at a snapshot of the very same tokens; else the node says from
where it needs the tokens again, each time lower, at last 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamoe_proto.messages import EMPTY_PREFIX, Failed, FailureCode, Result, Step, prefix_hash

from .limits import NodeLimits
from .ports import BandPort, ShelfEntry
from .session import Mark, ResetItem, Session, identity_of
from .steps import fault_of, output_bytes


@dataclass(frozen=True, slots=True)
class Take:
    """Run it, after `first` where there is one."""

    first: ResetItem | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """It has been taken already; its result will come."""


def judge(
    step: Step, session: Session, band: BandPort, limits: NodeLimits, entries: tuple[ShelfEntry, ...]
) -> Take | Wait | Result | Failed:
    """What to do with a step; entries: the session's snapshots. A Result is the kept one."""
    repeated = _repeat(step, session, entries)
    if repeated is not None:
        return repeated
    if step.seq != session.tail_seq + 1:
        return _failed(
            step,
            "need_replay",
            f"step {step.seq} came where step {session.tail_seq + 1} was due",
            from_pos=session.tail.position if session.tail.is_held else restart_position(entries, step.position),
        )
    return _fault(step, session, band, limits) or _placed(step, session.tail, entries)


def restart_position(entries: tuple[ShelfEntry, ...], position: int) -> int:
    """The highest snapshot below a position, or 0."""
    return max((entry.position for entry in entries if entry.position < position), default=0)


def _repeat(step: Step, session: Session, entries: tuple[ShelfEntry, ...]) -> Wait | Result | Failed | None:
    identity = identity_of(step)
    for item in session.pending():
        if item.step.seq == step.seq:
            if identity_of(item.step) == identity and not item.is_cancelled:
                return Wait()
            return _failed(step, "bad_frame", f"another step {step.seq} has been taken", "cancel it first")
    if step.seq > session.last_seq:
        return None
    if step.seq == session.last_seq and session.kept is not None and session.kept_identity == identity:
        return session.kept
    if step.seq == session.last_seq:
        return _failed(
            step,
            "need_replay",
            f"step {step.seq} was done with other content",
            from_pos=restart_position(entries, step.position),
        )
    return _failed(step, "bad_frame", f"step {step.seq} is long done; the last one is {session.last_seq}")


def _fault(step: Step, session: Session, band: BandPort, limits: NodeLimits) -> Failed | None:
    fault = fault_of(step, band)
    if not fault and step.position == 0 and step.prefix_hash != EMPTY_PREFIX:
        fault = "a step at position 0 has tokens before it"
    if not fault and band.is_first and prefix_hash(step.prefix_hash, step.inputs.tolist()) != step.next_hash:
        fault = "the token ids do not hash to what the step says"
    if fault:
        return _failed(step, "bad_frame", fault)
    end = step.position + len(step.inputs)
    if end > band.ctx_tokens:
        return _failed(
            step,
            "no_room",
            f"{end} tokens do not fit the planned context of {band.ctx_tokens}",
            f"open the node with --ctx {end} or more",
        )
    num_bytes = max(step.inputs.nbytes, output_bytes(step, band))
    if num_bytes > limits.max_frame_bytes:
        return _failed(
            step,
            "no_room",
            f"a frame of {num_bytes} B is over the {limits.max_frame_bytes} B that the plan has room for",
            "send fewer tokens at once",
        )
    if len(session.pending()) >= limits.credits:
        return _failed(step, "no_room", f"{limits.credits} steps are in flight already", "wait for a result")
    return None


def _placed(step: Step, tail: Mark, entries: tuple[ShelfEntry, ...]) -> Take | Failed:
    if tail.is_held and (tail.position, tail.prefix_hash) == (step.position, step.prefix_hash):
        return Take()
    if step.position == 0:
        return Take(ResetItem(None))
    for entry in entries:
        if (entry.position, entry.prefix_hash) == (step.position, step.prefix_hash):
            return Take(ResetItem(entry))
    is_ahead = tail.is_held and tail.position < step.position
    return _failed(
        step,
        "need_replay",
        f"the state is not after the {step.position} tokens that the step says",
        from_pos=tail.position if is_ahead else restart_position(entries, step.position),
    )


def _failed(step: Step, code: FailureCode, message: str, next_step: str = "", *, from_pos: int = 0) -> Failed:
    return Failed(code, message, next_step, step.seq, from_pos, retryable=True)
