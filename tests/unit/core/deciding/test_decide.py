"""The decision: each way it can go, why, and what it refuses to guess.

About `core.deciding.decide`, `core.deciding.decision`, `core.deciding.explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from deadletter.core.deciding.backoff import Exponential, Fixed, Linear
from deadletter.core.deciding.deaths import ByReason, FirstEntry, NamedHeader
from deadletter.core.deciding.decide import NO_ANSWERS, Answer, Circumstances, decide, questions
from deadletter.core.deciding.decision import Decision, Discard, Leave, Park, Retry
from deadletter.core.deciding.explain import MAX_STEPS, Considered, explain
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.origin import Copied, Origin
from deadletter.core.deciding.policy import ErrorRule, JqCondition, Match, Policies, Policy, Then
from deadletter.core.letter.parking import Cause

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WATCH = Circumstances(continuous=True)
PASS = Circumstances(continuous=False)
ORIGIN = Origin(queue="orders", exchange="shop", routing_keys=("order.new",))


def death(
    queue: str = "orders", reason: str = "rejected", count: int = 1, age_s: int = 0
) -> dict[str, object]:
    return {
        "queue": queue,
        "reason": reason,
        "count": count,
        "time": NOW - timedelta(seconds=age_s),
        "exchange": "shop",
        "routing-keys": ["order.new"],
    }


def letter(headers: Mapping[str, object] | None = None, *, old_broker: bool = False) -> LetterView:
    return view_letter({"x-death": [death()], **(headers or {})}, broker_keeps_client_deaths=old_broker)


def returned(attempt: object, **more: object) -> LetterView:
    own = {"deadletter-id": "id-1", "deadletter-origin-queue": "orders", "deadletter-attempt": attempt}
    return letter({**own, **more})


def one(**settings: object) -> Policies:
    made = Policy(**{"name": "p", "retries": 3, "backoff": Linear(step_ms=1_000), **settings})  # type: ignore[arg-type]
    return Policies(rules=(made,))


def decided(
    of: LetterView,
    policies: Policies,
    *,
    dice: float = 0.5,
    circumstances: Circumstances = WATCH,
    answers: Mapping[JqCondition, Answer] = NO_ANSWERS,
) -> Decision:
    return decide(of, policies, now=NOW, dice=dice, circumstances=circumstances, answers=answers)


def test_a_first_death_is_retried() -> None:
    assert decided(letter(), one()) == Retry(
        delay_ms=1_000,
        attempt=1,
        needs_room=False,
        cause=Cause.RETRIES_LEFT,
        policy="p",
        why="retry 1 of 3 after 1 s",
    )


def test_it_fails_retries_plus_one_times_and_then_parks() -> None:
    outcomes = [decided(returned(attempt), one()) for attempt in range(5)]
    assert [type(outcome) for outcome in outcomes] == [Retry, Retry, Retry, Park, Park]
    assert [outcome.attempt for outcome in outcomes] == [1, 2, 3, 3, 4]
    assert outcomes[3] == Park(
        attempt=3,
        cause=Cause.RETRIES_EXHAUSTED,
        policy="p",
        why="all 3 retries are used up",
    )


@pytest.mark.parametrize(
    ("then", "circumstances", "expected"),
    [
        (Then.PARK, WATCH, Park),
        (Then.DISCARD, WATCH, Discard),
        (Then.LEAVE, WATCH, Park),
        (Then.PARK, PASS, Park),
        (Then.DISCARD, PASS, Discard),
        (Then.LEAVE, PASS, Leave),
    ],
)
def test_what_comes_after_the_retries(
    then: Then, circumstances: Circumstances, expected: type[Decision]
) -> None:
    outcome = decided(returned(3), one(then=then), circumstances=circumstances)
    assert type(outcome) is expected
    assert outcome.cause is Cause.RETRIES_EXHAUSTED
    assert ("continuous watch cannot leave" in outcome.why) == (then is Then.LEAVE and circumstances is WATCH)


def test_no_retries_ends_at_once() -> None:
    outcome = decided(letter(), one(retries=0))
    assert (type(outcome), outcome.cause, outcome.why) == (Park, Cause.NO_RETRIES, "no retries")


def test_an_error_rule_decides_before_the_policy() -> None:
    rules = (
        ErrorRule(error_types=("RateLimited",), backoff=Fixed(delays_ms=(60_000,))),
        ErrorRule(error_types=("Invalid",), then=Then.DISCARD),
    )
    limited = decided(letter({"deadletter-error-type": "RateLimited"}), one(errors=rules))
    invalid = decided(letter({"deadletter-error-type": "x.Invalid"}), one(errors=rules))
    assert isinstance(limited, Retry)
    assert limited.delay_ms == 60_000
    assert isinstance(invalid, Discard)
    assert invalid.why == "no retries for x.Invalid"


@pytest.mark.parametrize(
    ("age_s", "expected"), [(0, Retry), (58, Retry), (59, Retry), (60, Park), (600, Park)]
)
def test_a_deadline_ends_it_when_the_retry_would_come_too_late(age_s: int, expected: type[Decision]) -> None:
    headers = {"x-death": [death(age_s=age_s)]}
    outcome = decided(letter(headers), one(deadline_ms=60_000))
    assert type(outcome) is expected
    assert (outcome.cause is Cause.DEADLINE_PASSED) == (expected is Park)


def test_the_age_counts_from_the_first_death_of_all() -> None:
    old = returned(1, **{"deadletter-deaths": [death(age_s=3_600)]})
    outcome = decided(old, one(deadline_ms=600_000))
    assert outcome.cause is Cause.DEADLINE_PASSED
    assert outcome.why == "first died 1 h ago; the next retry would come after the deadline of 10 min"


def test_a_broker_clock_ahead_of_ours_makes_no_letter_old() -> None:
    assert isinstance(decided(letter({"x-death": [death(age_s=-900)]}), one(deadline_ms=5_000)), Retry)


def test_counts_by_other_means() -> None:
    by_first = one(count_by=FirstEntry())
    assert [type(decided(letter({"x-death": [death(count=n)]}), by_first)) for n in (3, 4)] == [Retry, Park]
    by_reason = one(count_by=ByReason(reason="rejected"))
    assert isinstance(decided(letter({"x-death": [death(count=4)]}), by_reason), Park)
    by_header = one(count_by=NamedHeader(header="x-retry-count"))
    assert [type(decided(letter({"x-retry-count": n}), by_header)) for n in ("2", "3")] == [Retry, Park]


def test_the_first_policy_that_matches_decides() -> None:
    policies = Policies(
        rules=(
            Policy(name="other", match=Match(queue="invoices"), then=Then.DISCARD, retries=0),
            Policy(name="mine", match=Match(queue="ord*")),
            Policy(name="later", match=Match(queue="orders"), retries=0),
        )
    )
    assert decided(letter(), policies).policy == "mine"
    assert (
        decided(view_letter({"x-death": [death("x")]}, broker_keeps_client_deaths=False), policies).policy
        == "default"
    )


# --- doubt parks


def test_copied_headers_begin_again_at_zero() -> None:
    copied = returned(3, **{"x-death": [death("invoices")], "deadletter-deaths": [death(age_s=9_999)]})
    outcome = decided(copied, one(deadline_ms=60_000))
    assert isinstance(outcome, Retry)
    assert outcome.attempt == 1
    assert copied.origin is not None
    assert copied.origin.queue == "invoices"
    assert isinstance(copied.provenance, Copied)
    assert copied.provenance.parent_id == "id-1"


def test_an_attempt_header_without_a_letter_of_ours_is_not_believed() -> None:
    outcome = decided(letter({"deadletter-attempt": 99}), one())
    assert isinstance(outcome, Retry)
    assert outcome.attempt == 1


def test_an_unknown_origin_parks() -> None:
    outcome = decided(view_letter({}, broker_keeps_client_deaths=False), one())
    assert (type(outcome), outcome.cause) == (Park, Cause.ORIGIN_UNKNOWN)


def test_a_claimed_origin_parks_unless_claims_are_trusted() -> None:
    claimed = view_letter({"NServiceBus.FailedQ": "sales"}, broker_keeps_client_deaths=False)
    outcome = decided(claimed, one())
    assert (type(outcome), outcome.cause) == (Park, Cause.ORIGIN_CLAIMED)
    assert outcome.why == "no death on record; only the header NServiceBus.FailedQ says it failed in sales"
    trusting = decided(claimed, one(), circumstances=Circumstances(continuous=True, trusts_claims=True))
    assert isinstance(trusting, Retry)
    assert claimed.origin is not None
    assert claimed.origin.queue == "sales"


def test_a_reason_never_prints_what_a_terminal_would_obey() -> None:
    claimed = view_letter({"NServiceBus.FailedQ": "\x1b[2J" + "x" * 200}, broker_keeps_client_deaths=False)
    outcome = decided(claimed, one())
    assert outcome.cause is Cause.ORIGIN_CLAIMED
    assert outcome.why.isprintable()
    assert len(outcome.why) < 200


AMBIGUOUS = letter(
    {
        "x-death": [death("invoices"), death("orders")],
        "deadletter-id": "id-1",
        "deadletter-origin-queue": "orders",
    },
    old_broker=True,
)


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("then", [Then.PARK, Then.DISCARD])
def test_an_ambiguous_origin_is_neither_retried_nor_discarded(retries: int, then: Then) -> None:
    outcome = decided(AMBIGUOUS, one(retries=retries, then=then))
    assert isinstance(outcome, Park)
    if retries or then is Then.DISCARD:
        assert outcome.cause is Cause.ORIGIN_AMBIGUOUS
        assert outcome.why.endswith(": invoices, orders")


def test_a_full_origin_is_not_retried_blindly() -> None:
    full = letter({"x-death": [death("orders.dlq", "expired", age_s=-1), death(reason="maxlen")]})
    blind = decided(full, one())
    assert (type(blind), blind.cause) == (Park, Cause.ORIGIN_FULL)
    seeing = decided(full, one(), circumstances=Circumstances(continuous=True, sees_room=True))
    assert isinstance(seeing, Retry)
    assert seeing.needs_room
    assert seeing.why == "retry 1 of 3 after 1 s, once its origin has room"


# --- body conditions

SMALL = JqCondition(program=".amount < 10")
LARGE = JqCondition(program=".amount > 1000")
BY_BODY = Policies(
    rules=(
        Policy(name="elsewhere", match=Match(queue="x", body=JqCondition(program=".never"))),
        Policy(name="small", match=Match(body=SMALL), retries=0, then=Then.DISCARD),
        Policy(name="large", match=Match(queue="orders", body=LARGE)),
        Policy(name="rest"),
        Policy(name="unreached", match=Match(body=JqCondition(program=".late"))),
    )
)


def test_only_the_questions_that_matter_are_asked() -> None:
    assert questions(letter(), BY_BODY) == (SMALL, LARGE)
    assert questions(letter(), one()) == ()


@pytest.mark.parametrize(
    ("answers", "policy", "expected"),
    [
        ({SMALL: Answer.YES}, "small", Discard),
        ({SMALL: Answer.NO, LARGE: Answer.YES}, "large", Retry),
        ({SMALL: Answer.NO, LARGE: Answer.NO}, "rest", Retry),
        ({SMALL: Answer.UNANSWERED, LARGE: Answer.YES}, "small", Park),
        ({SMALL: Answer.NO}, "large", Park),
        ({}, "small", Park),
    ],
)
def test_answers_choose_the_policy_and_their_lack_parks(
    answers: dict[JqCondition, Answer], policy: str, expected: type[Decision]
) -> None:
    outcome = decided(letter(), BY_BODY, answers=answers)
    assert (outcome.policy, type(outcome)) == (policy, expected)
    assert (outcome.cause is Cause.CONDITION_UNANSWERED) == (expected is Park)


# --- explanation


def test_explain_tells_it_attempt_by_attempt() -> None:
    policies = Policies(
        rules=(
            Policy(name="other", match=Match(queue="invoices")),
            Policy(name="mine", match=Match(queue="orders"), retries=3, backoff=Linear(step_ms=1_000)),
        )
    )
    told = explain(returned(1), policies, now=NOW, circumstances=WATCH)
    assert told.considered == (
        Considered(policy="other", refusal="origin 'orders' is not like 'invoices'"),
        Considered(policy="mine", refusal=None),
    )
    assert told.schedule == "1 s, 2 s, 3 s, then park after 3 retries ≈ 6 s"
    assert [(step.after_ms, step.decision.why) for step in told.steps] == [
        (0, "retry 2 of 3 after 2 s"),
        (2_000, "retry 3 of 3 after 3 s"),
        (5_000, "all 3 retries are used up"),
    ]


def test_explain_sees_the_deadline_coming() -> None:
    told = explain(letter(), one(deadline_ms=3_500), now=NOW, circumstances=WATCH)
    assert [step.decision.cause for step in told.steps] == [
        Cause.RETRIES_LEFT,
        Cause.RETRIES_LEFT,
        Cause.DEADLINE_PASSED,
    ]


def test_explain_shows_the_choices_of_jitter_and_begins_as_decide_does() -> None:
    policies = one(backoff=Exponential(first_ms=1_000, jitter=0.2))
    told = explain(letter(), policies, now=NOW, circumstances=WATCH)
    assert told.steps[0].choices_ms == (800, 1_000, 1_200)
    assert told.steps[0].decision == decided(letter(), policies)


def test_explain_of_very_many_retries_is_short_and_ends_with_the_end() -> None:
    told = explain(letter(), one(retries=1_000), now=NOW, circumstances=WATCH)
    assert len(told.steps) == MAX_STEPS
    assert told.left_out == 1_001 - MAX_STEPS
    assert isinstance(told.steps[-1].decision, Park)


def test_explain_says_what_it_cannot_know() -> None:
    told = explain(letter(), BY_BODY, now=NOW, circumstances=WATCH)
    assert told.considered[-1] == Considered(policy="small", refusal="its body condition has no answer")
    assert [step.decision.cause for step in told.steps] == [Cause.CONDITION_UNANSWERED]
    told = explain(
        letter(), BY_BODY, now=NOW, circumstances=WATCH, answers={SMALL: Answer.NO, LARGE: Answer.NO}
    )
    assert Considered(policy="large", refusal="its body condition says no") in told.considered
