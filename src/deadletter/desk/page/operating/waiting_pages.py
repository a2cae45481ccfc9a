"""What waits: delayed, due, or held by a guard; let out now, or parked.

How many letters are in which queue is asked at every look. Their kinds need a look into the letters, which
takes them and gives them back: only whoever asks for it has that, and never by itself.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.desk.answers.in_sight import may_handle, waiting_in_sight
from deadletter.desk.api.asked import NAME_CHARS
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.page.forms import Form, form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.operating.vhosts import vhost_view
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.shown import command_line
from deadletter.desk.page.whoever import called, person_of
from deadletter.desk.view import GateStatus, ServiceView
from deadletter.errors import UsageError
from deadletter.operations.outlook.letting_out import let_out_noted, let_out_words
from deadletter.operations.outlook.outlook import LOOKED_AT
from deadletter.operations.records.records import WHY_CHARS
from deadletter.operations.waiting import WaitingChoice, Waits

LOOK: Final = 200
"""So many letters of each queue are looked into, unless somebody asks for more."""


class WaitingAsked(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    vhost: str = Field(default="", max_length=NAME_CHARS)
    origin: str = Field(default="", max_length=NAME_CHARS)
    waits: Waits | Literal[""] = ""
    look: int = Field(default=0, ge=0, le=LOOKED_AT)

    def choice(self) -> WaitingChoice:
        return WaitingChoice(origin=self.origin or None, waits=Waits(self.waits) if self.waits else None)


class LetOutAsked(WaitingAsked):
    do: Literal["release", "park"] = "release"


def waiting_routes(frame: PageFrame, service: ServiceView, more: MoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/waiting")
    async def waiting(request: Request, asked: Annotated[WaitingAsked, Query()]) -> Response:
        view = vhost_view(request, more.outlook, asked.vhost)
        told = waiting_in_sight(
            await view.outlook.waiting(asked.choice(), vhost=view.vhost, most=asked.look),
            person_of(request).scope,
        )
        return await frame.page(
            request,
            "operating/waiting.html",
            asked=asked,
            view=view,
            told=told,
            whole=person_of(request).scope.whole,
            gates=_gates(request, service),
            waits=[one.value for one in Waits],
            look=LOOK,
            command=command_line("waiting", *(["--origin", asked.origin] if asked.origin else [])),
        )

    @routes.get("/waiting/let-out")
    async def before(request: Request, asked: Annotated[LetOutAsked, Query()]) -> Response:
        """What would be let out or parked, said before it is done."""
        view = vhost_view(request, more.outlook, asked.vhost)
        may_handle(person_of(request), asked.choice(), view.vhost)
        told = await view.outlook.waiting(asked.choice(), vhost=view.vhost, most=0)
        return await frame.page(
            request,
            "operating/let_out.html",
            asked=asked,
            view=view,
            told=told,
            gates=[one for one in _gates(request, service) if not asked.origin or one.origin == asked.origin],
            command=_command(asked),
        )

    @routes.post("/waiting/let-out")
    async def let_out(request: Request) -> Response:
        form = await form_of(request)
        view = vhost_view(request, more.outlook, form.text("vhost", NAME_CHARS))
        choice = _choice(form)
        may_handle(person_of(request), choice, view.vhost)
        park = form.text("why", WHY_CHARS).strip() or "parked by hand" if form.text("do") == "park" else None
        done = await let_out_noted(
            view.outlook, more.journal, choice, vhost=view.vhost, park=park, who=called(request)
        )
        return back_to("/waiting", Said(text="; ".join(let_out_words(done, parking=park is not None))))

    return routes


def _choice(form: Form) -> WaitingChoice:
    """UsageError: nothing says which letters are meant."""
    origin, said = form.text("origin", NAME_CHARS), form.text("waits")
    if said and said not in list(Waits):
        raise UsageError(f"waits: expected one of {', '.join(Waits)}, got {said[:50]!r}")
    chosen = WaitingChoice(origin=origin or None, waits=Waits(said) if said else None)
    if chosen == WaitingChoice() and not form.text("everything"):
        raise UsageError("expected which letters are meant: an origin, what they wait for, or all that waits")
    return chosen


def _gates(request: Request, service: ServiceView) -> list[GateStatus]:
    scope = person_of(request).scope
    return [one for one in service.status().gates if scope.of_queue(one.origin)]


def _command(asked: LetOutAsked) -> str:
    said = [
        *(["--origin", asked.origin] if asked.origin else []),
        *(["--for", asked.waits] if asked.waits else []),
    ]
    return command_line("waiting", asked.do, *(said or ["--all"]))
