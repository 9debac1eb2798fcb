"""What the server says of its endpoints is what it reads them by."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamoe_coordinator.serving.description import api_document, openapi
from streamoe_coordinator.serving.endpoints import ENDPOINTS, Endpoint
from streamoe_coordinator.serving.errors import BadRequest
from streamoe_coordinator.serving.fields import Unsupported, read_fields


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
    needed = {field.name: "x" for field in endpoint.api.fields if field.is_needed}
    for field in endpoint.api.fields:
        if not field.kind.schema:
            continue  # read by the API itself
        with pytest.raises(BadRequest) as caught:
            read_fields(
                [field], {field.name: {"no such": ["value"]} if field.kind.schema.get("type") != "object" else 5}
            )
        assert caught.value.param.partition(".")[0] == field.name
        assert caught.value.next_step
    assert needed


def test_null_is_as_good_as_left_out_and_strangers_are_named() -> None:
    fields = next(endpoint.api.fields for endpoint in ENDPOINTS if endpoint.path == "/v1/chat/completions")
    body = {field.name: None for field in fields if not field.is_needed}
    values, ignored = read_fields(fields, {**body, "model": "m", "messages": [{}], "zebra": 1, "ant": None})
    assert values == {"model": "m", "messages": [{}]}
    assert ignored == ("ant", "zebra")
    unsupported = [field.name for field in fields if isinstance(field.kind, Unsupported)]
    assert unsupported and all(f"| `{name}` | 400 |" in api_document() for name in unsupported)
