"""Stored letters over HTTP: `/api/v1`. The answers are those of `operations.records`, as they stand.

Names of groups and letters in a path are numbers, or the beginning of a key or an id. Lists come in pages:
`more` is the `after` of the next one. What changes something says `who`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterOrder, LetterQuery, LetterState
from deadletter.operations.records.exact_letters import MEDIA_TYPE, NUMBERS, packed, unpacked
from deadletter.operations.records.letter_told import LetterTold
from deadletter.operations.records.records import (
    CHANGED_AT_ONCE,
    PROGRAM_CHARS,
    RUN_CHARS,
    SOURCE_CHARS,
    WHO_CHARS,
    WHY_CHARS,
    GroupChange,
    GroupPage,
    LettersChanged,
    LettersFound,
    LettersTaken,
    Records,
    SplitDone,
    StoreTold,
)
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
)

PREFIX: Final = "/api/v1"
_NAME_CHARS: Final = 255
_TEXT_CHARS: Final = 1_000
_HEADERS: Final = 20
_IDS: Final = 500
_NOTE_CHARS: Final = 4_000

Number = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=_NAME_CHARS)]
GroupName = Annotated[str, Path(max_length=_NAME_CHARS, description="Number, or the beginning of a key.")]
LetterName = Annotated[str, Path(max_length=_NAME_CHARS, description="Number, or the beginning of an id.")]


RecordsSource: TypeAlias = Callable[[], Awaitable[Records]]
"""Where the records come from: a store that is away today may be there at the next request."""


class _Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class LetterParams(_Strict):
    """Which letters: all of it must hold."""

    id: list[Number] = Field(default=[], max_length=_IDS, description="Numbers of letters.")
    vhost: Name | None = Field(default=None, description="The vhost of the queue.")
    queue: Name | None = Field(default=None, description="Where they were taken from.")
    origin: Name | None = Field(default=None, description="Where they failed.")
    group: Number | None = Field(default=None, description="The number of their group.")
    state: LetterState | Literal["any"] = LetterState.OPEN
    cause: Name | None = Field(default=None, description="Why they were put aside.")
    error: str | None = Field(default=None, max_length=_TEXT_CHARS, description="Text in the error.")
    message_id: Name | None = None
    letter_id: Name | None = None
    discard: Number | None = Field(
        default=None, description="Thrown away by this discard, and not taken back."
    )
    died_from_ms: Number | None = None
    died_until_ms: Number | None = None
    header: list[Annotated[str, Field(pattern=r"^[^=]+=", max_length=_TEXT_CHARS)]] = Field(
        default=[], max_length=_HEADERS, description="name=value; * in a value stands for any run."
    )
    text: str | None = Field(
        default=None, max_length=_TEXT_CHARS, description="Words in body, headers, ids or error."
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


class GroupParams(_Strict):
    """Which groups."""

    state: list[GroupState | Literal["any"]] = Field(default=[GroupState.OPEN], max_length=5)
    origin: Name | None = None
    category: Category | None = None
    text: str | None = Field(default=None, max_length=_TEXT_CHARS, description="Words in title or culprit.")
    order: GroupOrder = GroupOrder.LAST
    after: Number = Field(default=0, description="`more` of the page before.")
    limit: int = Field(default=50, ge=1, le=MAX_LIMIT)

    def query(self) -> GroupQuery:
        return GroupQuery(
            states=() if "any" in self.state else tuple(GroupState(state) for state in self.state),
            origin=self.origin,
            category=self.category,
            text=self.text,
            order=self.order,
            offset=self.after,
            limit=self.limit,
        )


class _Change(_Strict):
    who: str = Field(
        default="api", min_length=1, max_length=WHO_CHARS, description="Who does it, for the audit."
    )


class GroupWish(_Change):
    """What shall be otherwise."""

    state: GroupState | None = None
    until_ms: Number | None = Field(default=None, description="With snoozed: until when.")
    category: Category | None = None


class NoteWish(_Change):
    text: str = Field(max_length=_NOTE_CHARS)


class MergeWish(_Change):
    into: Name
    other: Name


class SplitWish(_Change):
    key: Name


class RegroupWish(_Change):
    pass


class LettersWish(_Change):
    ids: list[Number] = Field(min_length=1, max_length=CHANGED_AT_ONCE)
    why: str = Field(default="", max_length=WHY_CHARS)


class ThrownWish(LettersWish):
    run: str = Field(
        default="", max_length=RUN_CHARS, description="Several requests with the same one are one discard."
    )


def record_routes(records: RecordsSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["letters"])

    @api.get("/store")
    async def store() -> StoreTold:
        """Which store answers here."""
        return await (await records()).store()

    @api.get("/groups")
    async def groups(asked: Annotated[GroupParams, Query()]) -> GroupPage:
        """Groups of letters that failed alike."""
        return await (await records()).groups(asked.query())

    @api.post("/groups/merge")
    async def merge(wish: MergeWish) -> GroupView:
        """Make two groups one."""
        return await (await records()).merge(wish.into, wish.other, who=wish.who)

    @api.post("/groups/split")
    async def split(wish: SplitWish) -> SplitDone:
        """Take a merged group out again."""
        return await (await records()).split(wish.key, who=wish.who)

    @api.get("/grouping")
    async def grouping() -> GroupingTold:
        """The rules of this service, and how far stored letters follow them."""
        return await (await records()).grouping()

    @api.get("/grouping/preview")
    async def preview() -> GroupingPreview:
        """What the rules of this service would make of the letters that are stored."""
        return await (await records()).preview()

    @api.post("/grouping/regroup")
    async def regroup(wish: RegroupWish) -> GroupingTold:
        """Apply the rules of this service to stored letters, for about a second; again until it is done."""
        return await (await records()).regroup(who=wish.who)

    @api.get("/groups/{name}")
    async def group(name: GroupName) -> GroupDetail:
        """One group, and what its fingerprint was made of."""
        return await (await records()).group(name)

    @api.patch("/groups/{name}")
    async def change_group(name: GroupName, wish: GroupWish) -> GroupView:
        """Resolve, mute, snooze or open a group; say what kind of failure it is."""
        change = GroupChange(state=wish.state, until_ms=wish.until_ms, category=wish.category)
        return await (await records()).change_group(name, change, who=wish.who)

    @api.post("/groups/{name}/notes")
    async def note(name: GroupName, wish: NoteWish) -> GroupView:
        """Write something beside a group."""
        return await (await records()).note(name, wish.text, who=wish.who)

    @api.get("/letters")
    async def letters(asked: Annotated[LetterParams, Query()]) -> LettersFound:
        """A page of letters."""
        return await (await records()).letters(asked.query())

    @api.get("/facets")
    async def facets(asked: Annotated[LetterParams, Query()]) -> Facets:
        """How many letters, by queue, origin, cause, group."""
        return await (await records()).facets(asked.query())

    @api.post("/letters/discard")
    async def discard(wish: ThrownWish) -> LettersChanged:
        """Throw letters away; they can be taken back until their time is over."""
        return await (await records()).discard(wish.ids, who=wish.who, why=wish.why, run=wish.run)

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
        responses={200: {"description": "An archive of letters.", "content": {MEDIA_TYPE: {}}}},
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
        openapi_extra={"requestBody": {"required": True, "content": {MEDIA_TYPE: {}}}},
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
        responses={200: {"description": "Its bytes.", "content": {"application/octet-stream": {}}}},
    )
    async def body(name: LetterName) -> Response:
        """All of a body, byte for byte. Never shown by a browser, always saved."""
        return Response(
            await (await records()).body(name),
            media_type="application/octet-stream",
            headers={"content-disposition": 'attachment; filename="letter-body.bin"'},
        )

    return api
