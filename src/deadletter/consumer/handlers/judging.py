"""What the end of a handler means: one of `Done | Known | Again | Aside | Away`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from deadletter.consumer.outcomes import Discard, Finally, Park, RetryLater, Rules, Undecodable
from deadletter.core.deciding.backoff import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """It was done before, as its id says; the handler did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """It is to be tried again by this schedule; `delay_ms` where the handler said how long."""

    error: BaseException
    schedule: Schedule
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """For a person."""

    error: BaseException
    why: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Thrown away, as a rule or the handler said."""

    why: str
    error: BaseException


Outcome: TypeAlias = Done | Known | Again | Aside | Away
DONE: Final = Done()
"""Made once: it is by far the most frequent."""
KNOWN: Final = Known()


def judged(rules: Rules, error: BaseException) -> Outcome:
    """What this error means for a message of a queue with these rules."""
    match error:
        case Undecodable():
            return Aside(error=error, why=f"its body cannot be decoded: {error}", cause="undecodable")
        case Park():
            return Aside(error=error, why=str(error), cause="handler")
        case Discard():
            return Away(error=error, why=str(error))
        case RetryLater(delay_ms=delay_ms):
            return Again(error=error, schedule=rules.schedule, delay_ms=delay_ms)
        case _:
            return _by_rule(rules, error)


def told(error: BaseException) -> str:
    """An error in a few words. One whose own text cannot be made must not hide itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001 -- an application's __str__
        return f"{type(error).__name__} (its text cannot be made: {type(broken).__name__})"


def _by_rule(rules: Rules, error: BaseException) -> Outcome:
    treatment = rules.of(error)
    if isinstance(treatment, Schedule):
        return Again(error=error, schedule=treatment)
    if treatment is Finally.DISCARD:
        return Away(error=error, why=told(error))
    return Aside(error=error, why=told(error), cause="permanent-error")
