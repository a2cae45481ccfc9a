"""What the store knows of a replay, as it is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, pace_json
from deadletter.core.replaying.replay_plan import selection_json
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.core.replaying.replay_target import target_json
from deadletter.operations.records.records import json_of
from deadletter.operations.replays.replay_told import (
    CanaryStep,
    OutcomeState,
    OutcomeTold,
    ReplayTold,
    StepPlace,
)
from deadletter.store.letters.letter_views import LetterRow
from deadletter.store.replays.replay_views import ReplayedLetter, ReplayView

NOBODY: Final = "no running service works on it; it goes on when dlq serve runs with this store"
TAKEN_UP_MS: Final = 5_000
"""So soon a running service takes up a replay that is new."""


def told(view: ReplayView, *, now_ms: int, attended: bool) -> ReplayTold:
    """`attended`: a service tells it, which may be about to take it up."""
    is_held = bool(view.holder) and view.held_until_ms >= now_ms
    return ReplayTold(
        id=view.id,
        vhost=view.vhost,
        made_ms=view.made_ms,
        who=view.who,
        why=view.why,
        state=view.state,
        selection=json_of(selection_json(view.selection)),
        target=json_of(target_json(view.target)),
        pace=json_of(pace_json(view.pace)),
        edit=view.edit,
        recipe=view.recipe,
        letters=view.letters,
        counts=view.counts,
        outcome_ms=view.outcome_ms,
        resolves=view.resolves,
        overrules_guards=view.overrules_guards,
        began_ms=view.began_ms,
        last_sent_ms=view.last_sent_ms,
        ended_ms=view.ended_ms,
        left_ms=view.left_ms(),
        holder=view.holder if is_held else "",
        waits_for=_waits_for(view, is_held=is_held or (attended and now_ms < view.made_ms + TAKEN_UP_MS)),
    )


def _waits_for(view: ReplayView, *, is_held: bool) -> str:
    if view.ended_ms is not None or view.state is ReplayState.STOPPED:
        return view.told
    if not is_held:
        return NOBODY
    if view.state is ReplayState.PAUSED:
        return view.told or "it is paused"
    return view.told


def canary_steps(view: ReplayView) -> tuple[CanaryStep, ...]:
    """The steps of a canary as far as there are letters for them; of another pace there are none."""
    match view.pace:
        case AllAtOnce() | Auto():
            return ()
        case Canary(steps=sizes):
            return tuple(_steps(view, sizes))
        case _:
            assert_never(view.pace)


def _steps(view: ReplayView, sizes: tuple[int, ...]) -> list[CanaryStep]:
    counts, stage = view.counts, view.stage
    sent = counts.gone - stage.gone
    left = counts.waiting + counts.sending
    found: list[CanaryStep] = []
    for number in range(max(len(sizes), stage.number + 1)):
        size = sizes[min(number, len(sizes) - 1)]
        if number < stage.number:
            found.append(CanaryStep(number=number + 1, letters=size, place=StepPlace.BEHIND))
        elif number == stage.number:
            size = min(size, sent + left)
            if not size and found:
                break
            left -= max(0, size - sent)
            back = counts.returned - stage.returned
            found.append(
                CanaryStep(number=number + 1, letters=size, place=StepPlace.NOW, sent=sent, returned=back)
            )
        elif left and view.ended_ms is None:
            found.append(CanaryStep(number=number + 1, letters=min(size, left), place=StepPlace.AHEAD))
            left -= min(size, left)
    return found


def outcome(one: ReplayedLetter, back: Mapping[int, LetterRow]) -> OutcomeTold:
    """`back`: the letters as which some came back, by number."""
    returned = back.get(one.returned_letter) if one.returned_letter is not None else None
    known_ms = one.ended_ms if one.sent_ms is not None else None
    return OutcomeTold(
        letter=one.letter,
        letter_id=one.letter_id,
        state=OutcomeState(one.state.name.lower()),
        doubtful=one.doubtful,
        why=one.why,
        sent_ms=one.sent_ms,
        ended_ms=one.ended_ms,
        after_ms=None if known_ms is None or one.sent_ms is None else max(0, known_ms - one.sent_ms),
        returned_letter=one.returned_letter,
        returned_group=one.returned_group,
        same_group=one.same_group,
        error=returned.error if returned is not None else "",
    )


def sent_state(state: OutcomeState) -> SentState:
    """As the store has it."""
    return SentState[state.name]
