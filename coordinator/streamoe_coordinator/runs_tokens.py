"""What an answer needs of whatever runs its tokens: one band on this machine, or a chain of bands on several.

`streamoe_engine.band.Band` and `cluster.chain.Chain` are both one. Nothing here asks which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.plan import Plan, PlanItem
from streamoe_engine.telemetry import Snapshot


@dataclass(frozen=True, slots=True)
class BandStatus:
    """One band as its front ends show it. items: its plan's rows, which sum to its cap; plan: the whole plan, of a band
    of this process. rtt_ms: None where nobody knows (yet). hop_s: the last step's way there and back, None likewise.
    detail: a sentence on what is wrong and what comes next, or "".
    """

    name: str
    first_layer: int
    last_layer: int
    budget_bytes: int
    footprint_bytes: int
    peak_bytes: int
    items: tuple[PlanItem, ...] = ()
    state: Literal["up", "suspect", "lost"] = "up"
    plan: Plan | None = None
    rtt_ms: float | None = None
    hop_s: float | None = None
    detail: str = ""


class RunsTokens(Protocol):
    """Layers 0 to the last, and the head; see streamoe_engine.band.Band."""

    @property
    def ctx_tokens(self) -> int:
        """The context that the plan has room for, in tokens, a sequence."""
        ...

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one `run`."""
        ...

    def new_state(self) -> Any:
        """An empty sequence."""
        ...

    def run(self, state: Any, inputs: np.ndarray, want: Want) -> np.ndarray | None:
        """Run (tokens,) int32, at most chunk_tokens."""
        ...

    def telemetry(self) -> Snapshot:
        """Counts so far."""
        ...


class RunsSequences(RunsTokens, Protocol):
    """As RunsTokens, for several sequences that take turns or run together, and whose states can be copied."""

    @property
    def num_sequences(self) -> int:
        """States that may be held at once."""
        ...

    def run(
        self, state: Any, inputs: np.ndarray, want: Want, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        """As RunsTokens.run. What before_layer raises stops the step, and the state is lost."""
        ...

    def run_together(self, states: Sequence[Any], tokens: np.ndarray, want: Want) -> np.ndarray | None:
        """One token of each sequence, tokens (states,) int32; each row as if it had run alone.

        Returns (states, vocabulary) float32 for "last_logits".
        """
        ...

    def release(self, state: Any) -> None:
        """Give a state's memory back."""
        ...

    def snapshot(self, state: Any) -> Any:
        """A copy of a state, cut to its tokens."""
        ...

    def restore(self, snapshot: Any) -> Any:
        """A state of its own from a copy."""
        ...

    def snapshot_bytes(self, position: int) -> int:
        """Bytes that a snapshot after `position` tokens takes, at most."""
        ...

    def bands(self) -> Sequence[BandStatus]:
        """The bands it is made of, in the order of their layers. Any thread; returns at once."""
        ...


@runtime_checkable
class CutsPrompts(Protocol):
    """What runs tokens and has a view on how to cut a prompt: several bands overlap over its pieces."""

    def prompt_chunk_tokens(self, num_tokens: int) -> int:
        """How many tokens of a prompt of num_tokens to run at once, at most chunk_tokens."""
        ...


def prompt_chunk_tokens(band: RunsTokens, num_tokens: int) -> int:
    """How many tokens of a prompt to run at once: what the band says of this one, else as many as it has room for."""
    return band.prompt_chunk_tokens(num_tokens) if isinstance(band, CutsPrompts) else band.chunk_tokens
