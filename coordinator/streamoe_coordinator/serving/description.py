"""The server's OpenAPI description and the table of fields for the docs, both made of the endpoints' own tables."""

from __future__ import annotations

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


def fields_table() -> str:
    """Markdown: every field of every endpoint, and how it is honoured."""
    lines = []
    for endpoint in ENDPOINTS:
        lines += [f"## {endpoint.title}: POST {endpoint.path}", "", "| field | taken | how |", "|---|---|---|"]
        for field in endpoint.api.fields:
            needed = ", needed" if field.is_needed else ""
            lines.append(f"| `{field.name}` | {_taken(field)}{needed} | {field.what.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


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
