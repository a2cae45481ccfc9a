"""Replays: the list, and one that goes or went, with what became of each letter."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deadletter.core.replaying.replay_pace import pace_from
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.replaying.drawings import replay_bar
from deadletter.desk.page.replaying.replay_address import PaceAsked, search_of, which_words
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.whoever import called
from deadletter.errors import UsageError
from deadletter.operations.replays.next_commands import next_lines
from deadletter.operations.replays.replay_told import OutcomeState, OutcomeTold, ReplayTold
from deadletter.operations.wording.pace_words import USUAL_PACES, TypedPace, pace_words, typed_pace
from deadletter.operations.wording.replay_words import (
    OUTCOMES,
    OutcomeWord,
    became_words,
    counts_words,
    left_words,
    origins_words,
    outcome_counts,
    told_pace,
    told_target,
    waits_words,
)
from deadletter.operations.wording.turning import TURNED, Turn, turn

PAGE: Final = 50
GOING: Final = (ReplayState.FREEZING, ReplayState.RUNNING, ReplayState.PAUSED)
_TABS: Final[dict[str, tuple[ReplayState, ...]]] = {
    "any": (),
    "going": GOING,
    "done": (ReplayState.DONE,),
    "stopped": (ReplayState.STOPPED,),
    "cancelled": (ReplayState.CANCELLED,),
}
_TONES: Final = {
    OutcomeState.DONE: "good",
    OutcomeState.RETURNED: "bad",
    OutcomeState.REFUSED: "bad",
    OutcomeState.SENT: "info",
    OutcomeState.SENDING: "info",
}
ReplayNumber = Annotated[int, Path(ge=1, lt=2**63)]


class ReplaysAsked(BaseModel):
    """The address of the list."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    state: Literal["any", "going", "done", "stopped", "cancelled"] = "any"
    after: int | None = Field(default=None, ge=0, lt=2**63)


class OutcomesAsked(BaseModel):
    """Of one: which letters are listed. Nothing said: those that need a person first."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    outcomes: OutcomeWord | None = None
    after: int | None = Field(default=None, ge=0, lt=2**63)
    newcomers: bool = False


def replay_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/replays")
    async def replays(request: Request, asked: Annotated[ReplaysAsked, Query()]) -> Response:
        page = await (await sources.replays()).replays(_TABS[asked.state], after=asked.after, limit=PAGE)
        return await frame.page(
            request,
            "replaying/replays.html",
            asked=asked,
            tabs=list(_TABS),
            replays=[
                {
                    "told": one,
                    "which": which_words(one.selection),
                    "target": told_target(one),
                    "bar": replay_bar(one),
                    "counts": counts_words(one),
                }
                for one in page.replays
            ],
            more=page.more,
        )

    @routes.get("/replays/{replay}")
    async def one_replay(
        request: Request, replay: ReplayNumber, asked: Annotated[OutcomesAsked, Query()]
    ) -> Response:
        source = await sources.replays()
        detail = await source.replay(replay, newcomers=asked.newcomers)
        told = detail.replay
        word = asked.outcomes or _first_look(told)
        page = await source.outcomes(
            replay,
            OUTCOMES.get(word),
            doubtful=word is OutcomeWord.DOUBTFUL,
            after=asked.after,
            limit=PAGE,
        )
        return await frame.page(
            request,
            "replaying/replay.html",
            replay=told,
            detail=detail,
            bar=replay_bar(told),
            figures=outcome_counts(told),
            asked=asked,
            word=word.value,
            words=[one.value for one in OutcomeWord],
            outcomes=[_outcome(told, one) for one in page.outcomes],
            more=page.more,
            facts={
                "target": told_target(told),
                "origins": origins_words(detail.origins),
                "pace": told_pace(told),
                "which": which_words(told.selection),
                "left": left_words(told),
                "waits": waits_words(told),
            },
            search=search_of(told.selection),
            going=told.state in GOING,
            typed=_typed(told),
            usual={name.value: typed_pace(one) for name, one in USUAL_PACES.items()},
            next=next_lines(told),
        )

    @routes.post("/replays/{replay}/turn")
    async def turned(request: Request, replay: ReplayNumber) -> Response:
        """Hold it, let it go on, end it."""
        form = await form_of(request)
        said = form.text("to")
        if said not in list(Turn):
            raise UsageError(f"expected one of {', '.join(Turn)}, got {said[:50]!r}")
        to = Turn(said)
        await turn(await sources.replays(), replay, to, who=called(request))
        return back_to(form.text("back"), Said(text=f"replay {replay} {TURNED[to]}"))

    @routes.post("/replays/{replay}/pace")
    async def pace(request: Request, replay: ReplayNumber) -> Response:
        form = await form_of(request)
        try:
            asked = PaceAsked.model_validate(dict(form.fields))
        except ValidationError as error:
            raise UsageError("expected a pace: canary, auto or all, and its own settings") from error
        chosen = asked.typed().chosen()
        await (await sources.replays()).set_pace(replay, chosen, who=called(request))
        said = f"replay {replay}: from now on {pace_words(chosen)}"
        return back_to(form.text("back"), Said(text=said))

    return routes


def _first_look(replay: ReplayTold) -> OutcomeWord:
    """What needs a person stands first."""
    if replay.counts.returned:
        return OutcomeWord.BACK
    return OutcomeWord.REFUSED if replay.counts.refused else OutcomeWord.ALL


def _outcome(replay: ReplayTold, one: OutcomeTold) -> dict[str, object]:
    word = one.state.value.replace("_", " ")
    named = {OutcomeState.RETURNED: "back", OutcomeState.QUIET: "not returned"}.get(one.state, word)
    return {
        "told": one,
        "word": named,
        "tone": _TONES.get(one.state, "plain"),
        "words": became_words(replay, one),
    }


def _typed(replay: ReplayTold) -> TypedPace:
    """Its pace, for the form that changes it; the usual one where a newer version said it."""
    try:
        return typed_pace(pace_from(replay.pace))
    except UsageError:
        return TypedPace(pace="canary")
