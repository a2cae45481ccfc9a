"""A replay as it is told: what it waits for, the steps of its canary, an outcome.

About `operations.replays.replay_telling`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayStage, pace_from
from deadletter.core.replaying.replay_plan import selection_from
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.core.replaying.replay_target import HOME, target_from
from deadletter.operations.replays.replay_telling import (
    NOBODY,
    TAKEN_UP_MS,
    canary_steps,
    outcome,
    sent_state,
    told,
)
from deadletter.operations.replays.replay_told import OutcomeState, StepPlace
from deadletter.store.replays.replay_views import ReplayCounts, ReplayedLetter, ReplayView

NOW = 1_750_000_000_000
VIEW = ReplayView(
    id=7,
    vhost="/",
    made_ms=NOW - 60_000,
    who="anna",
    why="",
    state=ReplayState.RUNNING,
    selection=selection_from({"origin": "orders", "ids": [1, 2], "headers": [["a", "b"]]}),
    target=HOME,
    edit="",
    recipe="",
    pace=Canary(),
    stage=ReplayStage(),
    letters=10,
    outcome_ms=600_000,
    resolves=False,
    overrules_guards=False,
    told="step 1: the queue has no consumer",
    began_ms=NOW - 50_000,
    last_sent_ms=None,
    ended_ms=None,
    holder="desk-1",
    held_until_ms=NOW + 5_000,
    counts=ReplayCounts(waiting=10),
)


def words(view: ReplayView, *, attended: bool = True, now_ms: int = NOW) -> str:
    return told(view, now_ms=now_ms, attended=attended).waits_for


def test_what_was_asked_for_can_be_read_again() -> None:
    said = told(VIEW, now_ms=NOW, attended=True)
    assert selection_from(said.selection) == VIEW.selection
    assert target_from(said.target) == VIEW.target
    assert pace_from(said.pace) == VIEW.pace
    assert (said.selection["ids"], said.pace["steps"][:2]) == ([1, 2], [1, 10]), "as JSON has it"


def test_it_says_why_it_waits_and_when_nobody_works_on_it() -> None:
    assert words(VIEW) == VIEW.told
    assert words(VIEW, now_ms=NOW + 6_000) == NOBODY
    assert told(VIEW, now_ms=NOW + 6_000, attended=True).holder == ""
    new = replace(VIEW, made_ms=NOW, holder="", held_until_ms=0, told="")
    assert words(new) == ""
    assert words(new, attended=False) == NOBODY
    assert words(new, now_ms=NOW + TAKEN_UP_MS) == NOBODY
    assert words(replace(VIEW, state=ReplayState.PAUSED, told="")) == "it is paused"
    stopped = replace(VIEW, state=ReplayState.STOPPED, told="2 of 10 came back", holder="")
    assert words(stopped) == "2 of 10 came back", "whoever looks after the rest"
    assert words(replace(VIEW, state=ReplayState.DONE, ended_ms=NOW, told="", holder="")) == ""


def places(view: ReplayView) -> list[tuple[int, int, str]]:
    return [(one.number, one.letters, one.place.value) for one in canary_steps(view)]


def test_the_steps_of_a_canary() -> None:
    view = replace(VIEW, pace=Canary(steps=(1, 10, 100)), counts=ReplayCounts(waiting=50))
    assert places(view) == [(1, 1, "now"), (2, 10, "ahead"), (3, 39, "ahead")]
    second = replace(
        view,
        stage=ReplayStage(number=1, began_ms=1, gone=1, returned=0),
        counts=ReplayCounts(waiting=43, sent=4, quiet=1, returned=2),
    )
    assert places(second) == [(1, 1, "behind"), (2, 10, "now"), (3, 39, "ahead")]
    now = canary_steps(second)[1]
    assert (now.sent, now.returned) == (6, 2)
    beyond = replace(
        view, stage=ReplayStage(number=4, began_ms=1, gone=311), counts=ReplayCounts(waiting=5, quiet=361)
    )
    assert places(beyond)[-1] == (5, 55, "now"), "after the last each is as large as that one"
    for pace in (AllAtOnce(), Auto()):
        assert canary_steps(replace(view, pace=pace)) == ()


@given(
    st.lists(st.integers(1, 1_000), min_size=1, max_size=6),
    st.integers(0, 10),
    st.integers(0, 5_000),
    st.integers(0, 2_000),
)
def test_no_step_is_told_for_letters_that_are_not_there(
    sizes: list[int], number: int, waiting: int, sent: int
) -> None:
    counts = ReplayCounts(waiting=waiting, sent=sent)
    view = replace(VIEW, pace=Canary(steps=tuple(sizes)), stage=ReplayStage(number=number), counts=counts)
    steps = canary_steps(view)
    assert [one.number for one in steps] == list(range(1, len(steps) + 1))
    assert sum(one.place is StepPlace.NOW for one in steps) <= 1
    ahead = sum(one.letters for one in steps if one.place is StepPlace.AHEAD)
    assert ahead <= waiting


@pytest.mark.parametrize("state", SentState)
def test_every_state_has_its_word(state: SentState) -> None:
    row = ReplayedLetter(
        letter=1,
        letter_id="a",
        state=state,
        sent_ms=NOW,
        ended_ms=NOW + 1_500,
        doubtful=False,
        why="",
        returned_letter=None,
        returned_group=None,
        same_group=None,
    )
    said = outcome(row, {})
    assert sent_state(said.state) is state
    assert said.after_ms == 1_500
    assert outcome(replace(row, sent_ms=None), {}).after_ms is None


def test_outcomes_are_the_states_of_the_store() -> None:
    assert {sent_state(one) for one in OutcomeState} == set(SentState)
