"""What a request about replays says: selection, target, pace, edit, as they are told."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import Auto, Canary, ReplayPace, pace_from
from deadletter.core.replaying.replay_plan import OUTCOME_MS, selection_from
from deadletter.core.replaying.replay_target import ReplayTarget, target_from
from deadletter.desk.api.asked import HEADERS, NAME_CHARS, AuditedWish, Name, Number, Strict, Text
from deadletter.operations.records.records import PROGRAM_CHARS, RUN_CHARS, WHY_CHARS
from deadletter.operations.replays.replay_told import CAREFUL, SELECTED, EditWish, ReplayWish

_STEPS: Final = 50
_MANY: Final = 1_000_000_000

Count = Annotated[int, Field(ge=1, le=_MANY)]
Said = Annotated[Text, Field(pattern=r"\S")]
"""Not nothing: that would hold for every letter."""
Share = Annotated[float, Field(ge=0, le=1)]


class SelectionWish(Strict):
    """Which letters: all of it must hold, and they must be open."""

    ids: list[Number] = Field(default=[], max_length=SELECTED, description="Numbers of letters.")
    vhost: Name | None = None
    queue: Name | None = Field(default=None, description="Where they were taken from.")
    origin: Name | None = Field(default=None, description="Where they failed.")
    group: Number | None = Field(default=None, description="The number of their group.")
    cause: Name | None = None
    error: Said | None = Field(default=None, description="Text in the error.")
    message_id: Name | None = None
    letter_id: Name | None = None
    discard: Number | None = None
    died_from_ms: Number | None = None
    died_until_ms: Number | None = None
    headers: list[tuple[Name, Text]] = Field(
        default=[], max_length=HEADERS, description="Names and values; * in a value stands for any run."
    )
    text: Said | None = Field(default=None, description="Words in body, headers, ids or error.")
    where: str | None = Field(
        default=None, max_length=PROGRAM_CHARS, description="A jq program over {body, headers, properties}."
    )

    def query(self) -> LetterQuery:
        return selection_from(self.model_dump())


class OriginTarget(Strict):
    """Each to the queue it failed in, and to that alone."""

    to: Literal["origin"] = "origin"


class QueueTarget(Strict):
    """All of them to this queue, and to that alone."""

    to: Literal["queue"]
    queue: Name


class ExchangeTarget(Strict):
    """All of them to this exchange, and wherever it leads; without a key, each by its own."""

    to: Literal["exchange"]
    exchange: Annotated[str, Field(max_length=NAME_CHARS)]
    key: Annotated[str, Field(max_length=NAME_CHARS)] | None = None


class AllPace(Strict):
    """Everything, at a rate where one is given."""

    pace: Literal["all"]
    rate_per_s: Annotated[float, Field(gt=0, le=_MANY)] | None = None


class CanaryPace(Strict):
    """1, then 10, then 100 …, each when the outcome of the step before is known."""

    pace: Literal["canary"] = "canary"
    steps: list[Count] = Field(default=list(CAREFUL.steps), min_length=1, max_length=_STEPS)
    share: Share = Field(default=CAREFUL.share, description="More than this share back: it stops.")
    wait_s: float = Field(default=CAREFUL.wait_s, ge=0, le=86_400)
    room: Count = Field(default=Canary().room, description="The most letters in the queue.")


class AutoPace(Strict):
    """As fast as the consumer keeps up."""

    pace: Literal["auto"]
    room: Count = Auto().room
    share: Share = Auto().share
    floor: Count = Auto().floor
    ceiling: Count = Field(default=Auto().ceiling, description="Letters a second.")


Target = Annotated[OriginTarget | QueueTarget | ExchangeTarget, Field(discriminator="to")]
Pace = Annotated[AllPace | CanaryPace | AutoPace, Field(discriminator="pace")]


def target_of(said: OriginTarget | QueueTarget | ExchangeTarget) -> ReplayTarget:
    return target_from(said.model_dump())


def pace_of(said: AllPace | CanaryPace | AutoPace) -> ReplayPace:
    return pace_from(said.model_dump())


class EditedWish(Strict):
    edit: str = Field(
        default="", max_length=PROGRAM_CHARS, description="A jq program over {body, headers, properties}."
    )
    recipe: str = Field(default="", max_length=NAME_CHARS, description="In place of it: a saved one.")

    def edit_wish(self) -> EditWish:
        return EditWish(program=self.edit, recipe=self.recipe)


class ReplayPlanBody(EditedWish):
    """What is to be sent, where to, and how fast."""

    selection: SelectionWish
    vhost: str = Field(
        default="", max_length=NAME_CHARS, description="Empty: that of the letters, if it is one."
    )
    target: Target = Field(default_factory=OriginTarget)
    pace: Pace = Field(default_factory=CanaryPace)
    outcome_ms: Number = Field(default=OUTCOME_MS, description='So long "not returned" is waited for.')
    resolves: bool = Field(default=False, description="Groups that it cured are resolved when it is done.")
    overrules_guards: bool = Field(default=False, description="It goes although a guard holds retries.")

    def wish(self) -> ReplayWish:
        return ReplayWish(
            selection=self.selection.query(),
            vhost=self.vhost,
            target=target_of(self.target),
            edit=self.edit_wish(),
            pace=pace_of(self.pace),
            outcome_ms=self.outcome_ms,
            resolves=self.resolves,
            overrules_guards=self.overrules_guards,
        )


class ReplayStartBody(ReplayPlanBody, AuditedWish):
    why: str = Field(default="", max_length=WHY_CHARS)
    run: str = Field(
        default="", max_length=RUN_CHARS, description="Several requests with the same one are one replay."
    )
    anyway: bool = Field(default=False, description="Begin although the look before it says stop.")


class TurnWish(AuditedWish):
    pass


class PaceWish(AuditedWish):
    pace: Pace
