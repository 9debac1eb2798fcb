"""One session on one node: opening, one step at a time, the answer in time or a Trouble.

Owns the stream, the sequence numbers and the timers of silence. A step is sent again with its number when its node
has been silent; the node answers a number that it has done with the kept result. Refuses to know what to do about
trouble, and other bands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamoe_proto.messages import (
    Cancel,
    Checkpoint,
    Checkpointed,
    Close,
    Failed,
    FromNode,
    Open,
    Progress,
    Ready,
    Result,
    Step,
    TopWords,
)

from .ports import Channel, ChannelLost, ChannelTimeout, Clock, Seat
from .timers import Timers, wire_allowance_s
from .troubles import LinkTrouble, StepFailed, Trouble, trouble_of

FRAME_OVERHEAD_BYTES = 64
_SHORTEST_WAIT_S = 0.001
# Whoever waits for one node looks this often whether he is wanted elsewhere.
LOOK_AROUND_S = 0.25


@dataclass(frozen=True, slots=True)
class Answer:
    """A step's result from a seat, and the seconds from sending to receiving it."""

    seat: Seat
    result: Result
    round_trip_s: float
    sent_bytes: int
    received_bytes: int


class WantedElsewhere(Exception):
    """Waiting was cut short; the step is still owed, and may be waited for again."""


class BandLink:
    """A session's stream to one node. One thread at a time; close() from any."""

    def __init__(
        self,
        seat: Seat,
        opening: Open,
        clock: Clock,
        timers: Timers,
        on_silence: Callable[[float], None] = lambda _: None,
        on_layer: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.seat = seat
        self._opening, self._clock, self._timers = opening, clock, timers
        self._on_silence, self._on_layer = on_silence, on_layer
        self._channel: Channel | None = None
        self._step: Step | None = None
        self._sent_s = 0.0
        self._death = ""
        self.last_seq = 0
        self.checkpointed: Checkpointed | None = None
        self.num_checkpoints_due = 0

    def open(self, deadline_s: float) -> Ready:
        """Dial and wait for Ready. Raises Trouble."""
        timers, now_s = self._timers, self._clock.now_s()
        try:
            self._channel = self.seat.dialer.dial(
                self.seat.target, self._opening, max(0.0, min(timers.dial_s, deadline_s - now_s))
            )
            until_s = min(self._clock.now_s() + timers.ready_s, deadline_s)
            while True:
                frame = self._channel.receive(max(0.0, until_s - self._clock.now_s()))
                if isinstance(frame, Ready):
                    self.last_seq = frame.last_seq
                    return frame
                if isinstance(frame, Failed):
                    raise trouble_of(frame, is_opening=True)
        except ChannelLost as error:
            raise LinkTrouble(str(error)) from None
        except ChannelTimeout:
            raise LinkTrouble(f"did not open the session within {self._clock.now_s() - now_s:.0f} s") from None

    def submit(self, step: Step) -> None:
        """Send a step; its own seq is replaced by the next one due. What fails here is told by answer()."""
        assert self._step is None, "one step at a time"
        self._step = _numbered(step, self.last_seq + 1)
        self._send_step()

    def submit_again(self, step: Step) -> None:
        """Send a step that the node has done already, to get its kept result."""
        self._step = _numbered(step, self.last_seq)
        self._send_step()

    @property
    def is_dead(self) -> bool:
        """Whether the stream is known to have died; what came before may still answer the step."""
        return self._channel is None or bool(self._death) or self._channel.is_lost

    def answer(self, patience_s: float | None = None, is_wanted_elsewhere: Callable[[], bool] | None = None) -> Answer:
        """Wait for the step's result. patience_s: how long the node may be silent, None: as the timers say.
        is_wanted_elsewhere: asked a few times a second; True ends the wait with WantedElsewhere.

        Raises Trouble, and what on_layer raises: the step is then cancelled with the stream.
        """
        assert self._step is not None
        step, lost_s = self._step, self._timers.lost_s if patience_s is None else patience_s
        try:
            result = self._wait(step, lost_s, is_wanted_elsewhere)
            check_result(step, result)
        except WantedElsewhere:
            raise
        except BaseException:
            self._step = None
            raise
        self._step = None
        self.last_seq = step.seq
        return Answer(
            self.seat, result, self._clock.now_s() - self._sent_s, _bytes_of(step.inputs), _bytes_of(result.output)
        )

    def ask_checkpoint(self) -> None:
        """Ask for a snapshot on the node's disk; the answer is looked at whenever it comes."""
        if self._channel is not None and not self._death:
            try:
                self._channel.send(Checkpoint())
                self.num_checkpoints_due += 1
            except ChannelLost as error:
                self._death = str(error)

    def wait_checkpoint(self, timeout_s: float) -> Checkpointed | None:
        """Wait until the snapshots asked for are there; the last one, None where it was refused. Raises Trouble."""
        until_s = self._clock.now_s() + timeout_s
        self.checkpointed = None
        while self.num_checkpoints_due:
            left_s = until_s - self._clock.now_s()
            if left_s <= 0 or self._channel is None:
                raise LinkTrouble(f"did not keep a snapshot within {timeout_s:.0f} s")
            try:
                self._look_aside(self._channel.receive(left_s))
            except ChannelTimeout:
                continue
            except ChannelLost as error:
                raise LinkTrouble(str(error)) from None
        return self.checkpointed

    def close(self, *, is_over: bool) -> None:
        """End the stream; is_over: the session too, else it may be resumed. Never blocks."""
        channel, step = self._channel, self._step
        self._channel = None
        if channel is None:
            return
        if is_over:
            try:
                if step is not None:
                    channel.send(Cancel(step.seq))
                channel.send(Close())
            except ChannelLost:
                pass  # the node frees it as an orphan
        channel.close()

    def _send_step(self) -> None:
        assert self._step is not None
        self._sent_s = self._clock.now_s()
        try:
            if self._channel is None:
                raise ChannelLost("the stream is closed")
            self._channel.send(self._step)
        except ChannelLost as error:
            self._death = str(error)

    def _wait(self, step: Step, lost_s: float, is_wanted_elsewhere: Callable[[], bool] | None) -> Result:
        timers, is_suspect = self._timers, False
        began_s = heard_s = self._clock.now_s() + wire_allowance_s(_bytes_of(step.inputs))
        while True:
            now_s = self._clock.now_s()
            silent_s = now_s - heard_s
            if silent_s >= lost_s:
                raise LinkTrouble(f"silent for {silent_s:.0f} s with step {step.seq} unanswered")
            if now_s - began_s >= timers.step_s:
                raise LinkTrouble(f"step {step.seq} took longer than {timers.step_s:.0f} s")
            if silent_s >= timers.suspect_s and not is_suspect:
                is_suspect = True
                self._on_silence(silent_s)
                self._resend(step)
            due_s = lost_s if is_suspect else min(lost_s, timers.suspect_s)
            if is_wanted_elsewhere is not None and is_wanted_elsewhere():
                raise WantedElsewhere
            wait_s = max(_SHORTEST_WAIT_S, heard_s + due_s - now_s)
            frame = self._receive(wait_s if is_wanted_elsewhere is None else min(wait_s, LOOK_AROUND_S))
            if frame is None:
                continue
            if isinstance(frame, Progress) and frame.seq == step.seq:
                heard_s, is_suspect = self._clock.now_s(), False
                self._on_layer(frame.layer)
            elif isinstance(frame, Result) and frame.seq == step.seq:
                return frame
            elif isinstance(frame, Failed) and frame.seq in (0, step.seq):
                self._refused(step, frame)
            else:
                self._look_aside(frame)

    def _receive(self, timeout_s: float) -> FromNode | None:
        if self._death or self._channel is None:
            raise LinkTrouble(self._death or "the stream is closed")
        try:
            return self._channel.receive(timeout_s)
        except ChannelTimeout:
            return None
        except ChannelLost as error:
            raise LinkTrouble(str(error)) from None

    def _resend(self, step: Step) -> None:
        if self._channel is not None:
            try:
                self._channel.send(step)
            except ChannelLost as error:
                self._death = str(error)

    def _refused(self, step: Step, failed: Failed) -> None:
        if failed.seq == 0 and failed.code in ("bad_frame", "no_room") and self.num_checkpoints_due:
            self.num_checkpoints_due -= 1
            return
        trouble: Trouble = trouble_of(failed, is_opening=False)
        if isinstance(trouble, StepFailed) and failed.seq != step.seq:
            return  # told once more of a step before this one
        raise trouble

    def _look_aside(self, frame: FromNode) -> None:
        # What comes between results: late repeats, progress of what is done, snapshots.
        if isinstance(frame, Checkpointed):
            self.checkpointed = frame
            self.num_checkpoints_due = max(0, self.num_checkpoints_due - 1)
        elif isinstance(frame, Failed) and self.num_checkpoints_due and frame.seq == 0:
            self.num_checkpoints_due -= 1


def check_result(step: Step, result: Result) -> None:
    """Raises LinkTrouble for a result that is not this step's: position, kind or size."""
    output = result.output
    fault = ""
    if result.position != step.position + len(step.inputs):
        fault = f"position {result.position} after {len(step.inputs)} tokens from {step.position}"
    elif step.want == "ack":
        fault = "" if output is None else "an output that was not asked for"
    elif step.want == "top_k":
        is_right = isinstance(output, TopWords) and 1 <= len(output.ids) == len(output.logits) <= step.top_k
        fault = "" if is_right else f"not the {step.top_k} words asked for"
    elif step.want == "hidden":
        is_right = isinstance(output, np.ndarray) and output.ndim == 2 and len(output) == len(step.inputs)
        fault = "" if is_right else "not the hidden states asked for"
    elif not isinstance(output, np.ndarray) or output.ndim != 1:
        fault = "not the logits asked for"
    if fault:
        raise LinkTrouble(f"the result of step {result.seq} is damaged: {fault}")


def _bytes_of(content: np.ndarray | TopWords | None) -> int:
    if isinstance(content, TopWords):
        return content.ids.nbytes + content.logits.nbytes + FRAME_OVERHEAD_BYTES
    return (0 if content is None else content.nbytes) + FRAME_OVERHEAD_BYTES


def _numbered(step: Step, seq: int) -> Step:
    return Step(seq, step.position, step.inputs, step.want, step.prefix_hash, step.next_hash, step.top_k)
