"""The doctor: where letters can be lost, multiplied, stuck or spun, and what to do about it.

He looks when somebody asks him. His last findings stay on the page until he looks again; whoever has the page
open sees that he looks, and what he found.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, ClassVar, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.text.safe_text import is_plain
from deadletter.desk.answers.in_sight import sees_all
from deadletter.desk.api.asked import NAME_CHARS
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.operating.vhosts import vhost_view
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.shown import command_line, counted, query_text
from deadletter.desk.page.whoever import person_of
from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import RULES
from deadletter.errors import DeadletterError
from deadletter.operations.outlook.outlook import FindingsTold, Outlook

PATIENCE_S: Final = 1.5
"""So long a request waits for him; a look that takes longer is told on the page."""


class DoctorAsked(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    vhost: str = Field(default="", max_length=NAME_CHARS)


class DoctorLooks:
    """His looks that are under way, and why the last one of a vhost came to nothing."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, asyncio.Task[FindingsTold]]] = {}
        self.trouble: dict[str, str] = {}

    def since(self, vhost: str) -> float | None:
        """For how many seconds he looks; None: he does not."""
        began, look = self._looks.get(vhost, (0.0, None))
        return time.monotonic() - began if look is not None and not look.done() else None

    async def begin(self, outlook: Outlook, vhost: str) -> FindingsTold | None:
        """What he found; None: it takes longer, and goes on."""
        if self.since(vhost) is None:
            look = asyncio.create_task(outlook.examine(vhost=vhost))
            look.add_done_callback(lambda done: self._ended(vhost, done))
            self._looks[vhost] = (time.monotonic(), look)
        _, look = self._looks[vhost]
        done, _ = await asyncio.wait({look}, timeout=PATIENCE_S)
        return look.result() if done else None

    def _ended(self, vhost: str, look: asyncio.Task[FindingsTold]) -> None:
        self.trouble.pop(vhost, None)
        if not look.cancelled() and isinstance(error := look.exception(), DeadletterError):
            self.trouble[vhost] = str(error)


def doctor_routes(frame: PageFrame, more: MoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    looks = DoctorLooks()

    @routes.get("/doctor")
    async def doctor(request: Request, asked: Annotated[DoctorAsked, Query()]) -> Response:
        sees_all(person_of(request))
        view = vhost_view(request, more.outlook, asked.vhost)
        told = await view.outlook.findings(vhost=view.vhost)
        return await frame.page(
            request,
            "operating/doctor.html",
            view=view,
            told=told,
            looking=looks.since(view.vhost) is not None,
            trouble=looks.trouble.get(view.vhost, ""),
            found=[_finding(one) for one in told.findings],
            figures=[
                (one.value, number)
                for one in Severity
                if (number := sum(found.severity is one for found in told.findings))
            ],
            rules=len(RULES),
            command=command_line("doctor"),
        )

    @routes.post("/doctor/look")
    async def look(request: Request) -> Response:
        form = await form_of(request)
        sees_all(person_of(request))
        view = vhost_view(request, more.outlook, form.text("vhost", NAME_CHARS))
        told = await looks.begin(view.outlook, view.vhost)
        said = "the doctor looks" if told is None else f"{counted(len(told.findings), 'finding')}"
        return back_to(f"/doctor{query_text(view.said)}", Said(text=said))

    return routes


def _finding(one: Finding) -> dict[str, object]:
    """`commands`: lines of the cure that can be copied, as they would be typed."""
    lines = one.fix.split("\n")
    commands = [line.strip() for line in lines if _is_command(line)]
    prose = "\n".join(line for line in lines if line.strip() not in commands)
    return {
        "told": one,
        "prose": prose,
        "commands": commands,
    }


def _is_command(line: str) -> bool:
    return line.strip().startswith(("rabbitmq", "dlq ")) and is_plain(line)
