"""What must hold for every letter and every policy, whatever anybody writes into either.

About `core.deciding.decide`, `core.deciding.deaths`, `core.deciding.explain`, `core.deciding.backoff`,
`core.deciding.letter_view`, `core.letter.header_values`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from hypothesis import example, given
from hypothesis import strategies as st

from deadletter.core.deciding import deaths as d
from deadletter.core.deciding.backoff import (
    MAX_DELAY_MS,
    MAX_JITTERED_RUNGS,
    MAX_LEVELS,
    MAX_RETRIES,
    Backoff,
    Exponential,
    Fixed,
    Linear,
    compile_schedule,
)
from deadletter.core.deciding.decide import Answer, Circumstances, decide, questions
from deadletter.core.deciding.decision import Discard, Leave, Park, Retry
from deadletter.core.deciding.explain import MAX_STEPS, explain
from deadletter.core.deciding.letter_view import Gist, gist, view_letter
from deadletter.core.deciding.origin import Ambiguous
from deadletter.core.deciding.policy import ErrorRule, HeaderMatch, JqCondition, Match, Policies, Policy, Then
from deadletter.core.letter.header_values import MAX_COUNT
from deadletter.core.letter.names import is_ours
from deadletter.core.text.glob import glob
from deadletter.core.topology.routing_keys import topic_matches

QUEUES = [
    "orders",
    "orders.retry",
    "orders.dlq",
    "deadletter.delay.1000",
    "deadletter.due",
    "é",
    "",
    "\x1b[2J\n",
]
HEADERS_OF_INTEREST = [
    "x-death",
    "deadletter-deaths",
    "deadletter-id",
    "deadletter-attempt",
    "deadletter-origin-queue",
    "deadletter-origin-exchange",
    "deadletter-origin-routing-key",
    "deadletter-error-type",
    "deadletter-error-at",
    "deadletter-cause",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-exception-stacktrace",
    "MT-Fault-InputAddress",
    "MT-Reason",
    "MT-Fault-Timestamp",
    "NServiceBus.FailedQ",
    "NServiceBus.TimeOfFailure",
    "x-failure-time",
    "goqueue-retry-count",
    "task",
    "id",
    "lang",
    "retries",
    "tenant",
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text(max_size=30)
    | st.binary(max_size=30)
    | st.datetimes(timezones=st.just(UTC))
    | st.datetimes()
    | st.sampled_from([*QUEUES, *d.REASONS, "3", "2014-11-11 02:26:58:000462 Z"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)
moments = st.datetimes(timezones=st.just(UTC))
likely_deaths = st.fixed_dictionaries(
    {"queue": st.sampled_from(QUEUES), "reason": st.sampled_from(d.REASONS)},
    optional={
        "count": st.integers(0, 2**63) | values,
        "time": moments | values,
        "exchange": st.sampled_from(["", "shop", "deadletter.return.orders"]) | values,
        "routing-keys": st.lists(st.sampled_from(["a", "a.b", ""]) | values, max_size=3) | values,
    },
)
death_lists = st.lists(likely_deaths, max_size=5) | st.lists(likely_deaths | values, max_size=5) | values
headers = st.fixed_dictionaries(
    {},
    optional={
        name: death_lists if "death" in name and "first" not in name else values
        for name in HEADERS_OF_INTEREST
    },
) | st.dictionaries(st.text(max_size=10) | st.sampled_from(HEADERS_OF_INTEREST), values, max_size=6)

delays = st.integers(1, 10_000) | st.integers(1, MAX_DELAY_MS)
jitters = st.just(0.0) | st.floats(0, 1, exclude_max=True)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    cap_ms = draw(delays)
    floor_ms = draw(st.integers(0, cap_ms))
    jitter = draw(jitters)
    match draw(st.integers(0, 2)):
        case 0:
            some = tuple(draw(st.lists(delays, min_size=1, max_size=MAX_JITTERED_RUNGS)))
            return Fixed(delays_ms=some, jitter=jitter, floor_ms=floor_ms, cap_ms=cap_ms)
        case 1:
            first_ms = draw(st.none() | delays)
            return Linear(
                step_ms=draw(delays), first_ms=first_ms, jitter=jitter, floor_ms=floor_ms, cap_ms=cap_ms
            )
        case _:
            factor = draw(st.floats(1, 1_000))
            return Exponential(
                first_ms=draw(delays), factor=factor, jitter=jitter, floor_ms=floor_ms, cap_ms=cap_ms
            )


retry_counts = st.integers(0, 12) | st.integers(0, MAX_RETRIES)
thens = st.sampled_from(Then)
count_bys: st.SearchStrategy[d.CountBy] = st.sampled_from(
    [
        d.FirstEntry(),
        d.SumOfAll(),
        d.OwnAttempt(),
        d.ByReason(reason="rejected"),
        d.ByQueue(queue="orders"),
        d.NamedHeader(header="goqueue-retry-count"),
        d.NamedHeader(header="x-death"),
    ]
)
conditions = st.builds(JqCondition, program=st.sampled_from([".a", ".b"]))
matches = st.builds(
    Match,
    queue=st.none() | st.sampled_from(["*", "orders", "or*"]),
    routing_key=st.none() | st.sampled_from(["#", "a.*"]),
    reasons=st.frozensets(st.sampled_from(d.REASONS)),
    error_types=st.just(()) | st.just(("*Error",)),
    headers=st.just(()) | st.just((HeaderMatch(header="tenant", value="*a*"),)),
    content_type=st.none() | st.just("application/*"),
    body=st.none() | conditions,
)
error_rules = st.builds(
    ErrorRule,
    error_types=st.just(("*",)),
    backoff=st.none() | backoffs(),
    retries=st.integers(0, 5),
    then=thens,
)


def policies_of(match: st.SearchStrategy[Match]) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        name=st.just("p"),
        match=match,
        retries=retry_counts,
        backoff=backoffs(),
        deadline_ms=st.none() | st.integers(1, 2**40),
        then=thens,
        count_by=count_bys,
        errors=st.just(()) | st.tuples(error_rules),
    )


policy_sets = st.builds(
    Policies,
    rules=st.just(()) | st.tuples(policies_of(matches)),
    default=st.builds(Policy, name=st.just("default"), then=thens, backoff=backoffs(), count_by=count_bys),
)
circumstances = st.builds(
    Circumstances, continuous=st.booleans(), sees_room=st.booleans(), trusts_claims=st.booleans()
)
answer_sets = st.dictionaries(conditions, st.sampled_from(Answer))


@given(
    headers=headers,
    body=st.binary(max_size=50) | st.just(b'{"actor_name":1,"options":{"traceback":"x: y"}}'),
    content_type=st.none() | st.text(max_size=20),
    old_broker=st.booleans(),
    policies=policy_sets,
    now=moments,
    dice=st.floats(),
    around=circumstances,
    answers=answer_sets,
)
def test_decide_never_raises_and_never_contradicts_itself(
    headers: dict[str, object],
    body: bytes,
    content_type: str | None,
    old_broker: bool,
    policies: Policies,
    now: datetime,
    dice: float,
    around: Circumstances,
    answers: dict[JqCondition, Answer],
) -> None:
    letter = view_letter(headers, broker_keeps_client_deaths=old_broker, content_type=content_type, body=body)
    decision = decide(letter, policies, now=now, dice=dice, circumstances=around, answers=answers)
    told = explain(letter, policies, now=now, circumstances=around, answers=answers)
    assert decision.policy in ("p", "default")
    assert decision.why
    assert decision.why.isprintable()
    assert decision.attempt >= 0
    assert type(told.steps[0].decision) is type(decision) or policies_with_jitter_may_differ(policies)
    assert len(told.steps) <= MAX_STEPS
    assert not isinstance(told.steps[-1].decision, Retry)
    if set(questions(letter, policies)) <= {
        asked for asked, said in answers.items() if said is not Answer.UNANSWERED
    }:
        assert decision.cause != "condition-unanswered"
    match decision:
        case Retry():
            assert decision.delay_ms in policies.levels_ms
            assert letter.origin is not None
            assert not letter.origin.queue.startswith("deadletter.")
            assert around.sees_room or letter.reason != "maxlen"
        case Leave():
            assert not around.continuous
        case Discard():
            assert not isinstance(letter.provenance, Ambiguous)
        case Park():
            pass


def policies_with_jitter_may_differ(policies: Policies) -> bool:
    """Near a deadline the dice decide, and an explanation throws none."""
    return any(policy.deadline_ms is not None for policy in policies)


@given(headers=headers)
def test_deaths_never_raise_and_carrying_them_loses_no_count(headers: dict[str, object]) -> None:
    history = d.read_history(headers)
    carried = d.carried(history)
    again = d.read_history({"deadletter-deaths": carried})
    assert d.carried(again) == carried
    for by in (d.SumOfAll(), d.ByReason(reason="rejected"), d.ByQueue(queue="orders")):
        assert d.count_deaths(history, headers, by) == d.count_deaths(again, {}, by)
    # The death that decides is one since its last trip. Of carried ones, all older, the newest stands for it.
    foreign = [death for death in again.all if not is_ours(death.queue)]
    alike = [death.count for death in foreign if (death.queue, death.reason) == _pair(foreign[0])]
    assert d.count_deaths(again, {}, d.FirstEntry()) == min(sum(alike), MAX_COUNT)


def _pair(death: d.Death) -> tuple[str, str]:
    return death.queue, death.reason


@given(backoff=backoffs(), retries=retry_counts, attempt=st.integers(), dice=st.floats())
def test_delays_lie_within_floor_and_cap_and_jitter_within_its_share(
    backoff: Backoff, retries: int, attempt: int, dice: float
) -> None:
    schedule = compile_schedule(backoff, retries)
    delay_ms = schedule.delay_ms(attempt, dice)
    assert (delay_ms is None) == (retries == 0)
    for rung in schedule.rungs:
        assert 1 <= len(rung) <= 3
        assert max(backoff.floor_ms, 1) <= rung[0] <= rung[-1] <= backoff.cap_ms <= MAX_DELAY_MS
        assert rung[-1] <= rung[0] * (1 + backoff.jitter) / (1 - backoff.jitter) + 1
    if delay_ms is not None:
        assert delay_ms in schedule.levels_ms
        assert schedule.text("park")


@given(policy=policies_of(matches))
def test_the_level_set_is_small_and_every_delay_in_it(policy: Policy) -> None:
    schedules = [treatment.schedule for treatment in policy.treatments]
    assert all(len(schedule.levels_ms) <= MAX_LEVELS for schedule in schedules)
    assert policy.levels_ms == frozenset().union(*(schedule.levels_ms for schedule in schedules))
    for schedule in schedules:
        reachable = {
            schedule.delay_ms(attempt, dice)
            for attempt in range(len(schedule.rungs) + 2)
            for dice in (0, 0.4, 0.99)
        }
        assert reachable <= {*schedule.levels_ms, None}


@given(backoff=backoffs(), retries=st.integers(1, 300))
def test_a_retry_is_never_earlier_than_asked(backoff: Backoff, retries: int) -> None:
    schedule = compile_schedule(backoff, retries)
    for attempt in range(retries):
        asked = _asked_ms(backoff, attempt)
        longest = schedule.choices_ms(attempt)[-1]
        assert longest >= min(max(asked, backoff.floor_ms), backoff.cap_ms) - 1


def _asked_ms(backoff: Backoff, attempt: int) -> float:
    """The formula itself, written anew."""
    match backoff:
        case Fixed():
            return backoff.delays_ms[min(attempt, len(backoff.delays_ms) - 1)]
        case Linear():
            return (backoff.first_ms or backoff.step_ms) + attempt * backoff.step_ms
        case Exponential():
            return (
                float(min(backoff.first_ms * min(backoff.factor**attempt, 1e12), 1e12))
                if attempt < 90
                else 0.0
            )


# --- topics against an oracle that tries everything

words = st.sampled_from(["a", "b", "", "*", "#", "a*"])
keys = st.lists(words, max_size=6).map(".".join)


@given(pattern=keys, key=keys)
@example(pattern="#", key="")
@example(pattern="*", key="")
@example(pattern="#.a.#", key="a")
def test_topics_agree_with_brute_force(pattern: str, key: str) -> None:
    as_words = [text.split(".") if text else [] for text in (pattern, key)]
    assert topic_matches(pattern, key) == _oracle(tuple(as_words[0]), tuple(as_words[1]))


@lru_cache(maxsize=100_000)
def _oracle(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(_oracle(pattern[1:], key[taken:]) for taken in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and _oracle(pattern[1:], key[1:])


@given(pattern=st.text("ab*", max_size=8), text=st.text("ab*", max_size=8))
def test_globs_agree_with_brute_force(pattern: str, text: str) -> None:
    assert glob(pattern, text) == _glob_oracle(pattern, text)


def _glob_oracle(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(_glob_oracle(pattern[1:], text[taken:]) for taken in range(len(text) + 1))
    return text[:1] == pattern[0] and _glob_oracle(pattern[1:], text[1:])


@given(headers)
@example({"deadletter-origin-queue": "deadletter.due", "NServiceBus.FailedQ": "orders"})
@example({"NServiceBus.FailedQ": "deadletter.due"})
@example({"x-death": None, "deadletter-cause": "permanent", "deadletter-deaths": [{"queue": "a"}]})
def test_the_gist_of_a_letter_is_the_one_of_its_view(headers: dict[str, object]) -> None:
    view = view_letter(headers, broker_keeps_client_deaths=False, body=b"{}")
    aside, deaths = view.put_aside, view.history.recent
    assert gist(headers, b"{}") == Gist(
        queue=view.origin.queue if view.origin else "",
        reason=view.reason or "",
        cause=aside.cause if aside else "",
        failure=view.failure,
        death=deaths[0] if deaths else None,
    )
