"""What is on the broker: what waits, queues, findings, topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from deadletter.core.access.rights import Action
from deadletter.core.grouping.letter_query import MAX_LIMIT
from deadletter.desk.access.present import person
from deadletter.desk.answers.desk_route import BrokerRoute, JournalSource
from deadletter.desk.answers.in_sight import may_handle, queues_in_sight, sees_all, waiting_in_sight
from deadletter.desk.api.asked import NAME_CHARS, PREFIX, AuditedWish, Name, Strict
from deadletter.errors import UsageError
from deadletter.operations.outlook.letting_out import let_out_noted
from deadletter.operations.outlook.outlook import (
    LOOKED_AT,
    Drawing,
    FindingsTold,
    Outlook,
    QueuePage,
    QueueQuery,
    TopologyTold,
    WaitingTold,
)
from deadletter.operations.records.records import WHY_CHARS
from deadletter.operations.waiting import LetOut, WaitingChoice, Waits

_AROUND = 50
_TYPES = {Drawing.SVG: "image/svg+xml", Drawing.MERMAID: "text/plain; charset=utf-8"}

Vhost = Annotated[
    str,
    Query(max_length=NAME_CHARS, description="One that the service looks after; empty: the broker's."),
]
Around = Annotated[
    list[Name], Query(max_length=_AROUND, description="Only what these queues are connected with.")
]


class WaitingParams(Strict):
    """Which letters: all of it must hold."""

    vhost: str = Field(default="", max_length=NAME_CHARS)
    origin: Name | None = Field(default=None, description="Where they failed; * stands for any run.")
    waits: Waits | None = Field(default=None, description="What for.")
    letter_id: Name | None = None
    most: int = Field(
        default=0,
        ge=0,
        le=LOOKED_AT,
        description="Read so many letters of each queue, taken and given back, for their kinds; 0: none.",
    )


class WaitingWish(AuditedWish):
    """Which letters: all of it must hold."""

    vhost: str = Field(default="", max_length=NAME_CHARS)
    origin: Name | None = Field(default=None, description="Where they failed; * stands for any run.")
    waits: Waits | None = None
    letter_id: Name | None = None
    everything: bool = Field(default=False, description="Needed where nothing else says which.")

    def choice(self) -> WaitingChoice:
        chosen = WaitingChoice(origin=self.origin, waits=self.waits, letter_id=self.letter_id)
        if chosen == WaitingChoice() and not self.everything:
            raise UsageError(
                "expected which letters are meant: origin, waits, letter_id, or everything for all that waits"
            )
        return chosen


class ParkWish(WaitingWish):
    why: str = Field(min_length=1, max_length=WHY_CHARS)


class ExamineWish(AuditedWish):
    vhost: str = Field(default="", max_length=NAME_CHARS)


class QueueParams(Strict):
    """Which queues."""

    vhost: str = Field(default="", max_length=NAME_CHARS)
    name: list[Name] = Field(default=[], max_length=_AROUND, description="* stands for any run.")
    dead: bool = Field(default=False, description="Only those into which dead letters come.")
    after: int = Field(default=0, ge=0, le=1_000_000, description="`more` of the page before.")
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)

    def query(self) -> QueueQuery:
        return QueueQuery(
            vhost=self.vhost, names=tuple(self.name), dead=self.dead, after=self.after, limit=self.limit
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhosts:
    """Those that the service looks after; the first one is the broker's own."""

    vhosts: tuple[str, ...]


def broker_routes(outlook: Outlook, journal: JournalSource | None) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["broker"], route_class=BrokerRoute)

    @api.get("/vhosts")
    async def vhosts() -> Vhosts:
        """Which vhosts may be asked about."""
        return Vhosts(vhosts=tuple(one for one in outlook.vhosts() if person().scope.in_vhost(one)))

    def seen(vhost: str) -> str:
        """NotAllowed: it is not theirs."""
        person().must(Action.SEE, vhost=vhost or outlook.vhosts()[0])
        return vhost

    @api.get("/waiting")
    async def waiting(asked: Annotated[WaitingParams, Query()]) -> WaitingTold:
        """Letters in delays, due, and held by a guard; at most some seconds old."""
        choice = WaitingChoice(origin=asked.origin, waits=asked.waits, letter_id=asked.letter_id)
        told = await outlook.waiting(choice, vhost=seen(asked.vhost), most=asked.most)
        return waiting_in_sight(told, person().scope)

    @api.post("/waiting/release")
    async def release(wish: WaitingWish) -> LetOut:
        """Send them home now, past their delay and past any guard."""
        return await let_out(wish, None)

    @api.post("/waiting/park")
    async def park(wish: ParkWish) -> LetOut:
        """Park them: they wait for a person."""
        return await let_out(wish, wish.why)

    async def let_out(wish: WaitingWish, why: str | None) -> LetOut:
        choice = wish.choice()
        may_handle(person(), choice, seen(wish.vhost))
        who = person().called(wish.who)
        return await let_out_noted(outlook, journal, choice, vhost=wish.vhost, park=why, who=who)

    @api.get("/queues")
    async def queues(asked: Annotated[QueueParams, Query()]) -> QueuePage:
        """The queues of a vhost: how full, how old, how busy, who looks after them."""
        seen(asked.vhost)
        return queues_in_sight(await outlook.queues(asked.query()), person().scope)

    @api.get("/findings")
    async def findings(vhost: Vhost = "") -> FindingsTold:
        """What the doctor found when he looked last."""
        sees_all(person())
        return await outlook.findings(vhost=vhost)

    @api.post("/findings/look")
    async def examine(wish: ExamineWish) -> FindingsTold:
        """Have the doctor look now. Nothing is changed."""
        sees_all(person())
        return await outlook.examine(vhost=wish.vhost)

    @api.get("/topology")
    async def topology(vhost: Vhost = "", around: Around = []) -> TopologyTold:  # noqa: B006 FastAPI's
        """Exchanges, queues and how letters go between them."""
        sees_all(person())
        return await outlook.topology(vhost=vhost, around=tuple(around))

    @api.get(
        "/topology/drawn",
        response_class=Response,
        responses={200: {"description": "A picture.", "content": {kind: {} for kind in _TYPES.values()}}},
    )
    async def drawn(
        vhost: Vhost = "",
        around: Around = [],  # noqa: B006 FastAPI's
        form: Drawing = Drawing.SVG,
    ) -> Response:
        """The same as a picture, or as a text for Mermaid."""
        sees_all(person())
        text = await outlook.drawn(vhost=vhost, around=tuple(around), form=form)
        return Response(text, headers={"content-type": _TYPES[form]})

    return api
