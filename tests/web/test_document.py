"""The OpenAPI document: an example for every answer, and every example as the document says.

About `desk.answers.document`, `desk.api.all_routes`.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from tests.web.test_any_input import whole_document

DOCUMENT: dict[str, Any] = whole_document()
JSON = "application/json"
OPERATIONS = [
    (f"{method.upper()} {path}", told)
    for path, methods in DOCUMENT["paths"].items()
    for method, told in methods.items()
]


def keeps(schema: dict[str, Any], example: object) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(example)


@pytest.mark.parametrize(("name", "told"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_route_has_an_example_that_is_right(name: str, told: dict[str, Any]) -> None:
    assert told.get("summary")
    assert told.get("description"), f"{name} does not say what it is for"
    for status, answer in told["responses"].items():
        for kind, content in answer.get("content", {}).items():
            if kind == JSON and status == "200":
                assert "example" in content, f"{name}: run tests/web/make_examples.py"
                keeps(content["schema"], content["example"])
            elif kind.endswith("problem+json"):
                keeps(content["schema"], content["example"])
    body = told.get("requestBody", {}).get("content", {})
    if JSON in body:
        assert "example" in body[JSON], f"{name}: run tests/web/make_examples.py"
        keeps(body[JSON]["schema"], body[JSON]["example"])


def test_no_two_routes_have_one_name_for_a_client() -> None:
    names = [told["operationId"] for _, told in OPERATIONS]
    assert len(set(names)) == len(names)
