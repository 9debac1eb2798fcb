"""What the server says of its endpoints is what it reads them by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamoe_coordinator.serving.description import api_document, openapi
from streamoe_coordinator.serving.endpoints import ENDPOINTS, Endpoint
from streamoe_coordinator.serving.errors import BadRequest
from streamoe_coordinator.serving.fields import Anything, Field, Unsupported, read_fields

WRONG = (5, 1e99, "no such value", {"no such": "name"}, [[]], True)


def test_the_page_of_the_docs_is_the_tables() -> None:
    """Written anew by: python -m streamoe_coordinator.serving.description > docs/api.md"""
    page = Path(__file__).parents[3] / "docs" / "api.md"
    assert page.read_text(encoding="utf-8") == api_document()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_every_field_is_described_and_its_wrong_values_are_refused_by_name(endpoint: Endpoint) -> None:
    names = [field.name for field in endpoint.api.fields]
    assert len(set(names)) == len(names)
    described = openapi("m")["paths"][endpoint.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(described["properties"]) == set(names)
    for field in endpoint.api.fields:
        if isinstance(field.kind, Anything) and field.kind.schema.get("type") != "object":
            continue  # read by the API itself
        refused = [error for value in WRONG if (error := refusal_of(field, value)) is not None]
        assert refused, f"{field.name} takes anything"
        assert all(error.param.partition(".")[0].partition("[")[0] == field.name for error in refused)
        assert all(error.next_step for error in refused)


def refusal_of(field: Field, value: Any) -> BadRequest | None:
    try:
        read_fields([field], {field.name: value})
    except BadRequest as error:
        return error
    return None


def test_null_is_as_good_as_left_out_and_strangers_are_named() -> None:
    fields = next(endpoint.api.fields for endpoint in ENDPOINTS if endpoint.path == "/v1/chat/completions")
    body = {field.name: None for field in fields if not field.is_needed}
    values, ignored = read_fields(fields, {**body, "model": "m", "messages": [{}], "zebra": 1, "ant": None})
    assert values == {"model": "m", "messages": [{}]}
    assert ignored == ("ant", "zebra")
    unsupported = [field.name for field in fields if isinstance(field.kind, Unsupported)]
    assert unsupported and all(f"| `{name}` | 400 |" in api_document() for name in unsupported)
