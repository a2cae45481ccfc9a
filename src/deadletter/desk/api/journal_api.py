"""Who did what, and how queues were over time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from deadletter.core.grouping.letter_query import MAX_LIMIT
from deadletter.desk.access.present import person
from deadletter.desk.access.typed_texts import audit_without_texts
from deadletter.desk.answers.desk_route import DeskRoute, JournalSource
from deadletter.desk.answers.in_sight import samples_in_sight
from deadletter.desk.api.asked import PREFIX, TEXT_CHARS, Name, Number, Strict
from deadletter.operations.journal.journal import (
    POINTS,
    QUEUES,
    AuditPage,
    InstancesTold,
    SamplePage,
    SampleQuery,
)
from deadletter.operations.records.records import WHO_CHARS
from deadletter.store.journal.audit_list import AuditQuery


class AuditParams(Strict):
    """Which entries: all of it must hold."""

    who: Annotated[str, Field(min_length=1, max_length=WHO_CHARS)] | None = None
    action: Annotated[str, Field(min_length=1, max_length=TEXT_CHARS)] | None = Field(
        default=None, description="resolved, discarded, edited, replay, …"
    )
    letter: Number | None = Field(default=None, description="The number of a letter.")
    group: Number | None = Field(default=None, description="The number of a group.")
    replay: Number | None = Field(default=None, description="The number of a replay.")
    from_ms: Number | None = None
    until_ms: Number | None = None
    after: Number | None = Field(default=None, description="`more` of the page before.")
    limit: int = Field(default=50, ge=1, le=MAX_LIMIT)

    def query(self) -> AuditQuery:
        return AuditQuery(**self.model_dump())


class SampleParams(Strict):
    """Which queues, and when. Minutes are kept for a day, hours for 90 days."""

    vhost: Name | None = None
    queue: Name | None = None
    from_ms: Number | None = Field(default=None, description="A day before `until_ms`, unless it is said.")
    until_ms: Number | None = Field(default=None, description="Now, unless it is said.")
    points: int = Field(default=120, ge=1, le=POINTS, description="About so many of each queue.")
    after: int = Field(default=0, ge=0, le=1_000_000, description="`more` of the page before.")
    limit: int = Field(default=50, ge=1, le=QUEUES)

    def query(self) -> SampleQuery:
        return SampleQuery(**self.model_dump())


def journal_routes(journal: JournalSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["journal"], route_class=DeskRoute)

    @api.get("/audit")
    async def audit(request: Request, asked: Annotated[AuditParams, Query()]) -> AuditPage:
        """Who did what, the newest first."""
        page = await (await journal()).audit(asked.query())
        return audit_without_texts(page) if request.state.masks else page

    @api.get("/instances")
    async def instances() -> InstancesTold:
        """The instances of the service that use this store."""
        return await (await journal()).instances()

    @api.get("/samples")
    async def samples(asked: Annotated[SampleParams, Query()]) -> SamplePage:
        """How watched queues and ours were: depth, age, letters in and out."""
        return samples_in_sight(await (await journal()).samples(asked.query()), person().scope)

    return api
