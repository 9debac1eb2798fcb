"""The web application: routes, the guard around them, the page.

Owns which path goes where. Refuses to know what answers are made of.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from streamoe_engine.errors import StreamoeError

from .api.ollama import OllamaChat
from .bodies import Bodies
from .description import openapi
from .endpoints import ENDPOINTS, Endpoint
from .error_bodies import error_body
from .errors import NotServed, ServingError
from .fields import Text
from .metrics import registry_of
from .routes import KEEPALIVE_S, Answering, refusal
from .security import Access, Guard
from .served import Served
from .status import Watch
from .views import Views

WEB_FOLDER = Path(__file__).parent / "web"
_CORS_HEADERS = ["authorization", "content-type", "x-api-key", "anthropic-version", "anthropic-beta"]
Handler = Callable[[Request], Awaitable[Response]]
logger = logging.getLogger(__name__)


class _BadMethod(ServingError):
    """Raised for a path that is here, asked in another way."""

    status = 405


def make_app(
    served: Served, access: Access, watch: Watch, bodies: Bodies, *, keepalive_s: float = KEEPALIVE_S
) -> Starlette:
    """The application of one server. It neither starts nor ends the scheduler."""
    answering = Answering(served, bodies, keepalive_s)
    views = Views(served, watch, registry_of(served, watch))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        answering.close()

    middleware = [Middleware(Guard, access=access)]
    if access.cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(access.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=_CORS_HEADERS,
        )
        middleware.insert(1, cors)
    app = Starlette(
        routes=[*_answering(answering), *_telling(views, bodies, served)],
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_route, Exception: _our_fault},
    )
    # Not a mount: it would take the place of 405 for an endpoint that is asked in another way.
    app.router.default = _page()
    return app


def _answering(answering: Answering) -> list[BaseRoute]:
    def handler(endpoint: Endpoint) -> Handler:
        async def handle(request: Request) -> Response:
            run = answering.answer if endpoint.runs else answering.count_tokens
            return await run(request, endpoint.api)

        return handle

    return [Route(endpoint.path, handler(endpoint), methods=["POST"]) for endpoint in ENDPOINTS]


def _telling(views: Views, bodies: Bodies, served: Served) -> list[BaseRoute]:
    described = json.dumps(openapi(served.model_id)).encode()

    async def description(_request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def show(request: Request) -> Response:
        try:
            async with bodies.json_object(request) as body:
                return JSONResponse(views.show(Text().read(body.get("model", body.get("name")), "model")))
        except StreamoeError as error:
            return refusal(OllamaChat(), error)

    return [
        Route("/health", views.health),
        Route("/ready", views.ready),
        Route("/metrics", views.metrics),
        Route("/openapi.json", description),
        Route("/v1/models", views.models),
        Route("/v1/models/{name:path}", views.model),
        Route("/api/telemetry", views.telemetry),
        Route("/api/tags", views.tags),
        Route("/api/ps", views.running),
        Route("/api/version", views.version),
        Route("/api/show", show, methods=["POST"]),
    ]


def _page() -> ASGIApp:
    if (WEB_FOLDER / "index.html").is_file():
        return _PageFiles(directory=WEB_FOLDER, html=True)
    return PlainTextResponse("streamoe is running; this installation has no page\n")


class _PageFiles(StaticFiles):
    """The page's files. A browser asks each time whether one has changed, so that no page is of two versions."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, or 304."""
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        told: ServingError = NotServed(f"there is no {path[:80]}", "see /openapi.json")
    else:
        told = _BadMethod(f"{path[:80]}: {error.detail}", "see /openapi.json")
    return JSONResponse(error_body(path, told), error.status_code, error.headers)


async def _our_fault(request: Request, error: Exception) -> Response:
    # Starlette raises it again behind this answer, so that it is logged.
    told = ServingError(
        f"the server met an error of its own: {type(error).__name__}", "report it with the server's log"
    )
    return JSONResponse(error_body(request.url.path, told), 500)
