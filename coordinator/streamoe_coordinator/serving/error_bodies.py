"""Which API's words an error is told in: by the path that was asked. Owns nothing but that."""

from __future__ import annotations

from typing import Any

from streamoe_engine.errors import StreamoeError

from .api import openai_error
from .api.anthropic_messages import anthropic_error
from .api.ollama import ollama_error


def error_body(path: str, error: StreamoeError) -> dict[str, Any]:
    """The body of a refusal."""
    if path.startswith("/v1/messages"):
        return anthropic_error(error)
    is_ollama = path.startswith("/api/") and path != "/api/telemetry"
    return ollama_error(error) if is_ollama else openai_error(error)
