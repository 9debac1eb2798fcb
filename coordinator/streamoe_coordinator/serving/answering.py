"""An answer for an event loop: the compute thread's events, awaited.

Owns the hop between the two threads. Refuses to know HTTP.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from .request import AnswerRequest
from .scheduler import Scheduler
from .stream import (
    AnswerEvent,
    ContentDelta,
    Ended,
    Failed,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegun,
)


class Answer:
    """One answer on its way. Use from the event loop that made it."""

    def __init__(self, scheduler: Scheduler, request: AnswerRequest) -> None:
        """Raises what Scheduler.submit raises."""
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[AnswerEvent] = asyncio.Queue()
        self.request = request

        def deliver(event: AnswerEvent) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._ticket = scheduler.submit(request, deliver)

    async def next(self, timeout_s: float) -> AnswerEvent | None:
        """The next event; None when none came within timeout_s. The last is Ended or Failed."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._events.get()
        except TimeoutError:
            return None

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._ticket.cancel()


@dataclass(slots=True)
class ToolCall:
    """One call, whole; arguments: JSON text."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Collected:
    """An answer as a whole."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    ended: Ended | None = None

    def add(self, event: AnswerEvent) -> None:
        """Another event. Raises the error of a Failed."""
        match event:
            case ContentDelta(text, logprobs):
                self.content += text
                self.logprobs += logprobs
            case ReasoningDelta(text):
                self.reasoning += text
            case ToolCallBegun(_, id, name):
                self.tool_calls.append(ToolCall(id, name))
            case ToolCallArguments(index, text):
                self.tool_calls[index].arguments += text
            case Ended():
                self.ended = event
            case Failed(error):
                raise error


async def collect(answer: Answer) -> Collected:
    """The whole answer. Raises what ended it."""
    collected = Collected()
    while collected.ended is None:
        event = await answer.next(3600)
        if event is not None:
            collected.add(event)
    return collected
