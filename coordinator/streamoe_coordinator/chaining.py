"""From gathered nodes to a chain that answers: text files, sampling, sessions, the canary, and who helps when one goes.

Owns the order in which these are opened. Refuses to know what is asked of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streamoe_proto.messages import NodeFacts

from .cluster.chain import Chain, ChainOptions
from .cluster.gathering import Gathered
from .cluster.grpc_dialer import GrpcDialer
from .cluster.helpers import ClusterRescue
from .cluster.history import DEFAULT_HISTORY_BYTES
from .cluster.model_files import text_folder
from .cluster.notices import BandRecovered, BandRecovering, BandStalled, HistoryLimited, Notice
from .cluster.ports import Seat
from .cluster.roster import SeenNode
from .cluster.standing import HeardNode
from .cluster.verify import Canary, run_canary
from .cluster.words import words_wanted
from .local_help import LocalHelp
from .looking import Looking
from .sampling import default_params, override
from .talking import Opened
from .text import Text, load_text

Given = Mapping[str, float | int | None]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OpenedChain(Opened):
    """A model ready to answer, on several nodes. folder: its tokenizer and manifest."""

    band: Chain
    folder: Path
    canary: Canary
    gathered: Gathered
    looking: Looking

    @property
    def facts(self) -> tuple[NodeFacts, ...]:
        """Who serves each band now, as last heard."""
        fresh = {seen.facts.node_id: seen.facts for seen in self.looking.discovery.nodes()}
        return tuple(fresh.get(seat.facts.node_id, seat.facts) for seat in self.band.seats)

    @property
    def heard(self) -> tuple[HeardNode, ...]:
        """The same, with each node's last round trip; a node that answers no question any more is silent."""
        seen = {node.facts.node_id: node for node in self.looking.discovery.nodes()}
        return tuple(_heard(seat, seen.get(seat.facts.node_id)) for seat in self.band.seats)

    def refresh(self) -> None:
        """Let the chain's telemetry know what the nodes cost now."""
        for facts in self.facts:
            self.band.update_facts(facts)


@contextmanager
def opened_chain(
    looking: Looking, gathered: Gathered, model: Path | None, given: Given, tell: Tell, helper: LocalHelp | None = None
) -> Iterator[OpenedChain]:
    """The chain over these nodes, once a chunk and some tokens have come through it.

    given: sampling parameters of the command line. helper: opens a lost band in this process. Raises what opening the
    text and the canary raise.
    """
    first = gathered.assembly.first
    places = [entry.place for measured in gathered.addresses.values() for entry in measured]
    folder = text_folder(model, first.fingerprint, looking.access, places)
    params = override(default_params(folder), **given)
    text = _text(folder, helper)
    with GrpcDialer(looking.access) as dialer:
        open_here = None if helper is None else partial(helper.open, like=first)
        rescue = ClusterRescue(looking.discovery, looking.access, dialer, first, open_here)
        history_bytes = DEFAULT_HISTORY_BYTES if helper is None else helper.history_bytes
        options = ChainOptions(words_wanted=words_wanted(params), history_bytes=history_bytes)
        with Chain(
            gathered.seats(dialer), options, rescue=rescue, notify=lambda notice: tell(notice_line(notice))
        ) as chain:
            canary = run_canary(chain)
            yield OpenedChain(chain, text, params, folder, canary, gathered, looking)


def _text(folder: Path, helper: LocalHelp | None) -> Text:
    if helper is None:
        return load_text(folder)[0]
    if helper.text is None:
        helper.text, _ = load_text(folder)
    return helper.text


def _heard(seat: Seat, seen: SeenNode | None) -> HeardNode:
    if seen is not None:
        return HeardNode(seen.facts, seen.rtt_s)
    return HeardNode(seat.facts, is_silent=isinstance(seat.dialer, GrpcDialer))


def notice_line(notice: Notice) -> str:
    """A notice in words."""
    if isinstance(notice, BandRecovered):
        return str(notice)
    first, last = notice.layers
    if isinstance(notice, BandStalled):
        return f"band {first}-{last} on {notice.node} has been silent for {notice.silent_s:.0f} s"
    if isinstance(notice, BandRecovering):
        return f"band {first}-{last} on {notice.node} is lost: {notice.cause}; recovering"
    assert isinstance(notice, HistoryLimited)
    return f"band {first}-{last} cannot be replayed any more: {notice.cause}"
