"""One session on a node: where its state is, what is queued for it, and the last result.

Owns a session's bookkeeping. A state cannot rewind, so each fact is kept twice: as it is now (`now`), and as it will
be when everything queued has run (`tail`). Refuses to know threads, bands and the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamoe_proto.messages import EMPTY_PREFIX, FromNode, Result, Step, StepWant

from .ports import ShelfEntry


@dataclass(frozen=True, slots=True)
class Mark:
    """After which tokens a state is. is_held False: there is no state; a step can only begin anew."""

    position: int = 0
    prefix_hash: bytes = EMPTY_PREFIX
    is_held: bool = False


def mark_of(entry: ShelfEntry | None) -> Mark:
    """The mark of a state begun anew, or from a snapshot."""
    return Mark(0, EMPTY_PREFIX, True) if entry is None else Mark(entry.position, entry.prefix_hash, True)


@dataclass(frozen=True, slots=True)
class StepIdentity:
    """What makes two frames the same step."""

    seq: int
    position: int
    num_tokens: int
    want: StepWant
    top_k: int
    prefix_hash: bytes
    next_hash: bytes


def identity_of(step: Step) -> StepIdentity:
    """The identity of a step."""
    return StepIdentity(
        step.seq, step.position, len(step.inputs), step.want, step.top_k, step.prefix_hash, step.next_hash
    )


@dataclass(frozen=True, slots=True)
class ResetItem:
    """Begin anew, or from a snapshot."""

    entry: ShelfEntry | None


@dataclass(slots=True, eq=False)
class RunItem:
    """A step to run, after `first` where the state is elsewhere. is_cancelled is looked at before each layer."""

    step: Step
    queued_s: float
    first: ResetItem | None = None
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class SaveItem:
    """Put a snapshot on the shelf, and tell so where someone asked."""

    is_asked: bool


@dataclass(frozen=True, slots=True)
class FreeItem:
    """Give the state back and forget the session; its snapshots too when it is over."""

    is_over: bool


Item = RunItem | ResetItem | SaveItem | FreeItem


@dataclass(slots=True)
class Progressing:
    """The running step's signs of life: last layer and reads, when they last changed, when they were last told."""

    layer: int
    read_bytes: int
    changed_s: float
    told_s: float


@dataclass(slots=True, eq=False)
class Link:
    """The stream a session is served through. send must only queue; end tells that the core is done with it."""

    session_name: str
    epoch: int
    send: Callable[[FromNode], None]
    end: Callable[[], None]
    is_live: bool = True


@dataclass(slots=True, eq=False)
class Session:
    """A session's whole bookkeeping. state: what the band made, None when lost or not begun."""

    name: str
    epoch: int
    link: Link | None = None
    orphan_since_s: float = 0.0
    state: Any = None
    now: Mark = Mark()
    tail: Mark = Mark()
    last_seq: int = 0
    tail_seq: int = 0
    kept: Result | None = None
    kept_identity: StepIdentity | None = None
    queue: deque[Item] = field(default_factory=deque)
    running: Item | None = None
    progressing: Progressing | None = None
    is_closing: bool = False

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing is queued."""
        return self.running is None and not self.queue

    @property
    def is_orphan(self) -> bool:
        """No coordinator serves it."""
        return self.link is None

    def send(self, frame: FromNode) -> None:
        """To whoever is attached now; nobody, and the frame is dropped: a repeated step brings its result again."""
        if self.link is not None:
            self.link.send(frame)

    def pending(self) -> list[RunItem]:
        """Steps taken and not yet done, the running one first."""
        running = [self.running] if isinstance(self.running, RunItem) else []
        return running + [item for item in self.queue if isinstance(item, RunItem)]

    def push(self, item: Item) -> None:
        """Queue an item; `tail` and `tail_seq` follow."""
        self.queue.append(item)
        self._follow(item)

    def drop_steps(self, from_seq: int = 0) -> list[RunItem]:
        """Forget the steps that have not begun, from a number on; returns them."""
        dropped = [item for item in self.queue if isinstance(item, RunItem) and item.step.seq >= from_seq]
        self.queue = deque(item for item in self.queue if item not in dropped)
        self.tail, self.tail_seq = self.now, self.last_seq
        for item in [*([] if self.running is None else [self.running]), *self.queue]:
            self._follow(item)
        return dropped

    def _follow(self, item: Item) -> None:
        if isinstance(item, RunItem):
            step = item.step
            self.tail, self.tail_seq = Mark(step.position + len(step.inputs), step.next_hash, True), step.seq
        elif isinstance(item, ResetItem):
            self.tail = mark_of(item.entry)

    def commit(self, step: Step, result: Result) -> None:
        """A step is done: the state has moved, and its result is kept for a repeat."""
        self.now = Mark(step.position + len(step.inputs), step.next_hash, True)
        self.last_seq = step.seq
        self.kept, self.kept_identity = result, identity_of(step)

    def lose(self) -> None:
        """There is no state any more. The last result is still true: a repeat may have it."""
        self.state = None
        self.now = Mark()

    def begin_epoch(self, epoch: int) -> None:
        """Sequence numbers begin anew, at 1."""
        self.epoch = epoch
        self.last_seq = self.tail_seq = 0
        self.kept = self.kept_identity = None
