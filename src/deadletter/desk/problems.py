"""What went wrong, as `application/problem+json`: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, TypeAlias

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from deadletter.errors import (
    AlreadyAsked,
    ChangedMeanwhile,
    DeadletterError,
    EditRefused,
    JqUnavailable,
    ManagementRefused,
    NotAllowed,
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
    (EditRefused, 409),
    (AlreadyAsked, 409),
    (ChangedMeanwhile, 412),
    (ManagementRefused, 503),
    (NotAllowed, 403),
)
_SHOWN: Final = 20
_FOR_PROGRAMS: Final = ("/api/", "/metrics", "/health/", "/openapi.json", "/static/")
_EXPECTED: Final = {"/api/sweeps": '{"dlqs": ["name", …]}'}
"""Of a body that is told in a line, by its path."""


ProblemPage: TypeAlias = Callable[[Request, int, str, str], Awaitable[Response]]
"""Makes a page of request, status, title and detail."""


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    said = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(said, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


class ProblemBody(BaseModel):
    """Why a request was refused."""

    title: str
    status: int
    detail: str


def problems(**said: str) -> dict[int | str, dict[str, object]]:
    """Of a route, for OpenAPI: by status, as `_404="…"`."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        int(code[1:]): {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}
        for code, text in said.items()
    }


def tell_problems(app: FastAPI, page: ProblemPage) -> None:
    """Every error of this app becomes a problem: for a person who looks at a page, a page."""

    async def told(
        request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        if not _wants_page(request):
            return problem(status, detail, headers)
        answer = await page(request, status, HTTPStatus(status).phrase, detail)
        answer.headers.update(headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        found = [
            f"{'.'.join(map(str, one['loc'][1:])) or 'body'}: {one['msg']}" for one in error.errors()[:_SHOWN]
        ]
        expected = _EXPECTED.get(request.url.path, "what /openapi.json tells of it")
        return await told(request, 422, f"expected {expected}, got something else: {'; '.join(found)}")

    @app.exception_handler(DeadletterError)
    async def ours(request: Request, error: DeadletterError) -> Response:
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        return await told(request, status, str(error))

    @app.exception_handler(HTTPException)
    async def theirs(request: Request, error: HTTPException) -> Response:
        match error.status_code:
            case 400:  # FastAPI's, of a body that cannot be read: as of one that says something else
                return problem(422, "expected JSON in UTF-8, got something else")
            case 404:
                detail = f"nothing is at {request.url.path}; what is here stands at /"
            case 405:
                detail = f"{request.method} is not what {request.url.path} is for; see /openapi.json"
            case _:
                detail = str(error.detail)
        return await told(request, error.status_code, detail, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, _error: Exception) -> Response:
        # The server logs it with its trace; whoever asked learns nothing of our insides.
        return await told(request, 500, "the service made a mistake; its log says which")


def _wants_page(request: Request) -> bool:
    """A browser asks for a page, and what is there is for people."""
    for_people = not request.url.path.startswith(_FOR_PROGRAMS)
    return for_people and "text/html" in request.headers.get("accept", "")
