"""The OpenAPI document: what FastAPI tells of the routes, with our problems, and an example of each answer.

The examples (`examples.json`) are real ones: `tests/web/make_examples.py` asks every route once, and a test
holds them against the document.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from deadletter.desk.problems import MEDIA_TYPE, ProblemBody

FILE: Final = Path(__file__).with_name("examples.json")
_JSON: Final = "application/json"
_PROBLEM: Final = {
    "title": "Not Found",
    "status": 404,
    "detail": "expected a letter of the store, got 99; dlq letters lists them",
}


def tell_document(app: FastAPI) -> None:
    """`/openapi.json` of this app is whole."""
    original = app.openapi

    def whole() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = original()
            document["components"]["schemas"]["Problem"] = ProblemBody.model_json_schema()
            _exemplify(document, json.loads(FILE.read_text(encoding="utf-8")))
        return original()

    app.openapi = whole  # type: ignore[method-assign]


def _exemplify(document: dict[str, Any], examples: dict[str, dict[str, Any]]) -> None:
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            example = examples.get(f"{method.upper()} {path}", {})
            for status, answer in told.get("responses", {}).items():
                kinds = answer.get("content", {})
                if MEDIA_TYPE in kinds:
                    kinds[MEDIA_TYPE]["example"] = _PROBLEM | {"status": int(status)}
                if status == "200" and _JSON in kinds and "response" in example:
                    kinds[_JSON]["example"] = example["response"]
            body = told.get("requestBody", {}).get("content", {})
            if _JSON in body and "request" in example:
                body[_JSON]["example"] = example["request"]
