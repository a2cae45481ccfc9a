"""The states of a letter, the steps from one to the next, and who takes them. This table is the only one.

Whatever tells what became of letters (the service's facts and metrics, the consumer's facts, the desk) uses
`Step`; a step that is not in `STEPS` does not happen. The diagram in `docs/design/states.md` is `diagram()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a letter is, which is what it is."""

    IN_ORIGIN = "in its origin"
    """In the application's queue, or with its consumer."""
    DEAD = "dead"
    """In a dead-letter queue."""
    DELAYED = "delayed"
    """In a level, until its time is over."""
    DUE = "due"
    """In `deadletter.due`, or in a queue of the layout that means the same."""
    HELD = "held"
    """In `deadletter.held.<gate>`: due, and a guard keeps it."""
    PARKED = "parked"
    """In `deadletter.parked`, or the layout's queue for failures, for a person."""
    STORED = "in the store"
    """In the store and in no queue any more, for a person."""
    SET_ASIDE = "discarded in the store"
    """Still there, whole: it can be taken back until its time is over."""
    CLAIMED = "in a replay"
    """In the store, and a replay is going to send it: nobody else may."""
    DONE = "done"
    """Its handler succeeded, now or before."""
    FORGOTTEN = "forgotten"
    """Its time in the store is over."""
    DISCARDED = "discarded"
    """Thrown away on purpose, and told."""


class Actor(StrEnum):
    """Who takes a step."""

    APPLICATION = "application"
    """A consumer of the application's own."""
    BROKER = "broker"
    SERVICE = "dlq serve"
    LIBRARY = "consumer library"
    """And the adapters."""
    PERSON = "a person"
    """With `dlq move`, `dlq check`, `dlq waiting` or a command of the desk."""


class Step(StrEnum):
    """What became of a letter."""

    DIED = "died"
    """Rejected, expired, dropped by a length limit, or delivered too often."""
    DELAYED = "delayed"
    """It waits, then goes back."""
    EXPIRED = "delay over"
    RELEASED = "released"
    """Back in its origin."""
    HELD = "held"
    """It was due, and a guard keeps it in the broker until its origin can take it."""
    PARKED = "parked"
    STORED = "stored"
    """Committed in the store, then acked."""
    TAKEN_BACK = "taken back"
    """It was discarded in the store, and somebody thought better of it."""
    CLAIMED = "claimed"
    """A replay has it."""
    REPLAYED = "sent"
    """By a replay, and confirmed by the broker."""
    LET_GO = "let go"
    """Refused by the broker, or its replay ended before: it is in the store as before."""
    FORGOTTEN = "forgotten"
    """By retention: its age, or what came after it."""
    DISCARDED = "discarded"
    DROPPED = "dropped"
    """A copy that a shared fanout made of a letter that goes on elsewhere."""
    LEFT = "left"
    """Still where it was, on purpose."""
    FAILED = "failed"
    """Still where it was, although it should have gone."""
    DONE = "done"
    SKIPPED = "skipped"
    """Done before, as its id says; acked without running the handler."""
    MOVED = "moved"
    """By hand, to whatever queue was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One legal step."""

    step: Step
    before: State
    after: State
    by: Actor


def _taken(by: Actor, before: State, steps: dict[Step, State | None]) -> tuple[Transition, ...]:
    """None: it stays where it is."""
    return tuple(
        Transition(step=step, before=before, after=before if after is None else after, by=by)
        for step, after in steps.items()
    )


STEPS: Final[tuple[Transition, ...]] = (
    *_taken(Actor.APPLICATION, State.IN_ORIGIN, {Step.DONE: State.DONE, Step.DIED: State.DEAD}),
    *_taken(Actor.BROKER, State.IN_ORIGIN, {Step.DIED: State.DEAD}),
    *_taken(
        Actor.LIBRARY,
        State.IN_ORIGIN,
        {
            Step.DONE: State.DONE,
            Step.SKIPPED: State.DONE,
            Step.DELAYED: State.DELAYED,
            Step.PARKED: State.PARKED,
            Step.DISCARDED: State.DISCARDED,
            Step.DIED: State.DEAD,
            Step.FAILED: None,
        },
    ),
    *_taken(
        Actor.SERVICE,
        State.DEAD,
        {
            Step.DELAYED: State.DELAYED,
            Step.RELEASED: State.IN_ORIGIN,
            Step.PARKED: State.PARKED,
            Step.DISCARDED: State.DISCARDED,
            Step.DROPPED: State.DISCARDED,
            Step.STORED: State.STORED,
            Step.LEFT: None,
            Step.FAILED: None,
        },
    ),
    *_taken(Actor.BROKER, State.DELAYED, {Step.EXPIRED: State.DUE}),
    *_taken(
        Actor.SERVICE,
        State.DUE,
        {Step.RELEASED: State.IN_ORIGIN, Step.HELD: State.HELD, Step.PARKED: State.PARKED, Step.FAILED: None},
    ),
    *_taken(
        Actor.LIBRARY,
        State.DUE,
        {
            Step.RELEASED: State.IN_ORIGIN,
            Step.DELAYED: State.DELAYED,
            Step.PARKED: State.PARKED,
            Step.FAILED: None,
        },
    ),
    *_taken(
        Actor.SERVICE,
        State.HELD,
        {Step.RELEASED: State.IN_ORIGIN, Step.LEFT: None, Step.PARKED: State.PARKED, Step.FAILED: None},
    ),
    *_taken(
        Actor.PERSON, State.DEAD, {Step.MOVED: State.IN_ORIGIN, Step.PARKED: State.PARKED, Step.LEFT: None}
    ),
    *(
        known
        for state in (State.DELAYED, State.DUE, State.HELD)
        for known in _taken(
            Actor.PERSON,
            state,
            {Step.RELEASED: State.IN_ORIGIN, Step.PARKED: State.PARKED, Step.LEFT: None},
        )
    ),
    *_taken(Actor.PERSON, State.PARKED, {Step.MOVED: State.IN_ORIGIN, Step.LEFT: None}),
    *_taken(Actor.SERVICE, State.PARKED, {Step.STORED: State.STORED, Step.LEFT: None, Step.FAILED: None}),
    *_taken(Actor.PERSON, State.STORED, {Step.DISCARDED: State.SET_ASIDE}),
    *_taken(Actor.PERSON, State.SET_ASIDE, {Step.TAKEN_BACK: State.STORED}),
    *_taken(Actor.SERVICE, State.STORED, {Step.CLAIMED: State.CLAIMED, Step.FORGOTTEN: State.FORGOTTEN}),
    *_taken(
        Actor.SERVICE,
        State.CLAIMED,
        {Step.REPLAYED: State.IN_ORIGIN, Step.LET_GO: State.STORED, Step.FAILED: None},
    ),
    *_taken(Actor.PERSON, State.CLAIMED, {Step.LET_GO: State.STORED}),
    *_taken(Actor.SERVICE, State.SET_ASIDE, {Step.FORGOTTEN: State.FORGOTTEN}),
)
ENDS: Final = frozenset({State.DONE, State.DISCARDED, State.FORGOTTEN})
"""Where nobody has the letter any more. A parked one, and one in the store, wait for a person."""


def steps_of(actor: Actor) -> frozenset[Step]:
    """What this one can do to letters."""
    return frozenset(known.step for known in STEPS if known.by is actor)


def after(before: State, step: Step, by: Actor) -> State:
    """Where a letter is after this step. Raises ValueError for one that is not in the table."""
    for known in STEPS:
        if (known.before, known.step, known.by) == (before, step, by):
            return known.after
    raise ValueError(f"a letter that is {before.value} cannot be {step.value} by {by.value}")


def diagram() -> str:
    """The table as a Mermaid state diagram; steps that leave a letter where it is are not drawn."""
    drawn: dict[tuple[State, State], dict[Step, list[Actor]]] = {}
    for known in STEPS:
        if known.before is not known.after:
            actors = drawn.setdefault((known.before, known.after), {}).setdefault(known.step, [])
            actors.append(known.by)
    lines = ["stateDiagram-v2", f"    [*] --> {_id(State.IN_ORIGIN)}: published"]
    lines += [f'    state "{state.value}" as {_id(state)}' for state in State]
    for (before, to), steps in drawn.items():
        words = ", ".join(f"{step.value} ({' or '.join(a.value for a in by)})" for step, by in steps.items())
        lines.append(f"    {_id(before)} --> {_id(to)}: {words}")
    lines += [f"    {_id(state)} --> [*]" for state in State if state in ENDS]
    return "\n".join(lines) + "\n"


def _id(state: State) -> str:
    return state.name.lower()
