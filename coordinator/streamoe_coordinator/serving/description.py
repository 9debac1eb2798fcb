"""The server's OpenAPI description and the table of fields for the docs, both made of the endpoints' own tables."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from .endpoints import ENDPOINTS, Endpoint
from .fields import Field, object_schema

_JSON = "application/json"
_OBJECT: dict[str, Any] = {"type": "object"}
_REFUSALS = {
    "400": "A field that cannot be honoured, or too long a prompt",
    "401": "The API key is missing or wrong",
    "403": "A Host or Origin that is not this server's",
    "404": "No such model",
    "413": "Too large a body",
    "429": "The line is full: see Retry-After",
    "503": "The model is being opened, or the server is ending",
}
_TELLING: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("/v1/models", "The model", {}),
    ("/api/tags", "The model, for Ollama's clients", {}),
    ("/api/ps", "The model in memory, for Ollama's clients", {}),
    ("/api/version", "The version", {}),
    ("/health", "Whether the server lives", {"503": "loading, draining or failed"}),
    ("/ready", "Whether every band answers", {"503": "not every one"}),
)


_INTRODUCTION = """# The server's APIs

`streamoe serve` answers at OpenAI's, Anthropic's and Ollama's endpoints; each makes the same request of the same
scheduler. This page is made of the tables that the server reads requests by (`python -m
streamoe_coordinator.serving.description`).

- **A field is honoured as the table says, or the request is refused with 400**, naming the field in `param`. null is
  as good as left out.
- **A field that no table has is ignored** and named in the response header `X-Streamoe-Ignored`; within the objects
  `options`, `stream_options`, `reasoning`, `text`, `thinking`, `output_config` and `chat_template_kwargs` it is
  refused.
- **Errors** have a code (`ContextFull`, `QueueFull`, ...), a sentence with the figures, and a remedy (`next_step`),
  in the form that the API's clients read. After the first byte of a stream they come within it. A full line answers
  429 with `Retry-After`; a prompt that does not fit the context 400 with both numbers, before anything is computed.
- **Streams** carry comment lines (`: prefill {...}`, `: keepalive` each 10 s; Anthropic's `ping` instead), so that a
  long prompt does not look like a dead server. A client that leaves ends its answer within one token, streaming or
  not.
- **Sampling**: what a request leaves out is as the model's generation_config.json says. A seed gives the same answer
  whoever else is served. Log-probabilities are the model's own, before penalties, mask and temperature. Stop
  sequences are looked for in the content, not in thinking and tool calls.
- **Thinking** is `reasoning_content` (OpenAI), a thinking block (Anthropic), `thinking` (Ollama), never part of the
  content; an effort or a budget is an upper bound: at the bound the thinking is closed.
- **Prefix reuse**: a prompt that begins as an earlier one, up to the end of its system message, of a message, or of
  an answer, is read from there; `cached_tokens` tells how much. It never changes a token.
- **`timings`** beside `usage`: seconds to the first token, tokens a second, waiting for the disk, hits, bytes read,
  peak. Those of the band include whatever ran at the same time.
- Images are refused (400): http(s) URLs are never fetched, and no model here has an image encoder yet.
- Also: `GET /v1/models`, `/api/tags`, `/api/ps`, `/api/version`, `POST /api/show`, `GET /health`, `/ready`,
  `/metrics` (Prometheus), `/api/telemetry` (server-sent events), `/openapi.json`.

The server listens on this machine alone. `--host` with another address needs `--api-key`; `--cors-origin` lets pages
of other sites ask; `--allow-host` names the server is also called by. No model folder's code is run, and chat
templates run in a sandbox.
"""


def openapi(model_id: str) -> dict[str, Any]:
    """The description; model_id stands in it as the model's only sure name."""
    paths: dict[str, Any] = {endpoint.path: {"post": _operation(endpoint, model_id)} for endpoint in ENDPOINTS}
    for path, title, more in _TELLING:
        paths[path] = {"get": {"summary": title, "responses": _responses({_JSON: {"schema": _OBJECT}}, more)}}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    model = {"summary": "The model by name", "parameters": [name], "responses": _responses(_json())}
    paths["/v1/models/{name}"] = {"get": model}
    once = {"name": "once", "in": "query", "required": True, "schema": {"enum": ["1"]}}
    telemetry = {"summary": "The server's figures", "parameters": [once], "responses": _responses(_json())}
    paths["/api/telemetry"] = {"get": telemetry}
    show = {"type": "object", "required": ["model"], "properties": {"model": {"const": model_id}}}
    paths["/api/show"] = {"post": _posting("The model, for Ollama's clients", show, _json())}
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = {"get": {"summary": "Prometheus' metrics", "responses": _responses(text)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamoe", "version": version("streamoe")},
        "paths": paths,
        "components": {
            "schemas": {"Refusal": {"type": "object", "required": ["error"]}},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def api_document() -> str:
    """docs/api.md: every field of every endpoint, and how it is honoured."""
    lines = [_INTRODUCTION]
    for endpoint in ENDPOINTS:
        lines += [f"## {endpoint.title}: POST {endpoint.path}", "", "| field | taken | how |", "|---|---|---|"]
        for field in endpoint.api.fields:
            needed = ", needed" if field.is_needed else ""
            lines.append(f"| `{field.name}` | {_taken(field)}{needed} | {field.what.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _taken(field: Field) -> str:
    schema = field.kind.schema
    if schema == {"not": {}}:
        return "400"
    if list(schema) == ["enum"]:
        values = ", ".join(f"`{value}`".replace("True", "true").replace("False", "false") for value in schema["enum"])
        return f"{values}; else 400" if field.status == "honoured" else f"{values}, changes nothing"
    return "honoured" if field.status == "honoured" else "changes nothing"


def _operation(endpoint: Endpoint, model_id: str) -> dict[str, Any]:
    schema = object_schema(endpoint.api.fields)
    schema["properties"]["model"] = {"const": model_id}
    content = _json()
    if endpoint.runs:
        content[endpoint.api.media_type] = {"schema": {}}
    return _posting(endpoint.title, schema, content)


def _posting(title: str, schema: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    body = {"required": True, "content": {_JSON: {"schema": schema}}}
    return {"summary": title, "requestBody": body, "responses": _responses(content)}


def _json() -> dict[str, Any]:
    return {_JSON: {"schema": _OBJECT}}


def _responses(content: dict[str, Any], more: dict[str, str] | None = None) -> dict[str, Any]:
    refused = {_JSON: {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    answers: dict[str, Any] = {"200": {"description": "The answer", "content": content}}
    for status, text in _REFUSALS.items():
        answers[status] = {"description": text, "content": refused}
    for status, text in (more or {}).items():
        answers[status] = {"description": text, "content": content}
    return answers


if __name__ == "__main__":  # python -m streamoe_coordinator.serving.description > docs/api.md
    sys.stdout.write(api_document())
