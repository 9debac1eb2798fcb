"""One server from what is served: the same for a band of this process and for a chain of bands.

Owns what the command line says of a server, and how its parts are joined. Refuses to know how the model is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import Manifest
from streamoe_engine.sizes import KIB

from ..runs_tokens import RunsSequences
from ..sampling import default_params
from ..text import Text
from .app import make_app
from .bodies import MAX_BODY_BYTES, Bodies
from .fittings import ModelFittings
from .grammar import GrammarMissing, Grammars, load_grammars
from .log import set_up
from .run import OTHER_CONNECTIONS, Listening, listen
from .run import serve as run_server
from .scheduler import Scheduler, SchedulerOptions
from .security import Access
from .served import Served
from .status import Watch

# Measured with 200 clients at once: buffers of a connection, and the tasks that serve it.
_CONNECTION_BYTES = 96 * KIB
# A body is there as bytes, as text and as what is read of it; then its tokens, one prompt at a time.
_COPIES_OF_A_BODY = 3


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """What the command line says of the server, as typed."""

    host: str
    port: int
    api_key: str | None = None
    allow_host: str | None = None
    cors_origin: str | None = None
    queue: int = 64
    grace_s: float = 20.0
    alias: str | None = None
    has_grammar: bool = True
    log_json: bool = False

    def access(self) -> Access:
        """Who may ask. Raises UsageError for an address that others reach and no key."""
        access = Access(self.host, _listed(self.allow_host), _listed(self.cors_origin), self.api_key or None)
        access.check()
        return access

    def listen(self) -> Listening:
        """Take the port, before anything else costs time. Raises UsageError."""
        return listen(self.host, self.port)

    def num_connections(self, num_sequences: int) -> int:
        """Connections that are served at once."""
        return num_sequences + self.queue + OTHER_CONNECTIONS

    def request_bytes(self, num_sequences: int) -> int:
        """What requests may cost while they are read: a row of the plan."""
        return _COPIES_OF_A_BODY * MAX_BODY_BYTES + self.num_connections(num_sequences) * _CONNECTION_BYTES


@dataclass(frozen=True, slots=True)
class TextSide:
    """What of a model knows text: loaded before the plan is made, since it costs memory. num_bytes: how much."""

    folder: Path
    manifest: Manifest
    text: Text
    grammars: Grammars | None
    num_bytes: int


def load_text_side(folder: Path, manifest: Manifest, text: Text, text_bytes: int, *, has_grammar: bool) -> TextSide:
    """With grammars where they are wanted and the extra is installed; a request that needs it is told how."""
    grammars, grammar_bytes = None, 0
    if has_grammar:
        try:
            grammars, grammar_bytes = load_grammars(folder, manifest.vocab_size, sorted(text.tokenizer.eos_ids))
        except GrammarMissing:
            grammars = None
    return TextSide(folder, manifest, text, grammars, text_bytes + grammar_bytes)


def serve_model(
    name: str,
    side: TextSide,
    open_band: Callable[[], AbstractContextManager[RunsSequences]],
    flags: ServerFlags,
    listening: Listening,
    *,
    num_sequences: int,
    checkpoint_bytes: int,
    when_open: Callable[[RunsSequences], None],
) -> None:
    """Serve until a signal. open_band is called on the compute thread. Raises what opening raises."""
    set_up(as_json=flags.log_json)
    access = flags.access()
    scheduler = Scheduler(
        open_band,
        side.text.tokenizer,
        SchedulerOptions(max_waiting=flags.queue, checkpoint_bytes=checkpoint_bytes),
    )
    served = Served(
        name,
        side.text,
        ModelFittings(side.text, side.grammars),
        scheduler,
        default_params(side.folder),
        side.manifest.vocab_size,
        aliases=_listed(flags.alias),
        family=side.manifest.family,
        model_bytes=sum(file.stat().st_size for file in side.folder.rglob("*") if file.is_file()),
        digest=fingerprint(side.manifest),
    )
    watch = Watch(
        served,
        needs_key=access.api_key is not None,
        max_waiting=flags.queue,
        checkpoint_bytes=checkpoint_bytes,
    )

    def tell() -> None:
        assert scheduler.band is not None
        when_open(scheduler.band)
        print(f"serving {name} at {listening.url}", flush=True)

    run_server(
        make_app(served, access, watch, Bodies()),
        listening,
        scheduler,
        max_connections=flags.num_connections(num_sequences),
        grace_s=flags.grace_s,
        when_open=tell,
    )


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
