"""Requests made from the server's own description, right ones and wrong ones: never a 500, always as described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

from streamoe_coordinator.serving.description import openapi
from tests.coordinator.serving.server import ServerProcess

MODEL = "tiny"
pytestmark = pytest.mark.slow
DESCRIBED = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# Strings, lists and objects that the schemas leave open may be wrong in ways they do not say.
ALWAYS_RIGHT = ("/v1/models", "/api/tags", "/api/ps", "/api/version", "/health", "/ready", "/metrics")


@pytest.fixture(scope="module")
def tiny_server(clean_environment: dict[str, str], small_folder: Path) -> Iterator[ServerProcess]:
    """A tiny random model with a short context, so that every answer is short."""
    with ServerProcess(
        clean_environment, small_folder, "--budget", "300MiB", "--ctx", "96", "--alias", MODEL
    ) as process:
        yield process


SCHEMA = schemathesis.openapi.from_dict(openapi(MODEL))
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_breaks_the_server(tiny_server: ServerProcess, label: str, mode: GenerationMode) -> None:
    operation = OPERATIONS[label]
    checks = [*DESCRIBED, positive_data_acceptance] if operation.path in ALWAYS_RIGHT else DESCRIBED

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    def run(case: Any) -> None:
        response = case.call(base_url=tiny_server.url, timeout=60)
        case.validate_response(response, checks=checks)

    if mode is GenerationMode.NEGATIVE and not operation.body:
        pytest.skip("nothing to get wrong")
    run()


def test_the_server_has_lived(tiny_server: ServerProcess) -> None:
    status, health = tiny_server.get("/health")
    assert (status, health["status"]) == (200, "ok")
    tiny_server.wait_idle()
    assert not any("Traceback" in line for line in tiny_server.lines), "\n".join(tiny_server.lines[-60:])
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    assert tiny_server.post("/v1/chat/completions", body)[0] == 200
