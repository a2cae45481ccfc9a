"""A replay before it begins: what would be sent, what there is to say about that, what an edit would do."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from deadletter.core.replaying.letter_diff import difference_lines
from deadletter.core.replaying.preflight import RemarkLevel, worst
from deadletter.core.replaying.replay_pace import Canary
from deadletter.core.replaying.replay_target import target_words
from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.replaying.replay_address import ADDRESS_CHARS, ReplayAsked, asked_in, tried_code
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.shown import counted
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.whoever import called
from deadletter.errors import EditRefused, UsageError
from deadletter.operations.records.records import RUN_CHARS, WHY_CHARS
from deadletter.operations.replays.replay_told import TRIED, UNCHANGED, EditTried, PreflightTold, ReplayWish
from deadletter.operations.replays.replays import Replays
from deadletter.operations.wording.pace_words import USUAL_PACES, pace_words, typed_pace
from deadletter.operations.wording.replay_line import replay_line
from deadletter.store.replays.recipe_table import Recipe

TYPED_FROM: Final = 100
"""So many letters at once, not by a canary: whoever begins that types their number."""
_DIFFERENCE_LINES: Final = 60
_FAILURES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLook:
    """What is known before it begins. `trial` None: nothing is edited."""

    wish: ReplayWish
    told: PreflightTold
    trial: EditTried | None
    code: str

    @property
    def stops(self) -> bool:
        return worst(self.told.remarks) is RemarkLevel.STOP

    @property
    def typed(self) -> bool:
        """Whether its number has to be typed: nothing holds such a replay when it goes wrong."""
        return self.told.letters >= TYPED_FROM and not isinstance(self.wish.pace, Canary)

    @property
    def samples(self) -> list[tuple[int, list[str]]]:
        """Letters that would change, each with its difference."""
        return [
            (one.letter, difference_lines(one.differences)[:_DIFFERENCE_LINES])
            for one in (self.trial.sample if self.trial is not None else ())
        ]

    @property
    def hidden(self) -> bool:
        """Whether it would change letters in a way that is not for these eyes."""
        return self.trial is not None and self.trial.changed > 0 and not self.trial.sample

    @property
    def failures(self) -> list[tuple[int, str]]:
        found = self.trial.failures[:_FAILURES] if self.trial is not None else ()
        return [(one.letter, "; ".join(one.why)) for one in found]


def start_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/replays/new")
    async def new(request: Request, asked: Annotated[ReplayAsked, Query()]) -> Response:
        replays = await sources.replays()
        look, wrong = None, ""
        if not asked.says_nothing():
            try:
                look = await _look(replays, asked, frame.now_ms())
            except (UsageError, EditRefused) as error:
                wrong = str(error)
        return await frame.page(
            request,
            "replaying/new.html",
            asked=asked,
            look=look,
            wrong=wrong,
            recipes=await _recipes(replays),
            target="" if look is None else target_words(look.wish.target),
            pace="" if look is None else pace_words(look.wish.pace),
            usual={name.value: typed_pace(one) for name, one in USUAL_PACES.items()},
            command="" if look is None else replay_line(look.wish) or "",
            run=secrets.token_hex(8),
        )

    @routes.post("/replays")
    async def start(request: Request) -> Response:
        """Begin it. What comes twice, because no answer came, is one replay."""
        form = await form_of(request)
        asked = asked_in(form.text("wish", ADDRESS_CHARS))
        if asked.says_nothing():
            raise UsageError("expected letters: a group, a search or numbers")
        replays = await sources.replays()
        look = await _look(replays, asked, frame.now_ms())
        if look.trial is not None and form.text("tried") != look.code:
            raise UsageError("the edit was not tried as it is now: look at what it would do, and begin then")
        if look.typed and form.text("count").replace(",", "").strip() != str(look.told.letters):
            raise UsageError(
                f"count: expected {look.told.letters}, as so many letters would go now; nothing was sent"
            )
        begun = await replays.start(
            look.wish,
            who=called(request),
            why=form.text("why", WHY_CHARS),
            run=form.text("run", RUN_CHARS),
            careful=not form.text("anyway"),
        )
        said = f"replay {begun.id} begins with {counted(look.told.letters)}"
        return back_to(f"/replays/{begun.id}", Said(text=said))

    return routes


async def _look(replays: Replays, asked: ReplayAsked, now_ms: int) -> StartLook:
    """UsageError, EditRefused: what nobody can do."""
    wish = asked.wish(now_ms)
    told = await replays.preflight(wish)
    trial, code = None, ""
    if wish.edit != UNCHANGED:
        selection = replace(wish.selection, vhost=wish.vhost or None)
        trial = await replays.try_edit(selection, wish.edit, limit=TRIED)
        # who does not see a recipe's program has tried it as it was saved then
        saved = await replays.recipe(wish.edit.recipe) if wish.edit.recipe else None
        code = tried_code(asked, trial.program if saved is None else f"{trial.program} {saved.made_ms}")
    return StartLook(wish=wish, told=told, trial=trial, code=code)


async def _recipes(replays: Replays) -> tuple[Recipe, ...]:
    return (await replays.recipes()).recipes
