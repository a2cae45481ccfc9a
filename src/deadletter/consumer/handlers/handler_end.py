"""How a handler ended, and what becomes of a message whose handler failed.

`decided` is pure and the same for the consumer and for every adapter: what the error is worth by the rules of
the queue, and then the same count of tries as everywhere (`core.deciding.decision`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from deadletter.consumer import outcomes
from deadletter.consumer.outcomes import Finally, RetryLater, Rules, Undecodable
from deadletter.core.deciding.backoff import Schedule
from deadletter.core.deciding.decision import Decision, Discard, Park, next_try
from deadletter.core.deciding.policy import Then, Treatment
from deadletter.core.letter.parking import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyDone:
    """It was done before, as its id says; the handler did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It raised this, or said so with a verb of its message."""

    error: BaseException


HandlerEnd: TypeAlias = Done | AlreadyDone | Failed
DONE: Final = Done()
"""Made once: it is by far the most frequent."""
ALREADY_DONE: Final = AlreadyDone()


def decided(rules: Rules, error: BaseException, *, attempt: int, dice: float, policy: str) -> Decision:
    """What becomes of a message of a queue with these rules that failed with this error."""
    match error:
        case Undecodable():
            why = f"its body cannot be decoded: {error}"
            return Park(attempt=attempt, cause=Cause.UNDECODABLE, policy=policy, why=why)
        case outcomes.Park():
            return Park(attempt=attempt, cause=Cause.HANDLER, policy=policy, why=str(error))
        case outcomes.Discard():
            return Discard(attempt=attempt, cause=Cause.DISCARD, policy=policy, why=str(error))
        case _:
            pass
    asked_ms = error.delay_ms if isinstance(error, RetryLater) else None
    treatment = rules.schedule if isinstance(error, RetryLater) else rules.of(error)
    match treatment:
        case Finally.DISCARD:
            return Discard(attempt=attempt, cause=Cause.DISCARD, policy=policy, why=told(error))
        case Finally.PARK:
            return Park(attempt=attempt, cause=Cause.PERMANENT_ERROR, policy=policy, why=told(error))
        case Schedule():
            return next_try(
                Treatment(schedule=treatment, then=Then.PARK),
                attempt=attempt,
                dice=dice,
                policy=policy,
                told=told(error),
                asked_ms=asked_ms,
            )
        case _:
            assert_never(treatment)


def told(error: BaseException) -> str:
    """An error in a few words. One whose own text cannot be made must not hide itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001 -- an application's __str__
        return f"{type(error).__name__} (its text cannot be made: {type(broken).__name__})"
