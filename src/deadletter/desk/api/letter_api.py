"""Stored letters: found, looked at, thrown away, taken back, and exact as an archive."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterOrder, LetterQuery, LetterState
from deadletter.desk.answers.desk_route import DeskRoute, run_of
from deadletter.desk.api.asked import (
    HEADERS,
    PREFIX,
    TEXT_CHARS,
    AuditedWish,
    LetterName,
    Name,
    Number,
    Strict,
)
from deadletter.desk.api.sources import RecordsSource
from deadletter.operations.records.exact_letters import MEDIA_TYPE, NUMBERS, packed, unpacked
from deadletter.operations.records.letter_told import LetterTold
from deadletter.operations.records.records import (
    CHANGED_AT_ONCE,
    PROGRAM_CHARS,
    RUN_CHARS,
    SOURCE_CHARS,
    WHO_CHARS,
    WHY_CHARS,
    LettersChanged,
    LettersFound,
    LettersTaken,
    StoreTold,
)
from deadletter.store.letters.letter_views import DiscardTold, Facets

_IDS: Final = 500
_BYTES: Final = {"schema": {"type": "string", "format": "binary"}}


class LetterParams(Strict):
    """Which letters: all of it must hold."""

    id: list[Number] = Field(default=[], max_length=_IDS, description="Numbers of letters.")
    vhost: Name | None = Field(default=None, description="The vhost of the queue.")
    queue: Name | None = Field(default=None, description="Where they were taken from.")
    origin: Name | None = Field(default=None, description="Where they failed.")
    group: Number | None = Field(default=None, description="The number of their group.")
    state: LetterState | Literal["any"] = LetterState.OPEN
    cause: Name | None = Field(default=None, description="Why they were put aside.")
    error: str | None = Field(default=None, max_length=TEXT_CHARS, description="Text in the error.")
    message_id: Name | None = None
    letter_id: Name | None = None
    discard: Number | None = Field(
        default=None, description="Thrown away by this discard, and not taken back."
    )
    died_from_ms: Number | None = None
    died_until_ms: Number | None = None
    header: list[Annotated[str, Field(pattern=r"^[^=]+=", max_length=TEXT_CHARS)]] = Field(
        default=[], max_length=HEADERS, description="name=value; * in a value stands for any run."
    )
    text: str | None = Field(
        default=None, max_length=TEXT_CHARS, description="Words in body, headers, ids or error."
    )
    where: str | None = Field(
        default=None, max_length=PROGRAM_CHARS, description="A jq program over {body, headers, properties}."
    )
    order: LetterOrder = LetterOrder.NEWEST
    after: Number | None = Field(default=None, description="`more` of the page before.")
    limit: int = Field(default=50, ge=1, le=MAX_LIMIT)

    def query(self) -> LetterQuery:
        named = (one.partition("=") for one in self.header)
        return LetterQuery(
            ids=tuple(self.id),
            vhost=self.vhost,
            queue=self.queue,
            origin=self.origin,
            group=self.group,
            state=None if self.state == "any" else LetterState(self.state),
            cause=self.cause,
            error=self.error,
            message_id=self.message_id,
            letter_id=self.letter_id,
            discard=self.discard,
            died_from_ms=self.died_from_ms,
            died_until_ms=self.died_until_ms,
            headers=tuple((name, value) for name, _, value in named),
            text=self.text,
            where=self.where,
            order=self.order,
            after=self.after,
            limit=self.limit,
        )


class LettersWish(AuditedWish):
    ids: list[Number] = Field(min_length=1, max_length=CHANGED_AT_ONCE)
    why: str = Field(default="", max_length=WHY_CHARS)


class ThrownWish(LettersWish):
    run: str = Field(
        default="", max_length=RUN_CHARS, description="Several requests with the same one are one discard."
    )


def letter_routes(records: RecordsSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["letters"], route_class=DeskRoute)

    @api.get("/store")
    async def store() -> StoreTold:
        """Which store answers here."""
        return await (await records()).store()

    @api.get("/letters")
    async def letters(asked: Annotated[LetterParams, Query()]) -> LettersFound:
        """A page of letters."""
        return await (await records()).letters(asked.query())

    @api.get("/facets")
    async def facets(asked: Annotated[LetterParams, Query()]) -> Facets:
        """How many letters, by queue, origin, cause, group."""
        return await (await records()).facets(asked.query())

    @api.post("/letters/discard")
    async def discard(wish: ThrownWish, request: Request) -> LettersChanged:
        """Throw letters away; they can be taken back until their time is over."""
        run = run_of(request, wish.run)
        return await (await records()).discard(wish.ids, who=wish.who, why=wish.why, run=run)

    @api.get("/discards/last")
    async def last_discard(who: Annotated[str, Query(min_length=1, max_length=WHO_CHARS)]) -> DiscardTold:
        """What this person threw away last; `discard` of a query finds its letters."""
        return await (await records()).last_discard(who)

    @api.post("/letters/take-back")
    async def take_back(wish: LettersWish) -> LettersChanged:
        """Undo a discard."""
        return await (await records()).take_back(wish.ids, who=wish.who, why=wish.why)

    @api.get(
        "/archive",
        response_class=Response,
        responses={200: {"description": "An archive of letters.", "content": {MEDIA_TYPE: _BYTES}}},
    )
    async def exact(
        id_: Annotated[list[Number], Query(alias="id", min_length=1, max_length=_IDS)],
    ) -> Response:
        """Letters, exact, as far as they fit into some megabytes; a header says which they are."""
        found = await (await records()).exact(id_)
        return Response(
            await asyncio.to_thread(packed, found.values()),
            media_type=MEDIA_TYPE,
            headers={
                NUMBERS: ",".join(map(str, found)),
                "content-disposition": 'attachment; filename="letters.dlq"',
            },
        )

    @api.post(
        "/archive",
        openapi_extra={"requestBody": {"required": True, "content": {MEDIA_TYPE: _BYTES}}},
    )
    async def put(
        request: Request,
        who: Annotated[str, Query(min_length=1, max_length=WHO_CHARS)] = "api",
        source: Annotated[str, Query(max_length=SOURCE_CHARS, description="For the audit.")] = "",
    ) -> LettersTaken:
        """Put exact letters into the store; what is there already is not put there twice."""
        letters = await asyncio.to_thread(unpacked, await request.body())
        return await (await records()).put(letters, who=who, source=source)

    @api.get("/letters/{name}")
    async def letter(name: LetterName) -> LetterTold:
        """One letter, whole but for a long body."""
        return await (await records()).letter(name)

    @api.get(
        "/letters/{name}/body",
        response_class=Response,
        responses={200: {"description": "Its bytes.", "content": {"application/octet-stream": _BYTES}}},
    )
    async def body(name: LetterName) -> Response:
        """All of a body, byte for byte. Never shown by a browser, always saved."""
        return Response(
            await (await records()).body(name),
            media_type="application/octet-stream",
            headers={"content-disposition": 'attachment; filename="letter-body.bin"'},
        )

    return api
