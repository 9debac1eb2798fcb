"""The endpoints that answer: read the body, prepare, submit, and word what comes.

Owns the way of one request through the parts, and its end when the client goes, streaming or not. Refuses to know
any API's words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from streamoe_engine.errors import StreamoeError

from .answering import Answer, collect
from .api import Api, StreamWriter, progress_comment
from .bodies import Bodies
from .errors import NotReady, QueueFull, status_of
from .fields import read_fields
from .log import log_answer
from .prompts import prepare
from .request import AnswerRequest, Asked
from .served import Served
from .stream import Ended, Failed, Progress

KEEPALIVE_S = 10.0
GONE_STATUS = 499  # nobody reads it; what proxies log for a client that left
IGNORED_HEADER = "x-streamoe-ignored"
_SSE = "text/event-stream"
Value = TypeVar("Value")
logger = logging.getLogger(__name__)


class Answering:
    """The answering endpoints of one server."""

    def __init__(self, served: Served, bodies: Bodies, keepalive_s: float = KEEPALIVE_S) -> None:
        self._served, self._bodies, self._keepalive_s = served, bodies, keepalive_s
        # One thread: the memory of preparing is planned for one prompt at a time.
        self._preparing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare")

    def close(self) -> None:
        """End the preparing thread."""
        self._preparing.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: Request, api: Api) -> Response:
        """One request, answered."""
        try:
            async with self._bodies.json_object(request) as body:
                values, ignored = read_fields(api.fields, body)
                asked, reply = api.read(values, self._served)
                prepared = await self._prepare(request, asked)
            answer = Answer(self._served.scheduler, prepared)
            headers = {IGNORED_HEADER: _header_text(ignored)} if ignored else {}
            headers["x-request-id"] = prepared.id
            if reply.is_streamed:
                return EventStream(answer, reply.writer(prepared), api.media_type, headers, self._keepalive_s)
            collected = await until_gone(request, collect(answer), answer)
            if collected is None:
                return Response(status_code=GONE_STATUS)
            assert collected.ended is not None
            log_answer(prepared.id, collected.ended)
            return JSONResponse(reply.whole(prepared, collected), headers=headers)
        except StreamoeError as error:
            return refusal(api, error)

    async def count_tokens(self, request: Request, api: Api) -> Response:
        """Anthropic's count of a prompt's tokens; nothing is run."""
        try:
            async with self._bodies.json_object(request) as body:
                values, ignored = read_fields(api.fields, body)
                asked, _ = api.read(values, self._served)
                prepared = await self._prepare(request, asked)
            headers = {IGNORED_HEADER: _header_text(ignored)} if ignored else {}
            return JSONResponse({"input_tokens": len(prepared.prompt.tokens)}, headers=headers)
        except StreamoeError as error:
            return refusal(api, error)

    async def _prepare(self, request: Request, asked: Asked) -> AnswerRequest:
        served = self._served
        if served.scheduler.band is None:
            raise served.scheduler.error or NotReady("the model is being opened", "try again in a moment")
        host = request.client.host if request.client else ""
        job = partial(
            prepare,
            replace(asked, client=f"{host} {asked.client}"),
            served.text,
            served.fittings,
            vocab_size=served.vocab_size,
            ctx_tokens=served.scheduler.band.ctx_tokens,
        )
        return await asyncio.get_running_loop().run_in_executor(self._preparing, job)


class EventStream(Response):
    """An answer as it comes. When the client goes the answer is cancelled, also before the first token."""

    def __init__(
        self, answer: Answer, writer: StreamWriter, media_type: str, headers: dict[str, str], keepalive_s: float
    ) -> None:
        super().__init__(headers=headers | {"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.headers["content-type"] = f"{media_type}; charset=utf-8"
        self._answer, self._writer, self._keepalive_s = answer, writer, keepalive_s
        self._has_comments = media_type == _SSE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(cancel_when_gone(receive, self._answer))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, self._writer.begin())
            is_over = False
            while not is_over:
                event = await self._answer.next(self._keepalive_s)
                is_over = isinstance(event, Ended | Failed)
                await self._send(send, self._words(event))
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._answer.cancel()
            leaving.cancel()

    def _words(self, event: Any) -> bytes:
        match event:
            case None:
                return self._writer.idle()
            case Progress():
                return progress_comment(event) if self._has_comments else b""
            case Failed(error):
                logger.warning("request %s failed: %s", self._answer.request.id, error.message)
                return self._writer.failed(error)
            case Ended():
                log_answer(self._answer.request.id, event)
        return self._writer.event(event)

    @staticmethod
    async def _send(send: Send, words: bytes) -> None:
        if words:
            await send({"type": "http.response.body", "body": words, "more_body": True})


async def cancel_when_gone(receive: Receive, answer: Answer) -> None:
    """Wait for the client to go; then nobody waits for the answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cancel()


async def until_gone(request: Request, work: Coroutine[Any, Any, Value], answer: Answer) -> Value | None:
    """The result of `work`; None when the client went first. An awaited handler would not notice by itself."""
    leaving = asyncio.create_task(cancel_when_gone(request.receive, answer))
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({leaving, working}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        answer.cancel()
        leaving.cancel()
        if not working.done():
            working.cancel()


def refusal(api: Api, error: StreamoeError) -> Response:
    """The answer to what cannot be answered."""
    headers = {"retry-after": str(error.retry_after_s)} if isinstance(error, QueueFull) else {}
    return JSONResponse(api.error(error), status_of(error), headers)


def _header_text(names: tuple[str, ...]) -> str:
    # A name may hold what no header can, and a header neither begins nor ends with a blank.
    shown = ", ".join(names)[:200]
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in shown).strip()
