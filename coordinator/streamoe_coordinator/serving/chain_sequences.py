"""A chain of bands on several machines as RunsSequences.

Owns nothing: the chain's caller closes it. States of a chain are not copied here, so that a prompt is read from its
beginning unless a whole conversation goes on; its nodes keep snapshots of their own, against loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.plan import PlanItem
from streamoe_engine.telemetry import Snapshot

from ..cluster.chain import Chain, ChainState
from ..cluster.standing import HeardNode, Standing
from ..runs_tokens import BandStatus

_SILENT = "the node does not answer; it is asked again, and the band is recovered when a token needs it"


class ChainSequences:
    """All layers of a model, on several machines. heard: of each band's node, in the order of their layers."""

    def __init__(self, chain: Chain, heard: Callable[[], Sequence[HeardNode]]) -> None:
        self._chain, self._heard = chain, heard
        # Clients ask for log-probabilities and forms: every logit has to come, not the likeliest alone.
        chain.words_wanted = None

    @property
    def ctx_tokens(self) -> int:
        """Tokens a sequence may have."""
        return self._chain.ctx_tokens

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one run."""
        return self._chain.chunk_tokens

    @property
    def num_sequences(self) -> int:
        """States that every node has room for."""
        return self._chain.num_sequences

    def prompt_chunk_tokens(self, num_tokens: int) -> int:
        """As Chain.prompt_chunk_tokens."""
        return self._chain.prompt_chunk_tokens(num_tokens)

    def new_state(self) -> ChainState:
        """An empty sequence."""
        return self._chain.new_state()

    def run(
        self, state: Any, inputs: np.ndarray, want: Want, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        """As Chain.run."""
        return self._chain.run(state, inputs, want, before_layer=before_layer)

    def run_together(self, states: Sequence[Any], tokens: np.ndarray, want: Want) -> np.ndarray | None:
        """As Chain.run_together."""
        return self._chain.run_together(states, tokens, want)

    def release(self, state: ChainState) -> None:
        """End the sessions of a state."""
        self._chain.release(state)

    def snapshot(self, state: Any) -> NoReturn:
        """Never called: no budget has room for it."""
        raise AssertionError("a chain's states are not copied")

    def restore(self, snapshot: Any) -> NoReturn:
        """Never called."""
        raise AssertionError("a chain's states are not copied")

    def snapshot_bytes(self, position: int) -> int:
        """More than any budget."""
        return sys.maxsize

    def telemetry(self) -> Snapshot:
        """As Chain.telemetry."""
        return self._chain.telemetry()

    def bands(self) -> Sequence[BandStatus]:
        """The nodes in the order of their layers, as last heard."""
        return [_status(*pair) for pair in zip(self._heard(), self._chain.standings, strict=True)]


def _status(heard: HeardNode, standing: Standing) -> BandStatus:
    facts = heard.facts
    state, detail = standing.state, standing.detail
    if standing.is_settled:
        # Between runs nobody asks for a step: a node that answers questions is as good as up.
        state, detail = ("suspect", _SILENT) if heard.is_silent else ("up", "")
    return BandStatus(
        facts.name,
        facts.first_layer,
        facts.last_layer,
        facts.cap_bytes,
        facts.footprint_bytes,
        facts.peak_bytes,
        tuple(PlanItem(row.name, row.num_bytes, row.why) for row in facts.plan),
        state=state,
        rtt_ms=None if heard.rtt_s is None else round(heard.rtt_s * 1000, 3),
        hop_s=standing.hop_s,
        detail=detail,
    )
