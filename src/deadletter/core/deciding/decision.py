"""What becomes of a failed letter: the closed list of answers, and the one function that counts tries.

`next_try` is asked by everybody who has a failed letter in hand: the service (`decide`, which then looks at
the origin), the consumer library and the adapters (which know the origin, it is their own queue). So "how
often, how long, and then what" is the same answer everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from deadletter.core.deciding.policy import Then, Treatment
from deadletter.core.letter.parking import Cause
from deadletter.core.text.durations import duration_text, rough_duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Wait `delay_ms`, then back to the origin as this attempt; with `needs_room`, only once it has room."""

    delay_ms: int
    attempt: int
    cause: Cause = Cause.RETRIES_LEFT
    policy: str
    why: str
    needs_room: bool = False
    asked: bool = False
    """The handler said how long, not the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """No more tries."""

    attempt: int
    cause: Cause
    policy: str
    why: str


class Park(_Ending):
    """Put aside for a person."""


class Leave(_Ending):
    """Stays where it is. Only in bounded passes."""


class Discard(_Ending):
    """Thrown away, audited."""


Ending: TypeAlias = Park | Leave | Discard
Decision: TypeAlias = Retry | Ending


def next_try(
    treatment: Treatment,
    *,
    attempt: int,
    dice: float,
    policy: str,
    error: str = "",
    told: str = "",
    asked_ms: int | None = None,
    deadline_ms: int | None = None,
    age_ms: int = 0,
) -> Decision:
    """After so many attempts, so long after its first death: once more, or what the treatment ends with.

    `asked_ms`: the handler wants it after this time. `error`: the type of its error. `told`: what it failed
    with, where a retry says that rather than its number, and an end both.
    """
    schedule = treatment.schedule
    delay_ms = schedule.delay_ms(attempt, dice)
    if delay_ms is None:
        about = f" for {error}" if treatment.error_types and error else ""
        return _ending(treatment, attempt, policy, Cause.NO_RETRIES, _last(f"no retries{about}", told))
    if attempt >= schedule.retries:
        many = schedule.retries > 1
        spent = f"all {schedule.retries} retries are used up" if many else "its one retry is used up"
        return _ending(treatment, attempt, policy, Cause.RETRIES_EXHAUSTED, _last(spent, told))
    delay_ms = delay_ms if asked_ms is None else asked_ms
    if deadline_ms is not None and age_ms + delay_ms > deadline_ms:
        late = (
            f"first died {rough_duration_text(age_ms)} ago; the next retry would come after the deadline of "
            f"{duration_text(deadline_ms)}"
        )
        return _ending(treatment, attempt, policy, Cause.DEADLINE_PASSED, _last(late, told))
    return Retry(
        delay_ms=delay_ms,
        attempt=attempt + 1,
        policy=policy,
        why=told or f"retry {attempt + 1} of {schedule.retries} after {duration_text(delay_ms)}",
        asked=asked_ms is not None,
    )


def _last(why: str, told: str) -> str:
    return f"{why}; the last failed with {told}" if told else why


def _ending(treatment: Treatment, attempt: int, policy: str, cause: Cause, why: str) -> Ending:
    match treatment.then:
        case Then.PARK:
            return Park(attempt=attempt, cause=cause, policy=policy, why=why)
        case Then.LEAVE:
            return Leave(attempt=attempt, cause=cause, policy=policy, why=why)
        case Then.DISCARD:
            return Discard(attempt=attempt, cause=cause, policy=policy, why=why)
        case _:
            assert_never(treatment.then)
