"""Policies: what matches, what is refused, which levels they need.

About `core.deciding.policy`, `core.deciding.letter_view`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deadletter.core.deciding.backoff import Exponential, Fixed, Linear
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.policy import (
    DEFAULT_POLICY,
    MAX_LEVELS_TOGETHER,
    ErrorRule,
    HeaderMatch,
    JqCondition,
    Match,
    Policies,
    Policy,
    Then,
    error_type_matches,
)
from deadletter.errors import UsageError

HEADERS: dict[str, object] = {
    "x-death": [
        {
            "queue": "orders.dlq",
            "reason": "expired",
            "count": 1,
            "exchange": "",
            "routing-keys": ["orders.dlq"],
        },
        {
            "queue": "orders",
            "reason": "rejected",
            "count": 1,
            "exchange": "shop",
            "routing-keys": ["order.new.eu"],
        },
    ],
    "deadletter-error-type": "shop.errors.RateLimited",
    "tenant": "acme",
    "version": 3,
    "urgent": True,
    "odd": b"\xff",
}


def letter(headers: dict[str, object] | None = None) -> LetterView:
    return view_letter(
        HEADERS if headers is None else headers,
        broker_keeps_client_deaths=False,
        content_type="Application/JSON; charset=utf-8",
    )


@pytest.mark.parametrize(
    "match",
    [
        Match(),
        Match(queue="orders"),
        Match(queue="or*s"),
        Match(routing_key="order.#"),
        Match(routing_key="*.new.*"),
        Match(reasons=frozenset({"rejected", "maxlen"})),
        Match(error_types=("RateLimited",)),
        Match(error_types=("Nope", "shop.*")),
        Match(headers=(HeaderMatch(header="tenant"),)),
        Match(headers=(HeaderMatch(header="tenant", value="ac*"), HeaderMatch(header="version", value="3"))),
        Match(headers=(HeaderMatch(header="urgent", value="true"),)),
        Match(headers=(HeaderMatch(header="odd", value="\\xff"),)),
        Match(content_type="application/json"),
        Match(content_type="application/*"),
        Match(body=JqCondition(program=".a")),  # left open
    ],
)
def test_conditions_that_hold(match: Match) -> None:
    assert match.refusal(letter()) is None


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (Match(queue="orders.dlq"), "origin 'orders' is not like 'orders.dlq'"),
        (Match(routing_key="order.*"), "routing key 'order.new.eu' is not like 'order.*'"),
        (Match(reasons=frozenset({"expired"})), "death reason 'rejected' is not expired"),
        (Match(error_types=("Rate",)), "error 'shop.errors.RateLimited' is not like Rate"),
        (Match(headers=(HeaderMatch(header="tenant", value="x"),)), "header tenant 'acme' is not like 'x'"),
        (Match(headers=(HeaderMatch(header="none"),)), "header none (none) is not like '*'"),
        (Match(headers=(HeaderMatch(header="x-death"),)), "header x-death (none) is not like '*'"),
        (Match(content_type="text/*"), "content type 'Application/JSON; charset=utf-8' is not like 'text/*'"),
        (Match(queue="orders", content_type="text/*"), "content type"),
    ],
)
def test_conditions_that_do_not_hold_say_so(match: Match, said: str) -> None:
    refusal = match.refusal(letter())
    assert refusal is not None
    assert refusal.startswith(said)


@pytest.mark.parametrize(
    "match",
    [
        Match(queue="*"),
        Match(routing_key="#"),
        Match(reasons=frozenset({"rejected"})),
        Match(error_types=("*",)),
        Match(content_type="x"),
    ],
)
def test_a_condition_on_something_unknown_does_not_hold(match: Match) -> None:
    assert match.refusal(letter({})) is not None


@pytest.mark.parametrize(
    ("pattern", "error_type", "expected"),
    [
        ("TimeoutError", "asyncio.exceptions.TimeoutError", True),
        ("ConnectException", "java.net.ConnectException", True),
        ("Inner", "Shop.Outer+Inner", True),
        ("Error", "app::Error", True),
        ("Timeout*", "TimeoutError", True),
        ("TimeoutError", "MyTimeoutError", False),
        ("*", None, False),
    ],
)
def test_error_types_match_by_full_or_last_name(
    pattern: str, error_type: str | None, *, expected: bool
) -> None:
    assert error_type_matches(pattern, error_type) is expected


def test_error_rules_choose_the_treatment() -> None:
    policy = Policy(
        name="p",
        retries=5,
        backoff=Linear(step_ms=1_000),
        errors=(
            ErrorRule(error_types=("RateLimited",), backoff=Fixed(delays_ms=(60_000,))),
            ErrorRule(error_types=("ValidationError",), then=Then.DISCARD),
            ErrorRule(error_types=("Validation*",), retries=1),
        ),
    )
    limited, invalid = policy.treatment("x.RateLimited"), policy.treatment("ValidationError")
    assert (limited.schedule.rungs, limited.schedule.retries, limited.then) == (((60_000,),), 5, Then.PARK)
    assert (invalid.schedule.retries, invalid.then) == (0, Then.DISCARD)
    assert policy.treatment("ValidationWarning").schedule.retries == 1
    assert policy.treatment(None).schedule.retries == 5
    assert policy.levels_ms == {60_000, 1_000, 2_000, 3_000, 4_000, 5_000}
    assert policy.text().startswith(
        "1 s, 2 s, 3 s, 4 s, 5 s, then park after 5 retries ≈ 15 s; RateLimited: 1 min"
    )


def test_the_default_policy_is_modest() -> None:
    assert DEFAULT_POLICY.match.everything
    assert DEFAULT_POLICY.then is Then.PARK
    assert DEFAULT_POLICY.retries == 5
    assert len(Policies().levels_ms) <= 15
    assert [policy.name for policy in Policies()] == ["default"]


def _too_many_levels() -> Policies:
    rules = [
        Policy(name=f"p{n}", retries=20, backoff=Fixed(delays_ms=tuple(range(n * 20 + 1, n * 20 + 21))))
        for n in range(MAX_LEVELS_TOGETHER // 20 + 1)
    ]
    return Policies(rules=tuple(rules))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Policy(name=""), r"policy\.name: expected a name"),
        (lambda: Policy(name="p", retries=-1), r"policy p: retries: expected .* got -1"),
        (lambda: Policy(name="p", deadline_ms=0), r"policy p: deadline: expected more than 0 ms, got 0 ms"),
        (
            lambda: Match(reasons=frozenset({"sad"})),
            r"match\.reasons: expected rejected, expired, .* got 'sad'",
        ),
        (lambda: Match(queue="q" * 256), r"match\.queue: expected at most 255 characters, got 256"),
        (lambda: Match(routing_key="q" * 256), r"match\.routing_key: expected at most 255"),
        (
            lambda: JqCondition(program=""),
            r"match\.body: expected a jq program of 1 to 4000 characters, got 0",
        ),
        (lambda: JqCondition(program="." * 5_000), r"match\.body: .* got 5000"),
        (lambda: ErrorRule(error_types=(), retries=1), r"errors\.types: expected at least one"),
        (lambda: ErrorRule(error_types=("E",)), r"errors \['E'\]: expected backoff, retries or then"),
        (
            lambda: Policies(rules=(Policy(name="a"), Policy(name="a"))),
            r"expected different names, got twice: a",
        ),
        (
            lambda: Policies(default=Policy(name="d", match=Match(queue="x"))),
            r"default policy d: expected no match",
        ),
        (_too_many_levels, r"expected at most 200 different delays together, got 2\d\d"),
    ],
)
def test_nonsense_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


def test_a_refusal_never_prints_what_a_terminal_would_obey() -> None:
    evil = letter({**HEADERS, "tenant": "\x1b[2J" + "x" * 10_000})
    refusal = Match(headers=(HeaderMatch(header="tenant", value="y"),)).refusal(evil)
    assert refusal is not None
    assert refusal.isprintable()
    assert len(refusal) < 200


def test_a_refusal_does_not_quote_what_is_not_to_be_told() -> None:
    match = Match(headers=(HeaderMatch(header="tenant", value="beta*"),))
    secret = letter({**HEADERS, "tenant": "acme-secret"})
    assert match.refusal(secret) == "header tenant 'acme-secret' is not like 'beta*'"
    assert match.refusal(secret, unquoted={"tenant"}) == "header tenant is not like 'beta*'"


def test_jittered_policies_share_levels() -> None:
    one = Policy(name="one", backoff=Exponential(first_ms=1_000, jitter=0.2))
    two = Policy(name="two", backoff=Exponential(first_ms=2_000, jitter=0.2))
    assert len(one.levels_ms & two.levels_ms) >= 12
