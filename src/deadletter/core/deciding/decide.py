"""What happens to a letter: the one function that says so, and the one that says it ahead of time.

`decide` is total and pure: the clock, the dice and the answers of body conditions are arguments, and
whatever the letter holds, exactly one of `Retry | Park | Leave | Discard` comes out, with the reason in
words and the policy that made it. Doubt always parks, because a parked letter is the only one a person
can still set right:

* the origin is unknown, ambiguous, only claimed by a header nobody confirms, or one whose letters do not come
  here: nothing is sent on a guess, or where somebody else would like it sent;
* a body condition could not be answered;
* it died because its origin was full (`maxlen`). Sent back into a full `drop-head` queue it is confirmed
  and kills another message. So such a retry says `needs_room`, and whoever releases looks at the depth
  first; where nobody can look, it parks;
* a continuous watch cannot leave a letter in its queue, it would get it again at once, for ever: `leave`
  parks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from deadletter.core.deciding.decision import Decision, Discard, Leave, Park, Retry, next_try
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.deciding.origin import (
    Ambiguous,
    Claimed,
    Copied,
    Fresh,
    Returned,
    Unknown,
    Unproven,
)
from deadletter.core.deciding.policy import JqCondition, Policies, Policy
from deadletter.core.letter.header_values import shown
from deadletter.core.letter.parking import Cause


class Answer(StrEnum):
    """What a jq program said of the body. No JSON, or an error in it, is NO; out of bounds is UNANSWERED."""

    YES = "yes"
    NO = "no"
    UNANSWERED = "unanswered"


NO_ANSWERS: Final[Mapping[JqCondition, Answer]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What whoever asks can do.

    `continuous`: a consumer that stays, so nothing can be left. `sees_room`: the depth of the origin is
    looked at before a release. `trusts_claims`: an origin that only a header names is good enough, as the
    watched queue is fed by whoever writes it (our own consumer, a framework), not by the broker.
    """

    continuous: bool
    sees_room: bool = False
    trusts_claims: bool = False


def questions(letter: LetterView, policies: Policies) -> tuple[JqCondition, ...]:
    """The body conditions that must be answered before `decide` can choose a policy, in order, each once."""
    asked: dict[JqCondition, None] = {}
    for policy in policies:
        if policy.match.holds(letter):
            if policy.match.body is None:
                break
            asked[policy.match.body] = None
    return tuple(asked)


def decide(
    letter: LetterView,
    policies: Policies,
    *,
    now: datetime,
    dice: float,
    circumstances: Circumstances,
    answers: Mapping[JqCondition, Answer] = NO_ANSWERS,
) -> Decision:
    """What happens to this letter now."""
    policy, answered = choose(letter, policies, answers)
    attempt = letter.attempts(policy.count_by)
    if not answered:
        return Park(
            attempt=attempt,
            cause=Cause.CONDITION_UNANSWERED,
            policy=policy.name,
            why=f"the body condition of policy {policy.name} could not be evaluated within its limits (now, "
            "or so often that it is switched off for a while)",
        )
    return verdict(
        letter, policy, attempt=attempt, age_ms=age_ms(letter, now), dice=dice, circumstances=circumstances
    )


def choose(
    letter: LetterView, policies: Policies, answers: Mapping[JqCondition, Answer]
) -> tuple[Policy, bool]:
    """The first policy that matches; false when that hangs on a body condition without an answer."""
    for policy in policies.rules:
        if not policy.match.holds(letter):
            continue
        answer = (
            Answer.YES if policy.match.body is None else answers.get(policy.match.body, Answer.UNANSWERED)
        )
        match answer:
            case Answer.YES:
                return policy, True
            case Answer.UNANSWERED:
                return policy, False
            case Answer.NO:
                continue
            case _:
                assert_never(answer)
    return policies.default, True


def age_ms(letter: LetterView, now: datetime) -> int:
    """Since its first death. A broker whose clock is ahead makes a letter young, not unborn."""
    died_at = letter.first_death_at
    return max(round((now - died_at).total_seconds() * 1000), 0) if died_at is not None else 0


def verdict(
    letter: LetterView,
    policy: Policy,
    *,
    attempt: int,
    age_ms: int,
    dice: float,
    circumstances: Circumstances,
) -> Decision:
    """What this policy says of the letter after so many attempts, so long after its first death."""
    error_type = letter.failure.error_type if letter.failure else None
    decision = next_try(
        policy.treatment(error_type),
        attempt=attempt,
        dice=dice,
        policy=policy.name,
        error=shown(error_type or "this error", 100),
        deadline_ms=policy.deadline_ms,
        age_ms=age_ms,
    )
    match decision:
        case Retry():
            return _send_back(letter, decision, circumstances)
        case Leave() if circumstances.continuous:
            return _parked(decision, decision.cause, f"{decision.why}; a continuous watch cannot leave it")
        case Discard() if isinstance(letter.provenance, Ambiguous | Unproven):
            # the policy may have been chosen for the wrong queue, and nothing brings a discarded letter back
            unproven = isinstance(letter.provenance, Unproven)
            cause = Cause.ORIGIN_UNPROVEN if unproven else Cause.ORIGIN_AMBIGUOUS
            return _parked(decision, cause, _doubt(letter.provenance))
        case Park() | Leave() | Discard():
            return decision
        case _:
            assert_never(decision)


def _send_back(letter: LetterView, retry: Retry, circumstances: Circumstances) -> Retry | Park:
    """A retry, if there is one place to send it to and it may go there."""
    obstacle = _obstacle(letter, circumstances)
    if obstacle is not None or letter.origin is None:
        cause, why = obstacle or (Cause.ORIGIN_UNKNOWN, "nothing says which queue it failed in")
        return Park(attempt=retry.attempt - 1, cause=cause, policy=retry.policy, why=why)
    if not letter.origin_was_full:
        return retry
    return replace(retry, needs_room=True, why=f"{retry.why}, once its origin has room")


def _parked(decision: Leave | Discard, cause: Cause, why: str) -> Park:
    return Park(attempt=decision.attempt, cause=cause, policy=decision.policy, why=why)


def _obstacle(letter: LetterView, circumstances: Circumstances) -> tuple[Cause, str] | None:
    match letter.provenance:
        case Unknown():
            return Cause.ORIGIN_UNKNOWN, "nothing says which queue it failed in"
        case Ambiguous() as doubt:
            return Cause.ORIGIN_AMBIGUOUS, _doubt(doubt)
        case Unproven() as doubt:
            return Cause.ORIGIN_UNPROVEN, _doubt(doubt)
        case Claimed(origin=origin, by=by, vouched=False) if not circumstances.trusts_claims:
            queue = shown(origin.queue, 100)
            return Cause.ORIGIN_CLAIMED, f"no death on record; only the header {by} says it failed in {queue}"
        case Fresh() | Returned() | Copied() | Claimed():
            if letter.origin_was_full and not circumstances.sees_room:
                return (
                    Cause.ORIGIN_FULL,
                    "its origin was full, and nobody here can see whether it has room now",
                )
            return None
        case _:
            assert_never(letter.provenance)


def _doubt(doubt: Ambiguous | Unproven) -> str:
    queues = ", ".join(shown(queue, 60) for queue in doubt.candidates[:5])
    return f"{doubt.why}: {queues}" if queues else doubt.why
