"""What the node's core needs of a band, a clock and a place for snapshots.

Owns the three interfaces, and their figures. The real node and the simulation each bring their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

BandWant = Literal["nothing", "hidden", "last_logits", "all_logits"]


@dataclass(frozen=True, slots=True)
class BandCounts:
    """A band's counts since it was opened; seconds and bytes."""

    read_bytes: int = 0
    picks: int = 0
    hits: int = 0
    wait_s: float = 0.0
    tokens_run: int = 0


class BandPort(Protocol):
    """Layers first..last of a model. All methods but `counts` are called from one thread.

    `new_state`, `run` and `restore` raise StreamoeError; after an error in `run` its state is lost.
    """

    @property
    def ctx_tokens(self) -> int:
        """Tokens that a sequence may have."""
        ...

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one run."""
        ...

    @property
    def width(self) -> int:
        """Width of a hidden state."""
        ...

    @property
    def vocab_size(self) -> int:
        """Words of the vocabulary."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether it takes token ids."""
        ...

    @property
    def is_last(self) -> bool:
        """Whether it owns norm and head."""
        ...

    def new_state(self) -> Any:
        """The empty state of a new sequence."""
        ...

    def run(
        self, state: Any, inputs: np.ndarray, want: BandWant, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        """Run (tokens,) int32 or (tokens, width) float32; as streamoe_engine.band.Band.run.

        before_layer is called with a layer's number before it; what it raises stops the step, and the state is lost.
        """
        ...

    def release(self, state: Any) -> None:
        """Give a state's memory back."""
        ...

    def snapshot(self, state: Any) -> Any:
        """A copy of a state that `restore` takes."""
        ...

    def restore(self, snapshot: Any) -> Any:
        """A state as it was. Raises StreamoeError for a snapshot that is not of this band."""
        ...

    def counts(self) -> BandCounts:
        """Counts so far; may be called from any thread."""
        ...


class Clock(Protocol):
    """The time that timers go by."""

    def now_s(self) -> float:
        """Seconds since some beginning; never goes back."""
        ...


@dataclass(frozen=True, slots=True)
class ShelfEntry:
    """A snapshot on the shelf: whose, after how many tokens, of which ones."""

    snapshot_id: str
    session: str
    position: int
    prefix_hash: bytes
    num_bytes: int


class SnapshotShelf(Protocol):
    """Where snapshots of sessions are kept. save and load are called from the compute thread."""

    def save(self, session: str, position: int, prefix_hash: bytes, snapshot: Any) -> ShelfEntry:
        """Keep a snapshot; older ones of the session may go. Raises StreamoeError (disk full)."""
        ...

    def entries(self, session: str) -> tuple[ShelfEntry, ...]:
        """The session's snapshots, lowest position first. Cheap: any thread, no reading of files."""
        ...

    def load(self, entry: ShelfEntry) -> Any:
        """The snapshot. Raises SnapshotUnusable."""
        ...

    def discard(self, entry: ShelfEntry) -> None:
        """Forget one snapshot that cannot be used."""
        ...

    def drop(self, session: str) -> None:
        """Forget the session's snapshots."""
        ...
