"""The table of a letter's states: the steps between them, and the causes.

Every step that the service or the library tells is in it; the manual draws it as it is, and names the causes.

About `core.deciding.states`, `core.deciding.letter_fate`, `core.letter.parking`.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from tests.paths import ROOT

from deadletter.consumer.events import Fate
from deadletter.core.deciding import states
from deadletter.core.deciding.states import ENDS, STEPS, Actor, State, Step
from deadletter.core.letter import names, parking
from deadletter.core.letter.parking import MEANINGS, Cause

PAGE: Final = ROOT / "docs" / "design" / "states.md"
OF_THE_SERVICE: Final = (
    "delayed", "released", "held", "parked", "discarded", "dropped", "left", "failed", "stored", "forgotten",
    "claimed", "sent", "let go",
)  # fmt: skip
"""Values of the label `outcome`; dashboards have them."""
OF_THE_LIBRARY: Final = {
    Fate.DONE: Step.DONE,
    Fate.SKIPPED: Step.SKIPPED,
    Fate.RETRIED: Step.DELAYED,
    Fate.PARKED: Step.PARKED,
    Fate.DISCARDED: Step.DISCARDED,
    Fate.STUCK: Step.FAILED,
}


def test_the_page_draws_the_table() -> None:
    drawn = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert drawn is not None
    assert drawn[1] == states.diagram(), "it is deadletter.core.deciding.states.diagram()"


def test_the_page_names_every_cause() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    assert rows == {cause.value: MEANINGS[cause] for cause in Cause}


def test_no_letter_is_stuck_and_none_comes_out_of_nowhere() -> None:
    reached = {State.IN_ORIGIN}
    for _ in State:
        reached |= {known.after for known in STEPS if known.before in reached}
    assert reached == set(State)
    leaving = {known.before for known in STEPS if known.before is not known.after}
    assert leaving == set(State) - ENDS


def test_one_step_leads_to_one_state() -> None:
    seen = [(known.before, known.step, known.by) for known in STEPS]
    assert len(seen) == len(set(seen))
    assert {known.step for known in STEPS} == set(Step)
    assert {known.by for known in STEPS} == set(Actor)


def test_what_the_service_tells_is_in_the_table() -> None:
    assert {step.value for step in states.steps_of(Actor.SERVICE)} == set(OF_THE_SERVICE)


@pytest.mark.parametrize("fate", Fate)
def test_what_the_library_tells_is_in_the_table(fate: Fate) -> None:
    assert OF_THE_LIBRARY[fate] in states.steps_of(Actor.LIBRARY)


def test_an_illegal_step_is_refused() -> None:
    assert states.after(State.DUE, Step.HELD, Actor.SERVICE) is State.HELD
    with pytest.raises(ValueError, match="a letter that is parked cannot be released by dlq serve"):
        states.after(State.PARKED, Step.RELEASED, Actor.SERVICE)


def test_a_parked_letter_says_why_and_since_when() -> None:
    said = parking.parked_headers(Cause.HANDLER, "a\x1b[31m" + "w" * 1000, 7)
    assert said[names.CAUSE] == "handler"
    assert said[names.PARKED_AT] == 7
    why = said[names.WHY]
    assert isinstance(why, str)
    assert len(why) == parking.WHY_CHARS
    assert why.startswith("a\\x1b[31m")
