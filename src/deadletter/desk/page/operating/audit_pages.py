"""The audit: who did what, when, to what, and what came of it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.letter.moments import past_ms
from deadletter.desk.access.typed_texts import audit_without_texts
from deadletter.desk.api.asked import TEXT_CHARS
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.page.forms import whole_number
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.shown import plain
from deadletter.desk.page.store_sources import NO_STORE
from deadletter.errors import StoreUnreachable, UsageError
from deadletter.operations.records.records import WHO_CHARS
from deadletter.store.journal.audit_list import AuditEntry, AuditQuery

PAGE: Final = 50
_SHORT = Field(default="", max_length=60)


class AuditAsked(BaseModel):
    """The address. Times as people type them: `2h`, or 2025-06-01T12:00."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    who: str = Field(default="", max_length=WHO_CHARS)
    action: str = Field(default="", max_length=TEXT_CHARS)
    letter: str = _SHORT
    group: str = _SHORT
    replay: str = _SHORT
    since: str = _SHORT
    until: str = _SHORT
    after: int | None = Field(default=None, ge=0, lt=2**63)

    def query(self, now_ms: int) -> AuditQuery:
        """UsageError: a number or a time that is none."""

        def number(name: str) -> int | None:
            said = str(getattr(self, name)).strip()
            return whole_number(name, said) if said else None

        def moment(name: str) -> int | None:
            said = str(getattr(self, name)).strip()
            return past_ms(name, said, now_ms) if said else None

        return AuditQuery(
            who=self.who.strip() or None,
            action=self.action.strip() or None,
            letter=number("letter"),
            group=number("group"),
            replay=number("replay"),
            from_ms=moment("since"),
            until_ms=moment("until"),
            after=self.after,
            limit=PAGE,
        )

    def said(self) -> dict[str, object]:
        named = self.model_dump(exclude={"after"})
        return {name: value for name, value in named.items() if value}


def audit_routes(frame: PageFrame, more: MoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/audit")
    async def audit(request: Request, asked: Annotated[AuditAsked, Query()]) -> Response:
        if more.journal is None:
            raise StoreUnreachable(NO_STORE)
        page, wrong = None, ""
        try:
            page = await (await more.journal()).audit(asked.query(frame.now_ms()))
            page = audit_without_texts(page) if request.state.masks else page
        except UsageError as error:
            wrong = str(error)
        return await frame.page(
            request,
            "operating/audit.html",
            asked=asked,
            said_so=asked.said(),
            wrong=wrong,
            entries=[] if page is None else [(one, _facts(one)) for one in page.entries],
            more=None if page is None else page.more,
        )

    return routes


def _facts(entry: AuditEntry) -> list[tuple[str, str]]:
    """What was written down of it, name by name; nothing that says nothing, nothing that is said beside."""
    beside = {"letter": entry.letter, "group": entry.group, "replay": entry.replay}
    return [
        (name.replace("_", " "), plain(value))
        for name, value in entry.detail.items()
        if value not in (None, "", [], {}) and value != beside.get(name)
    ]
