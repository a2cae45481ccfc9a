"""What changes, as server-sent events: which lists to ask for again. Never what is in them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.responses import Response

from deadletter.desk.answers.news import LISTENERS, Bulletin, News, StillIn
from deadletter.desk.api.asked import PREFIX
from deadletter.desk.problems import problem, problems

MEDIA_TYPE: Final = "text/event-stream"
_ID_CHARS: Final = 64
_EXAMPLE: Final = (
    "retry: 3000\n\nid: 8c1f03aa-7\nevent: changed\n"
    'data: {"about": ["groups", "letters"], "at_ms": 1790812800000}\n\n: still here\n\n'
)


def event_routes(news: News) -> APIRouter:
    api = APIRouter(prefix=PREFIX, tags=["events"])

    @api.get(
        "/events",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "`changed` events, at most one a second, without end. `about` is of: audit, "
                "findings, groups, letters, policies, queues, replays, samples, service, troubles, waiting.",
                "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE}},
            },
            **problems(_503="As many listen as may; ask again in a while."),
        },
    )
    async def changes(
        request: Request,
        last_event_id: Annotated[str, Header(max_length=_ID_CHARS, examples=["8c1f03aa-7"])] = "",
        since: Annotated[str, Query(max_length=_ID_CHARS, description="Like Last-Event-ID.")] = "",
    ) -> Response:
        """Hear what changes, from now on or since the event of this id."""
        if news.listeners >= LISTENERS:
            return _full()
        return StreamingResponse(
            _stream(news, last_event_id or since, request.state.is_still_in),
            media_type=MEDIA_TYPE,
            headers={"x-accel-buffering": "no"},
        )

    return api


def _full() -> JSONResponse:
    said = f"expected fewer than {LISTENERS} who listen, got as many; ask again in a while"
    return problem(503, said, {"retry-after": "30"})


async def _stream(news: News, since: str, is_still_in: StillIn) -> AsyncIterator[str]:
    yield "retry: 3000\n\n"
    async for told in news.listen(since, is_still_in):
        yield ": still here\n\n" if told is None else _event(told)


def _event(told: Bulletin) -> str:
    data = json.dumps({"about": told.about, "at_ms": told.at_ms})
    return f"id: {told.id}\nevent: changed\ndata: {data}\n\n"
