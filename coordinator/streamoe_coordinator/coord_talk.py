"""One conversation of `streamoe-coord`: over a chain or over a band of this process, from a file and into one.

Owns the order: open, restore, answer or converse, save. Refuses to know flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from streamoe_engine.errors import UsageError
from streamoe_engine.sizes import format_size
from streamoe_node.errors import SnapshotUnusable
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags

from .chaining import Given, OpenedChain, opened_chain
from .cluster.gathering import Gathered
from .cluster.saved_talk import SavedTalk
from .cluster.talk_moves import restore_band_talk, restore_chain_talk, save_band_talk, save_chain_talk
from .cluster_report import NODE_COLUMNS, node_row, ready_line, split_line
from .commands.chat import opened_band
from .edge import print_json
from .local_help import LocalHelp
from .looking import Looking, tell_amid, tell_on_stderr
from .report import answer_json, answer_line, promise
from .session import ChatSession
from .talking import Ask, Opened, answer_once, session_of


@dataclass(frozen=True, slots=True)
class Files:
    """restore: the file to go on from. save: where to write at the end."""

    restore: Path | None = None
    save: Path | None = None


@dataclass(frozen=True, slots=True)
class _Storage:
    """How this conversation's state is written to a file and taken from one."""

    save: Callable[[Path, Any, list[int], dict[str, Any]], int]
    restore: Callable[[SavedTalk], Any]


def talk_over_chain(
    found: Looking,
    gathered: Gathered,
    model: Path | None,
    given: Given,
    ask: Ask,
    files: Files,
    helper: LocalHelp | None = None,
) -> str:
    """Over nodes; helper: this process, where it may open a lost band.

    Returns why the last answer ended, "" for a conversation at the terminal.
    """
    with opened_chain(found, gathered, model, given, tell_amid, helper) as opened:
        tell_on_stderr(ready_line(opened.facts, opened.canary))
        chain, access = opened.band, found.access
        storage = _Storage(
            lambda path, state, tokens, talk: save_chain_talk(path, chain, state, tokens, talk, access),
            lambda saved: restore_chain_talk(saved, chain, access),
        )
        with _session(opened, ask, files, storage) as session:
            if ask.prompt is None:
                split = ("where the last token's time went, band by band", lambda _: split_line(chain.last_split))
                show = partial(_show_nodes, opened)
                _converse(opened, session, storage, show, {"/split": split}, opened.refresh)
                return ""
            shown = answer_once(opened, ask, ask.prompt, session)
            opened.refresh()
            if ask.as_json:
                parts = [entry.as_json() for entry in chain.last_split]
                print_json({**answer_json(shown, None), "nodes": _nodes_json(opened), "last_token_split": parts})
            tell_on_stderr(answer_line(shown.finished))
            tell_on_stderr(split_line(chain.last_split))
            return shown.finished.reason


def talk_over_band(model: Path | None, flags: EngineFlags, given: Given, ask: Ask, files: Files) -> str:
    """In this process alone; as `streamoe chat`, with states from files and to files."""
    from .terminal.tables import print_plan

    folder = resolve_model(model)
    with opened_band(folder, flags, dict(given), is_embedded=model is None, holds_snapshot=True) as opened:
        band = opened.band
        tell_on_stderr(promise(band.plan))
        storage = _Storage(
            lambda path, state, tokens, talk: save_band_talk(path, band, state, tokens, talk),
            lambda saved: restore_band_talk(saved, band),
        )
        with _session(opened, ask, files, storage) as session:
            if ask.prompt is None:
                _converse(opened, session, storage, partial(print_plan, band.plan))
                return ""
            shown = answer_once(opened, ask, ask.prompt, session)
            if ask.as_json:
                print_json(answer_json(shown, band.plan))
            tell_on_stderr(answer_line(shown.finished))
            return shown.finished.reason


@contextmanager
def _session(opened: Opened, ask: Ask, files: Files, storage: _Storage) -> Iterator[ChatSession]:
    """The conversation, gone on with where a file says so, saved at the end where one is given."""
    if ask.is_raw and (files.restore or files.save):
        raise UsageError("--raw is no conversation, so there is none to save or to go on with", "leave --raw out")
    session = session_of(opened, ask)
    if files.restore is not None:
        _restore(session, files.restore, storage)
    yield session
    if files.save is not None:
        tell_on_stderr(_save(session, files.save, storage))


def _restore(session: ChatSession, path: Path, storage: _Storage) -> None:
    with SavedTalk(path) as saved:
        state = storage.restore(saved)
        try:
            session.go_on(saved.talk.talk, state, saved.talk.tokens)
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotUnusable(f"{path} holds no conversation: {error}", "save one again") from error
    tell_on_stderr(f"going on after {len(saved.talk.tokens)} tokens of {path}")


def _save(session: ChatSession, path: Path, storage: _Storage) -> str:
    sequence = session.sequence
    if sequence.state is None:
        raise UsageError("nothing has been said yet, so there is no state to save", "ask something first")
    num_bytes = storage.save(path, sequence.state, sequence.tokens, session.as_json())
    return f"{len(sequence.tokens)} tokens with their state are in {path}, {format_size(num_bytes)}"


def _converse(
    opened: Opened,
    session: ChatSession,
    storage: _Storage,
    show_plan: Callable[[TextIO], None],
    further: Mapping[str, tuple[str, Callable[[str], str]]] | None = None,
    after_answer: Callable[[], None] = lambda: None,
) -> None:
    from .terminal.chat import TerminalChat
    from .terminal.reader import make_reader

    def save(rest: str) -> str:
        if not rest:
            raise UsageError("/snapshot needs a file name", "for example /snapshot talk.streamoe")
        return _save(session, Path(rest).expanduser(), storage)

    def restore(rest: str) -> str:
        if not rest:
            raise UsageError("/restore needs a file name", "one that /snapshot wrote")
        _restore(session, Path(rest).expanduser(), storage)
        return f"{session.num_tokens} tokens of conversation"

    more = {
        **(further or {}),
        "/snapshot FILE": ("write the conversation with its state, to go on with later or elsewhere", save),
        "/restore FILE": ("go on with a conversation that /snapshot wrote", restore),
    }
    TerminalChat(opened.band, session, make_reader(), show_plan, more, after_answer).run()


def _show_nodes(opened: OpenedChain, stream: TextIO) -> None:
    from .terminal.tables import print_rows

    opened.refresh()
    here = {seen.facts.node_id: seen for seen in opened.looking.discovery.nodes()}
    seen = [here[facts.node_id] for facts in opened.facts if facts.node_id in here]
    addresses = opened.gathered.addresses
    print_rows(NODE_COLUMNS, [node_row(entry, addresses.get(entry.facts.node_id, ())) for entry in seen], stream)


def _nodes_json(opened: OpenedChain) -> list[dict[str, Any]]:
    return [
        {
            "node_id": facts.node_id,
            "name": facts.name,
            "first_layer": facts.first_layer,
            "last_layer": facts.last_layer,
            "cap_bytes": facts.cap_bytes,
            "peak_bytes": facts.peak_bytes,
        }
        for facts in opened.facts
    ]
