"""Groups of letters that failed alike, and the rules that group them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import MAX_LIMIT
from deadletter.desk.answers.desk_route import DeskRoute
from deadletter.desk.answers.entity_tags import IfMatch, tell_version, version_of
from deadletter.desk.api.asked import PREFIX, TEXT_CHARS, AuditedWish, GroupName, Name, Number, Strict
from deadletter.desk.api.sources import RecordsSource
from deadletter.operations.records.records import GroupChange, GroupPage, SplitDone
from deadletter.store.letters.letter_views import GroupDetail, GroupingPreview, GroupingTold, GroupView

_NOTE_CHARS = 4_000


class GroupParams(Strict):
    """Which groups."""

    state: list[GroupState | Literal["any"]] = Field(default=[GroupState.OPEN], max_length=5)
    vhost: Name | None = Field(default=None, description="With letters of this vhost.")
    origin: Name | None = None
    category: Category | None = None
    text: str | None = Field(default=None, max_length=TEXT_CHARS, description="Words in title or culprit.")
    order: GroupOrder = GroupOrder.LAST
    after: Number = Field(default=0, description="`more` of the page before.")
    limit: int = Field(default=50, ge=1, le=MAX_LIMIT)

    def query(self) -> GroupQuery:
        return GroupQuery(
            states=() if "any" in self.state else tuple(GroupState(state) for state in self.state),
            vhost=self.vhost,
            origin=self.origin,
            category=self.category,
            text=self.text,
            order=self.order,
            offset=self.after,
            limit=self.limit,
        )


class GroupWish(AuditedWish):
    """What shall be otherwise."""

    state: GroupState | None = None
    until_ms: Number | None = Field(default=None, description="With snoozed: until when.")
    category: Category | None = None


class NoteWish(AuditedWish):
    text: str = Field(max_length=_NOTE_CHARS)


class MergeWish(AuditedWish):
    into: Name
    other: Name


class SplitWish(AuditedWish):
    key: Name


class RegroupWish(AuditedWish):
    pass


def group_routes(records: RecordsSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["groups"], route_class=DeskRoute)

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
    async def group(name: GroupName, response: Response) -> GroupDetail:
        """One group, and what its fingerprint was made of."""
        found = await (await records()).group(name)
        tell_version(response, found.group.version)
        return found

    @api.patch("/groups/{name}")
    async def change_group(
        name: GroupName, wish: GroupWish, response: Response, if_match: IfMatch = None
    ) -> GroupView:
        """Resolve, mute, snooze or open a group; say what kind of failure it is."""
        change = GroupChange(
            state=wish.state, until_ms=wish.until_ms, category=wish.category, version=version_of(if_match)
        )
        changed = await (await records()).change_group(name, change, who=wish.who)
        tell_version(response, changed.version)
        return changed

    @api.post("/groups/{name}/notes")
    async def note(
        name: GroupName, wish: NoteWish, response: Response, if_match: IfMatch = None
    ) -> GroupView:
        """Write something beside a group."""
        noted = await (await records()).note(name, wish.text, who=wish.who, version=version_of(if_match))
        tell_version(response, noted.version)
        return noted

    return api
