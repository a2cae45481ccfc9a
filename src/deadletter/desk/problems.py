"""What went wrong, as `application/problem+json`: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from deadletter.errors import (
    DeadletterError,
    JqUnavailable,
    NotStored,
    QueueMissing,
    StoreError,
    UsageError,
    WireError,
)

MEDIA_TYPE: Final = "application/problem+json"
_STATUS: Final[tuple[tuple[type[DeadletterError], int], ...]] = (
    (NotStored, 404),
    (UsageError, 422),
    (QueueMissing, 404),
    (WireError, 503),
    (StoreError, 503),
    (JqUnavailable, 503),
)
_SHOWN: Final = 20
_EXPECTED: Final = {"/api/sweeps": '{"dlqs": ["name", …]}'}
"""Of a body that is told in a line, by its path."""


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    said = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(said, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def tell_problems(app: FastAPI) -> None:
    """Every error of this app becomes a problem."""

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            f"{'.'.join(map(str, one['loc'][1:])) or 'body'}: {one['msg']}" for one in error.errors()[:_SHOWN]
        ]
        expected = _EXPECTED.get(request.url.path, "what /openapi.json tells of it")
        return problem(422, f"expected {expected}, got something else: {'; '.join(found)}")

    @app.exception_handler(DeadletterError)
    async def ours(_request: Request, error: DeadletterError) -> JSONResponse:
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        return problem(status, str(error))

    @app.exception_handler(HTTPException)
    async def theirs(request: Request, error: HTTPException) -> JSONResponse:
        match error.status_code:
            case 404:
                detail = f"nothing is at {request.url.path}; what is here stands at /"
            case 405:
                detail = f"{request.method} is not what {request.url.path} is for; see /openapi.json"
            case _:
                detail = str(error.detail)
        return problem(error.status_code, detail, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, _error: Exception) -> JSONResponse:
        # The server logs it with its trace; whoever asked learns nothing of our insides.
        return problem(500, "the service made a mistake; its log says which")
