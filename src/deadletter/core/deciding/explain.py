"""What would happen to a letter, attempt by attempt, and which policies were passed over on the way.

The same verdicts as `decide`, asked again and again under the assumption that every retry fails at once.
Data only: whoever prints it chooses the words around it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from deadletter.core.deciding.decide import (
    NO_ANSWERS,
    Answer,
    Circumstances,
    age_ms,
    choose,
    decide,
    verdict,
)
from deadletter.core.deciding.decision import Decision, Retry
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.deciding.policy import JqCondition, Policies, Policy
from deadletter.core.letter import header_values, names

MAX_STEPS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A policy that was looked at: `refusal` is why it did not apply, None for the one that did."""

    policy: str
    refusal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStep:
    """One verdict, `after_ms` from now; a retry may take any of `choices_ms`."""

    after_ms: int
    decision: Decision
    choices_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`steps` are the verdicts to come; `left_out` of them are not listed, the last one always is."""

    considered: tuple[Considered, ...]
    schedule: str
    steps: tuple[ExplainedStep, ...]
    left_out: int = 0


def explain(
    letter: LetterView,
    policies: Policies,
    *,
    now: datetime,
    circumstances: Circumstances,
    answers: Mapping[JqCondition, Answer] = NO_ANSWERS,
    unquoted: Container[str] = (),
) -> Explanation:
    """The verdict on this letter now, and on each time it would come back. `unquoted`: headers whose values
    are not told."""
    policy, answered = choose(letter, policies, answers)
    considered = _considered(letter, policies, policy, answered=answered, unquoted=unquoted)
    treatment = policy.treatment(letter.failure.error_type if letter.failure else None)
    if not answered:
        stuck = decide(letter, policies, now=now, dice=0.5, circumstances=circumstances, answers=answers)
        return Explanation(
            considered=considered,
            schedule=treatment.text(),
            steps=(ExplainedStep(after_ms=0, decision=stuck),),
        )
    age_now_ms, attempt, after_ms = age_ms(letter, now), letter.attempts(policy.count_by), 0
    steps: list[ExplainedStep] = []
    left_out = 0
    while True:
        decision = verdict(
            letter,
            policy,
            attempt=attempt,
            age_ms=age_now_ms + after_ms,
            dice=0.5,
            circumstances=circumstances,
        )
        if len(steps) == MAX_STEPS:  # the last place is for the end
            steps.pop()
            left_out += 1
        if not isinstance(decision, Retry):
            steps.append(ExplainedStep(after_ms=after_ms, decision=decision))
            break
        choices_ms = treatment.schedule.choices_ms(attempt)
        steps.append(ExplainedStep(after_ms=after_ms, decision=decision, choices_ms=choices_ms))
        after_ms += decision.delay_ms
        attempt = decision.attempt
    return Explanation(
        considered=considered, schedule=treatment.text(), steps=tuple(steps), left_out=left_out
    )


def _considered(
    letter: LetterView, policies: Policies, chosen: Policy, *, answered: bool, unquoted: Container[str]
) -> tuple[Considered, ...]:
    seen: list[Considered] = []
    for policy in policies:
        if policy is chosen:
            refusal = None if answered else "its body condition has no answer"
            seen.append(Considered(policy=policy.name, refusal=refusal))
            break
        refusal = policy.match.refusal(letter, unquoted=unquoted) or "its body condition says no"
        seen.append(Considered(policy=policy.name, refusal=refusal))
    return tuple(seen)


_OF_THE_TRIP: Final = frozenset({names.DEATHS, names.DELIVERIES, names.HOME, names.X_DEATH})


def failing_again(headers: Mapping[str, object], now: datetime) -> Mapping[str, object]:
    """The headers of a letter that was parked, as it would have them when it went back to its origin and
    failed there once more: one death, and no retry before it. One without a named origin stays as it is."""
    origin = header_values.name(headers.get(names.ORIGIN_QUEUE))
    if origin is None:
        return headers
    died = _died_in(origin, headers.get(names.DEATHS))
    exchange = header_values.name(headers.get(names.ORIGIN_EXCHANGE)) or died.get("exchange") or ""
    key = header_values.name(headers.get(names.ORIGIN_ROUTING_KEY))
    death = {
        "queue": origin,
        "reason": "rejected",
        "count": 1,
        "exchange": exchange,
        "routing-keys": died.get("routing-keys", [origin]) if key is None else [key],
        "time": now,
    }
    kept = {name: value for name, value in headers.items() if name not in _OF_THE_TRIP}
    return {**kept, names.ATTEMPT: 0, names.X_DEATH: [death]}


def _died_in(origin: str, deaths: object) -> Mapping[str, object]:
    """The newest of the deaths that were put aside which was there."""
    for one in deaths if isinstance(deaths, list | tuple) else ():
        if isinstance(one, Mapping) and one.get("queue") == origin:
            return one
    return {}
