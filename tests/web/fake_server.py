"""A server that speaks the page's JSON and answers what a test tells it to.

It is fast, slow, wrong or gone at will, which the real one cannot be: the page's own behaviour is tested against it,
and test_real_server.py holds the two together. Its plan and counts are shaped as those of `serving/__init__.py`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIB = 1024**2
CSP = (
    "default-src 'self'; img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
PLAN = [
    ("runtime", 72 * MIB, "Python and its libraries, measured now"),
    ("system", 18 * MIB, "page tables, stacks, alignment, code not loaded yet"),
    ("tokenizer", 15 * MIB, "measured while loading"),
    ("resident weights", 30 * MIB, "layers 0-15 without experts, norm and head"),
    ("KV cache", 24 * MIB, "4096 tokens, f32: 6144 B each"),
    ("recurrent state", 2 * MIB, "one sequence, float32"),
    ("scratch", 17 * MIB, "activations of 256 prompt tokens, logits"),
    ("landing slots", 1 * MIB, "10 records being read or just used"),
    ("hot tier", 13 * MIB, "190 experts of 512 kept: the rest of the cap"),
]
CAP = sum(num_bytes for _, num_bytes, _ in PLAN)
NUM_LAYERS = 16


@dataclass
class Answer:
    """What to stream: prompt progress as (done, total, seconds), thinking, text. pause_s: before each piece.

    refusal: status and error object instead of a stream. error: in the stream, after the pieces. hold: never end.
    """

    pieces: Sequence[str] = ("Hello.",)
    thinking: Sequence[str] = ()
    prefill: Sequence[tuple[int, int, float]] = ()
    pause_s: float = 0.0
    refusal: tuple[int, dict[str, Any]] | None = None
    error: dict[str, Any] | None = None
    hold: bool = False


@dataclass
class FakeServer:
    """One server on a free port of loopback. answer: from a request's body to what is streamed."""

    answer: Callable[[dict[str, Any]], Answer] = lambda _: Answer()
    vision: bool = False
    status: str = "ok"
    needs_key: bool = False
    bands: list[dict[str, Any]] = field(default_factory=list)
    footprint_bytes: int = 140 * MIB
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    num_cancelled: int = 0
    tokens_run: int = 0
    num_running: int = 0
    num_watching: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self, port: int = 0) -> None:
        """Serve on a thread until stop(); on a port of before, or any."""
        listener = socket.create_server(("127.0.0.1", port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(self._app(), lifespan="off", log_level="critical", timeout_graceful_shutdown=1)
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the server and its thread; connections are cut where they are."""
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()

    def snapshot(self) -> dict[str, Any]:
        """The telemetry of now. Layer n hits less the higher n is, so that the map has a picture."""
        picks = [4 * self.tokens_run for _ in range(NUM_LAYERS)]
        miss = [int(count * (0.06 + 0.02 * ((7 * layer) % 16))) for layer, count in enumerate(picks)]
        guess = [int((count - missed) * 0.3) for count, missed in zip(picks, miss, strict=True)]
        plan = {"items": [{"name": n, "bytes": b, "why": w} for n, b, w in PLAN], "slots": 200}
        local = {"name": "local", "first_layer": 0, "last_layer": NUM_LAYERS - 1, "state": "up", "rtt_ms": None}
        costs = {"budget_bytes": CAP, "footprint_bytes": self.footprint_bytes, "peak_bytes": self.footprint_bytes + MIB}
        return {
            "schema": 1,
            "status": self.status,
            "model": "fake-1b",
            "time_s": time.time(),
            **costs,
            "plan": plan,
            "layers": {
                "layer": list(range(NUM_LAYERS)),
                "hit": [p - g - m for p, g, m in zip(picks, guess, miss, strict=True)],
                "guess": guess,
                "miss": miss,
                "wasted": [m // 3 for m in miss],
                "bytes_read": [65536 * (g + m) for g, m in zip(guess, miss, strict=True)],
                "wait_s": [m * 1e-3 for m in miss],
            },
            "tokens_run": self.tokens_run,
            "tokens_per_s": 31.4 if self.num_running else 0.0,
            "requests": {"running": self.num_running, "waiting": 0, "max_running": 4, "max_waiting": 64},
            "prefill": [],
            "bands": self.bands or [{**local, **costs, "detail": "", "plan": plan}],
        }

    def _app(self) -> ASGIApp:
        web = str(files("streamoe_coordinator") / "serving" / "web")
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/health", self._health),
            Route("/api/telemetry", self._telemetry),
            Mount("/", StaticFiles(directory=web, html=True)),
        ]
        return _with_headers(Starlette(routes=routes))

    def _refuses(self, request: Request) -> Response | None:
        if not self.needs_key or request.headers.get("authorization") == "Bearer sesame":
            return None
        error = {"code": "Unauthorized", "message": "the API key is missing", "next_step": "send it", "type": "auth"}
        return JSONResponse({"error": error}, 401)

    async def _models(self, request: Request) -> Response:
        about = {"budget_bytes": CAP, "ctx_tokens": 4096, "vision": self.vision, "kv": "f32", "thinking": True}
        model = {"id": "fake-1b", "object": "model", "created": 0, "owned_by": "local", "streamoe": about}
        return self._refuses(request) or JSONResponse({"object": "list", "data": [model]})

    async def _health(self, request: Request) -> Response:
        failed = {"code": "PlanDoesNotFit", "message": "needs 183 MiB, cap is 100 MiB", "next_step": "--budget 183MiB"}
        body = {
            "status": self.status,
            "plan_ok": True,
            "model": "fake-1b",
            "nodes": [],
            "needs_key": self.needs_key,
            "error": failed if self.status == "failed" else None,
        }
        return JSONResponse(body, 200 if self.status == "ok" else 503)

    async def _telemetry(self, request: Request) -> Response:
        async def snapshots() -> AsyncIterator[str]:
            self.num_watching += 1
            try:
                while True:
                    yield f"data: {json.dumps(self.snapshot())}\n\n"
                    await asyncio.sleep(0.1)
            finally:
                self.num_watching -= 1

        return self._refuses(request) or StreamingResponse(snapshots(), media_type="text/event-stream")

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        answer = self.answer(body)
        if refused := self._refuses(request):
            return refused
        if answer.refusal:
            return JSONResponse({"error": answer.refusal[1]}, answer.refusal[0])
        return StreamingResponse(self._stream(answer), media_type="text/event-stream")

    async def _stream(self, answer: Answer) -> AsyncIterator[str]:
        self.num_running += 1
        try:
            yield ": keepalive\n\n"
            for done, total, elapsed_s in answer.prefill:
                progress = {"done_tokens": done, "total_tokens": total, "cached_tokens": 0, "elapsed_s": elapsed_s}
                yield f": prefill {json.dumps(progress)}\n\n"
                await asyncio.sleep(answer.pause_s)
            parts = [("reasoning_content", t) for t in answer.thinking] + [("content", t) for t in answer.pieces]
            for key, text in parts:
                await asyncio.sleep(answer.pause_s)
                self.tokens_run += 1
                yield _chunk({"delta": {key: text}, "finish_reason": None})
            if answer.error:
                yield f"data: {json.dumps({'error': answer.error})}\n\n"
                return
            while answer.hold:
                await asyncio.sleep(0.02)
            yield _chunk({"delta": {}, "finish_reason": "stop"}, timings=_TIMINGS)
            yield _chunk(None, usage={"prompt_tokens": 12, "completion_tokens": len(parts)})
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1


_TIMINGS = {
    "ttft_s": 0.21,
    "prefill_s": 0.2,
    "decode_s": 2.0,
    "tokens_per_s": 31.4,
    "wait_s": 0.1,
    "hit_rate": 0.64,
    "read_bytes": 9_000_000,
    "peak_bytes": 171 * MIB,
}


def _chunk(choice: dict[str, Any] | None, **more: Any) -> str:
    choices = [] if choice is None else [{"index": 0, **choice}]
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': choices, **more})}\n\n"


def _with_headers(app: ASGIApp) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(b"content-security-policy", CSP.encode()), (b"cache-control", b"no-cache")]
            await send(message)

        await app(scope, receive, sending)

    return wrapped
