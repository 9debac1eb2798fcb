"""What is asked of a model that is open, whatever runs it: one answer for scripts, or a conversation.

Owns the question's checks and the order of what is shown. Refuses to know what runs the tokens, and how it was opened.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamoe_engine.errors import UsageError

if TYPE_CHECKING:
    from .events import Shown
    from .runs_tokens import RunsTokens
    from .sampling import SamplingParams
    from .session import ChatSession
    from .text import Text


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of the model, apart from what runs it."""

    prompt: str | None
    system: str
    thinking: bool | None
    is_raw: bool
    as_json: bool

    def check(self) -> None:
        """Raises UsageError for what cannot be meant together."""
        if self.prompt is None and (self.as_json or self.is_raw):
            flag = "--json" if self.as_json else "--raw"
            raise UsageError(f"{flag} needs --prompt", "give the text to answer: --prompt TEXT")
        if self.is_raw and (self.system or self.thinking is not None):
            raise UsageError("--raw uses no chat template, so --system and --think mean nothing", "leave them out")


@dataclass(frozen=True, slots=True)
class Opened:
    """A model ready to answer."""

    band: RunsTokens
    text: Text
    params: SamplingParams


def session_of(opened: Opened, ask: Ask) -> ChatSession:
    """A new conversation."""
    from .session import ChatSession

    return ChatSession(opened.band, opened.text, opened.params, system=ask.system, thinking=ask.thinking)


def answer_once(opened: Opened, ask: Ask, prompt: str, session: ChatSession | None = None) -> Shown:
    """Answer on stdout, or silently with as_json; the line after it is the caller's. session: one to go on with."""
    from .generation import Generator, Request
    from .interrupt import stops_on_interrupt
    from .sampling import Sampler
    from .terminal.answer import show_answer

    start_s, tokenizer = time.perf_counter(), opened.text.tokenizer
    with stops_on_interrupt() as stop:
        if ask.is_raw:
            tokens = tokenizer.encode(prompt, with_special_tokens=True)
            request = Request(tokens, opened.params.max_tokens, start_s=start_s)
            events = Generator(opened.band, tokenizer, Sampler(opened.params)).generate(request, stop)
        else:
            events = (session or session_of(opened, ask)).answer(prompt, stop)
        return show_answer(events, None if ask.as_json else sys.stdout)
