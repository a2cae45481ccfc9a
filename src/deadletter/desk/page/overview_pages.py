"""The overview: is everything all right, in one glance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fastapi import APIRouter, Request, Response

from deadletter.core.access.scope import Scope
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.desk.answers.in_sight import samples_in_sight
from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.glance import fails_again, glance, is_growing, is_new
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.shown import counted
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.whoever import person_of
from deadletter.desk.view import QueueStatus, ServiceView, SweepState
from deadletter.errors import StoreError
from deadletter.operations.journal.journal import SampleQuery
from deadletter.operations.records.records import GroupLine
from deadletter.operations.replays.replay_told import ReplayTold

GROUPS: Final = 100
"""So many open groups are looked at, the last ones."""
SHOWN: Final = 8
QUEUES: Final = 50
SAMPLED: Final = 100
POINTS: Final = 96
"""Of a chart: a quarter of an hour each."""
_GOING: Final = (ReplayState.FREEZING, ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the store tells the overview. `away`: why it tells nothing; `off`: there is none."""

    groups: tuple[GroupLine, ...] = ()
    more: bool = False
    open: int = 0
    replays: tuple[ReplayTold, ...] = field(default=())
    away: str = ""
    off: bool = False


async def stored(sources: StoreSources) -> Stored:
    if sources.records_source is None:
        return Stored(off=True)
    try:
        records = await sources.records()
        page = await records.groups(GroupQuery(limit=GROUPS))
        total = (await records.facets(LetterQuery())).total
        going: tuple[ReplayTold, ...] = ()
        if sources.replays_source is not None:
            going = (await (await sources.replays()).replays(_GOING, limit=SHOWN)).replays
    except StoreError as error:
        return Stored(away=str(error))
    return Stored(groups=page.groups, more=page.more is not None, open=total, replays=going)


async def depths(sources: StoreSources, scope: Scope) -> dict[tuple[str, str], list[int]]:
    """How deep each queue was in the last day, by vhost and name, the oldest first; none that nobody kept."""
    if sources.more.journal is None:
        return {}
    try:
        asked = SampleQuery(points=POINTS, limit=SAMPLED)
        page = samples_in_sight(await (await sources.more.journal()).samples(asked), scope)
    except StoreError:
        return {}  # the page says that it is away
    return {(one.vhost, one.queue): [point.depth_most for point in one.points] for one in page.queues}


def overview_routes(frame: PageFrame, service: ServiceView, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def overview(request: Request) -> Response:
        status, now_ms = service.status(), frame.now_ms()
        told = await stored(sources)
        deep = await depths(sources, person_of(request).scope)
        groups = sorted(told.groups, key=lambda one: _urgent(one, now_ms))
        return await frame.page(
            request,
            "overview.html",
            status=200,
            service=status,
            stored=told,
            groups=groups[:SHOWN],
            marks={one.id: _marks(one, now_ms) for one in groups[:SHOWN]},
            queues=[(one, _curve(deep, one)) for one in sorted(status.queues, key=_fullest)[:QUEUES]],
            several=len({one.vhost for one in status.queues}) > 1,
            left_out=max(len(status.queues) - QUEUES, 0),
            held=sum(gate.held for gate in status.gates),
            glance=glance(status, groups=told.groups, replays=told.replays, away=told.away, now_ms=now_ms),
        )

    @routes.post("/sweeps")
    async def sweep(request: Request) -> Response:
        """All queues whose watch does not consume."""
        form = await form_of(request)
        answers = await service.sweep(())
        moved, left = sum(one.moved for one in answers), sum(one.left for one in answers)
        said = f"{counted(len(answers), 'queue')} swept: {counted(moved)} moved, {left:,} left"
        failed = [one for one in answers if one.state is SweepState.FAILED]
        if failed:
            said += f"; {failed[0].dlq} failed: {failed[0].why}"
        return back_to(form.text("back"), Said(text=said))

    return routes


def _curve(deep: dict[tuple[str, str], list[int]], queue: QueueStatus) -> list[int]:
    """Where nobody said its vhost, that of any queue of its name."""
    if queue.vhost:
        return deep.get((queue.vhost, queue.queue), [])
    return next((one for (_, name), one in deep.items() if name == queue.queue), [])


def _urgent(group: GroupLine, now_ms: int) -> tuple[bool, bool, bool, int]:
    """What needs a person first stands first."""
    return not fails_again(group), not is_new(group, now_ms), not is_growing(group), -group.last_ms


def _marks(group: GroupLine, now_ms: int) -> tuple[str, ...]:
    named = (("new", is_new(group, now_ms)), ("growing", is_growing(group)))
    return tuple(word for word, holds in named if holds)


def _fullest(queue: QueueStatus) -> tuple[bool, int, str]:
    """Watched ones first, full ones before empty ones."""
    return not queue.mode, -queue.depth, queue.queue
