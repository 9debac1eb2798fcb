"""The endpoints that tell: models, health, metrics, telemetry, and Ollama's lists.

Owns their JSON where it is nobody else's. Refuses to know the scheduler's inside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from .api import sse
from .error_bodies import error_body
from .errors import NotServed, status_of
from .served import Served
from .status import Watch

_TELEMETRY_S = 0.2  # at most five a second
_STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Views:
    """The telling endpoints of one server. has_tools: whether tools may be given."""

    def __init__(self, served: Served, watch: Watch, registry: CollectorRegistry) -> None:
        self._served, self._watch, self._registry = served, watch, registry

    async def health(self, _request: Request) -> Response:
        """Whether the server lives."""
        body, is_ok, _ = self._watch.health()
        return JSONResponse(body, 200 if is_ok else 503)

    async def ready(self, _request: Request) -> Response:
        """Whether every band answers."""
        body, _, is_ready = self._watch.health()
        return JSONResponse(body, 200 if is_ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """Prometheus' text."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def telemetry(self, request: Request) -> Response:
        """One object, or one after another while somebody looks."""
        if request.query_params.get("once"):
            return JSONResponse(self._watch.telemetry())
        return StreamingResponse(self._telemetry(), media_type="text/event-stream", headers=_STREAM_HEADERS)

    async def _telemetry(self) -> AsyncIterator[bytes]:
        while True:
            yield sse(json.dumps(self._watch.telemetry(), separators=(",", ":")))
            await asyncio.sleep(_TELEMETRY_S)

    async def models(self, _request: Request) -> Response:
        """The one model."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """The same, by its name."""
        try:
            self._served.check_name(request.path_params["name"])
        except NotServed as error:
            return JSONResponse(error_body(request.url.path, error), status_of(error))
        return JSONResponse(self._model())

    async def version(self, _request: Request) -> Response:
        """Ollama's version: ours."""
        return JSONResponse({"version": version("streamoe")})

    async def tags(self, _request: Request) -> Response:
        """Ollama's list of models."""
        return JSONResponse({"models": [self._tag()]})

    async def running(self, _request: Request) -> Response:
        """Ollama's list of loaded models."""
        tag = self._tag()
        look = self._watch.look()
        far_off = "9999-12-31T23:59:59Z"
        loaded = {**tag, "size": look.footprint_bytes, "size_vram": 0, "expires_at": far_off}
        return JSONResponse({"models": [loaded] if look.bands else []})

    def show(self, name: str) -> dict[str, Any]:
        """Ollama's description of the model. Raises NotServed."""
        self._served.check_name(name)
        template = self._served.text.template
        thinking = ["thinking"] if self._served.text.has_thinking_switch else []
        return {
            "modelfile": "",
            "parameters": "",
            "template": "" if template is None else template.source,
            "details": self._tag()["details"],
            "model_info": {"general.architecture": self._facts()["family"], "streamoe": self._facts()},
            "capabilities": ["completion", "tools", *thinking],
            "modified_at": self._tag()["modified_at"],
        }

    def _model(self) -> dict[str, Any]:
        served = self._served
        return {
            "id": served.model_id,
            "object": "model",
            "created": served.created_s,
            "owned_by": "local",
            "streamoe": self._facts(),
        }

    def _facts(self) -> dict[str, Any]:
        bands, served = self._watch.look().bands, self._served
        plans = [band.plan for band in bands if band.plan is not None]
        return {
            "family": served.family,
            "budget_bytes": self._watch.look().budget_bytes,
            "ctx_tokens": None if served.scheduler.band is None else served.scheduler.band.ctx_tokens,
            "kv": plans[0].kv if plans else None,
            "vision": False,
            "thinking": served.text.has_thinking_switch,
        }

    def _tag(self) -> dict[str, Any]:
        served = self._served
        name = served.model_id if ":" in served.model_id else f"{served.model_id}:latest"
        details = {
            "parent_model": "",
            "format": "streamoe",
            "family": served.family,
            "families": [served.family],
            "parameter_size": "",
            "quantization_level": "",
        }
        made = datetime.fromtimestamp(served.created_s, UTC).isoformat().replace("+00:00", "Z")
        return {
            "name": name,
            "model": name,
            "modified_at": made,
            "size": served.model_bytes,
            "digest": served.digest,
            "details": details,
        }
