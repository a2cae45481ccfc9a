"""All pages, put together."""

from __future__ import annotations

import time
from typing import Final

from fastapi import FastAPI, Request, Response

from deadletter.core.access.scope import Scope
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.desk.api.sources import NO_MORE, MoreSources, RecordsSource, ReplaysSource
from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import THEME, THEMES, NavCounts, PageFrame
from deadletter.desk.page.group_pages import group_routes
from deadletter.desk.page.letter_pages import letter_routes
from deadletter.desk.page.operating.audit_pages import audit_routes
from deadletter.desk.page.operating.doctor_pages import doctor_routes
from deadletter.desk.page.operating.policy_pages import policy_routes
from deadletter.desk.page.operating.topology_pages import topology_routes
from deadletter.desk.page.operating.waiting_pages import waiting_routes
from deadletter.desk.page.overview_pages import overview_routes
from deadletter.desk.page.replaying.deploy_pages import deploy_routes
from deadletter.desk.page.replaying.recipe_pages import recipe_routes
from deadletter.desk.page.replaying.replay_pages import replay_routes
from deadletter.desk.page.replaying.start_pages import start_routes
from deadletter.desk.page.said import back_to
from deadletter.desk.page.search_pages import search_routes
from deadletter.desk.page.static_files import static_routes
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.view_pages import view_routes
from deadletter.desk.view import ServiceView
from deadletter.errors import DeadletterError

_YEAR_S: Final = 31_536_000
_COUNTED_S: Final = 5.0
_GROUPS: Final = 100
_SCOPES: Final = 100


def add_pages(
    app: FastAPI,
    service: ServiceView,
    records: RecordsSource | None = None,
    replays: ReplaysSource | None = None,
    more: MoreSources = NO_MORE,
) -> PageFrame:
    """Every page of the desk, in the app. The frame is what error pages are made with."""
    frame = PageFrame(_Counting(records))
    sources = StoreSources(records_source=records, replays_source=replays, more=more)
    app.include_router(static_routes())
    app.include_router(overview_routes(frame, service, sources))
    app.include_router(group_routes(frame, sources))
    app.include_router(search_routes(frame, sources))
    app.include_router(letter_routes(frame, sources))
    for of_store in (start_routes, recipe_routes, deploy_routes, replay_routes, policy_routes):
        app.include_router(of_store(frame, sources))
    app.include_router(waiting_routes(frame, service, more))
    app.include_router(view_routes(more))
    for of_more in (doctor_routes, topology_routes, audit_routes):
        app.include_router(of_more(frame, more))

    @app.post("/theme", include_in_schema=False)
    async def theme(request: Request) -> Response:
        """Light, dark, or as the system: without scripts, and there before the first paint."""
        form = await form_of(request)
        answer = back_to(form.text("back"))
        chosen = form.text("theme")
        if chosen in THEMES:
            answer.set_cookie(THEME, chosen, max_age=_YEAR_S, httponly=True, samesite="strict", path="/")
        return answer

    return frame


class _Counting:
    """The counts of the navigation: asked for every few seconds at most, whoever of those who see the same
    looks."""

    def __init__(self, records: RecordsSource | None) -> None:
        self._records = records
        self._told: dict[Scope, tuple[float, NavCounts]] = {}

    async def __call__(self, scope: Scope) -> NavCounts:
        now = time.monotonic()
        until, told = self._told.get(scope, (0.0, NavCounts(by_path={})))
        if self._records is None or now < until:
            return told
        if len(self._told) > _SCOPES:
            self._told.clear()
        self._told[scope] = now + _COUNTED_S, told  # whoever comes meanwhile does not ask, too
        try:
            records = await self._records()
            found = await records.groups(GroupQuery(limit=_GROUPS))
            total = (await records.facets(LetterQuery())).total
        except DeadletterError:
            told = NavCounts(by_path={})  # the page says it
        else:
            groups = f"{len(found.groups)}{'+' if found.more is not None else ''}"
            told = NavCounts(by_path={"/groups": groups, "/letters": _short(total)})
        self._told[scope] = now + _COUNTED_S, told
        return told


def _short(number: int) -> str:
    """`950`, `12 k`, `3.4 M`."""
    if number < 10_000:
        return f"{number:,}"
    if number < 1_000_000:
        return f"{number // 1_000} k"
    return f"{number / 1_000_000:.1f} M"
