"""What every route of `/api/v1` does beside its own work.

* **Reads** have an ETag. Who asks again with `If-None-Match` while nothing changed has 304, for the price of
  one small question. What the answer says of time (the last 24 hours) may be a minute old.
* **Actions** with an `Idempotency-Key` are done once: who asks again, because no answer came, has the answer
  of the first time, for a day. Another request with the same key is refused.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from deadletter.desk.access.present import person
from deadletter.desk.access.route_rights import rightful
from deadletter.desk.answers.entity_tags import is_fresh, with_freshness
from deadletter.errors import AlreadyAsked, ChangedMeanwhile, EditRefused, NotAllowed, UsageError
from deadletter.operations.journal.journal import Journal
from deadletter.store.journal.answers import KeptAnswer

JournalSource: TypeAlias = Callable[[], Awaitable[Journal]]
"""`app.state.journal`, where there is a store."""
KEY: Final = "idempotency-key"
AGAIN: Final = "idempotency-replayed"
_A_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_FRESH_S: Final = 60
_ANSWER_BYTES: Final = 256 * 1024
"""A larger answer is not kept: only to a draft there is one, and to save it twice is to save it."""
_LOOKS: Final = frozenset({"GET", "HEAD"})
_NOTHING_DONE: Final = (
    UsageError,
    EditRefused,
    ChangedMeanwhile,
    NotAllowed,
    RequestValidationError,
    HTTPException,
)
_REPEATABLE: Final = frozenset({"start", "discard"})
"""Who begins these twice with the same `run` does them once; so they may be tried again by themselves."""

_Answer: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


class DeskRoute(APIRoute):
    """Of what is in the store."""

    of_the_store: bool = True

    def get_route_handler(self) -> _Answer:
        answer = super().get_route_handler()

        async def told(request: Request) -> Response:
            await rightful(request)  # also before an answer that is there already
            source: JournalSource | None = getattr(request.app.state, "journal", None)
            if source is None:
                return await answer(request)
            if request.method in _LOOKS and self.of_the_store:
                return await _fresh(request, answer, source)
            if KEY in request.headers:
                return await _once(request, answer, source, repeatable=self.name in _REPEATABLE)
            return await answer(request)

        return told


class BrokerRoute(DeskRoute):
    """Of what is on the broker: nobody knows, without asking it, whether that is as it was."""

    of_the_store = False


def run_of(request: Request, run: str) -> str:
    """As it was said; else by the key of the request, if it has one: the same key is the same run."""
    if run or KEY not in request.headers:
        return run
    told = f"{person().called()}\n{request.headers[KEY]}"
    return hashlib.sha256(told.encode()).hexdigest()[:32]


async def freshness(source: JournalSource) -> str:
    """Another one as soon as the answer to this request may be another one."""
    told = (await (await source()).revision(), int(time.time() // _FRESH_S), repr(person()))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:24]


async def _fresh(request: Request, answer: _Answer, source: JournalSource) -> Response:
    now = await freshness(source)  # before the answer: what changes meanwhile makes another one
    if is_fresh(request.headers.get("if-none-match", ""), now):
        return Response(status_code=304, headers={"etag": request.headers["if-none-match"]})
    response = await answer(request)
    if response.status_code == 200:
        with_freshness(response, now)
    return response


async def _once(request: Request, answer: _Answer, source: JournalSource, *, repeatable: bool) -> Response:
    key, actor = request.headers[KEY], person().called()
    if not _A_KEY.fullmatch(key):
        raise UsageError("Idempotency-Key: expected 1 to 200 visible characters of ASCII")
    asked = f"{request.method} {request.url.path}?{request.url.query}"
    digest = hashlib.sha256(b"\n".join((asked.encode(), await request.body()))).hexdigest()
    journal = await source()
    known = await journal.take_key(actor, key, digest)
    if known is not None:
        if known.digest != digest:
            raise UsageError("Idempotency-Key: expected a new key for another request, got one that was used")
        if known.status is not None:
            return _again(known)
        if not repeatable:
            raise AlreadyAsked(
                "the request with this Idempotency-Key is under way, or the service ended while it was; look "
                "whether it was done before you ask with another key"
            )
    try:
        response = await answer(request)
    except _NOTHING_DONE:
        await journal.give_up_key(actor, key)
        raise
    body = bytes(response.body)
    if len(body) > _ANSWER_BYTES:
        await journal.give_up_key(actor, key)
    else:
        kind = response.headers.get("content-type", "")
        await journal.keep_answer(actor, key, status=response.status_code, kind=kind, body=body)
    return response


def _again(known: KeptAnswer) -> Response:
    assert known.status is not None
    return Response(
        known.body,
        status_code=known.status,
        headers={"content-type": known.kind, AGAIN: "true"},
    )
