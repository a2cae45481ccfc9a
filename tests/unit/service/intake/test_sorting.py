"""Intake: what a decision becomes, that remembering it changes nothing, and what is never dropped.

About `service.intake.sorting`, `service.intake.addressing`, `service.intake.copying`,
`service.intake.letter_keys`, `service.intake.condition_batches`, `core.letter.parking`,
`core.deciding.letter_fate`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadletter.broker.return_exchanges import Home
from deadletter.config.settings import GuardSettings
from deadletter.core.deciding import decide as deciding
from deadletter.core.deciding import decision as decisions
from deadletter.core.deciding.backoff import Backoff, Exponential, Fixed
from deadletter.core.deciding.deaths import ByReason, FirstEntry, NamedHeader, OwnAttempt
from deadletter.core.deciding.decide import Answer, Circumstances
from deadletter.core.deciding.decision import Discard, Park, Retry
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.origin import Copied
from deadletter.core.deciding.place import Place
from deadletter.core.deciding.policy import ErrorRule, HeaderMatch, JqCondition, Match, Policies, Policy, Then
from deadletter.core.deciding.states import Step
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.guards.flow import FREE, Hold
from deadletter.core.guards.health import OriginState
from deadletter.core.layouts.naming import PARKED, level_name
from deadletter.core.letter import field_table, names
from deadletter.core.letter.envelope import Deaths, ExchangeKey, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.letter.property_build import LEARN_AFTER
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.fanout import NO_FANOUTS, Fanouts
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.core.topology.vhost import Binding, Exchange, Queue, Topology, topology
from deadletter.errors import JqUnavailable
from deadletter.move.verdict import Drop, Later, Leave, Send, Setback, Stamped, Verdict, Wrap
from deadletter.service.guarding.gates import Gates
from deadletter.service.intake import sorting
from deadletter.service.intake.condition_batches import Asker
from deadletter.service.intake.conditions import Conditions, Question
from deadletter.service.intake.sorting import Sorter, WatchedQueue
from deadletter.service.telling.service_events import Decided, FindingNamed, ServiceEvent

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_MS: Final = int(NOW.timestamp() * 1000)
ID: Final = "0123456789abcdef0123456789abcdef"
OTHER_ID: Final = "f" * 32
CAME_BY: Final = ExchangeKey(b"", b"orders.dlq")
RETRIED: Final = Policy(name="p", retries=3, backoff=Fixed(delays_ms=(1_000, 5_000)))
NO_BREAKER: Final = GuardSettings(breaker=BreakerTerms(enabled=False))


class Known:
    """Ways that are there, or not, as a test says; what was asked for is noted."""

    def __init__(self, *origins: str) -> None:
        self.homes = {
            origin: Home(origin=origin, exchange=f"deadletter.return.{origin}") for origin in origins
        }
        self.asked: list[tuple[str, bool]] = []
        self.repairs = 0
        self.hidden: set[str] = set()
        """Not known before somebody asks."""

    def known(self, origin: str) -> Home | None:
        return None if origin in self.hidden else self.homes.get(origin)

    async def find(self, origin: str, *, again: bool = False) -> Home | None:
        self.asked.append((origin, again))
        return self.homes.get(origin)

    async def repair(self) -> None:
        self.repairs += 1

    def forget(self) -> None:
        self.homes.clear()


class Desk:
    """A sorter with everything around it."""

    def __init__(
        self,
        *policies: Policy,
        shape: ServedLayout = ServedLayout.RETURN,
        continuous: bool = True,
        dice: Callable[[], float] = lambda: 0.0,
        numbered_ms: tuple[int, ...] = (),
        fanouts: Callable[[], Fanouts] = lambda: NO_FANOUTS,
        default: Policy | None = None,
        each: bool = False,
        old_broker: bool = False,
        guards: GuardSettings = NO_BREAKER,
        asker: Asker | None = None,
        place: Callable[[], Place | None] = lambda: None,
        look_afresh: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.events: list[ServiceEvent] = []
        self.now_s = 0.0
        rules = Policies(rules=policies, default=default or Policy(name="default", retries=0))
        self.gates = Gates(guards, rules, self.events.append, clock=lambda: self.now_s)
        self.ways = Known("orders")
        self.sorter = Sorter(
            WatchedQueue(
                dlq="orders.dlq",
                shape=shape,
                policies=rules,
                continuous=continuous,
                keeps_client_deaths=old_broker,
                numbered_ms=numbered_ms,
                fanouts=fanouts,
                place=place,
                look_afresh=look_afresh,
            ),
            keeper=self.gates,
            ways=self.ways,
            asker=asker or Asker(Conditions()),
            emit=self.events.append,
            each=each,
            clock=NOW.timestamp,
            dice=dice,
        )

    def decide(self, one: Letter) -> Verdict:
        return self.sorter.decide(one)


def death(
    queue: str = "orders", reason: str = "rejected", *, key: str = "order.new", age_s: int = 60
) -> dict[str, Value]:
    return {
        "queue": queue,
        "reason": reason,
        "count": 1,
        "time": NOW - timedelta(seconds=age_s),
        "exchange": "shop",
        "routing-keys": [key],
    }


def letter(
    headers: Mapping[str, Value] | None = None,
    *,
    body: bytes = b"{}",
    content_type: str | None = None,
    redelivered: bool = False,
) -> Letter:
    found: dict[str, Value] = {"x-death": [death()], **(headers or {})}
    return raw_letter(encode(View(headers=found, content_type=content_type)), body, redelivered=redelivered)


def raw_letter(properties: bytes, body: bytes = b"{}", *, redelivered: bool = False) -> Letter:
    return Letter(
        source="orders.dlq", message=RawMessage(properties, body), came_by=CAME_BY, redelivered=redelivered
    )


def returned(attempt: int, **more: Value) -> Letter:
    return letter(
        {names.ID: ID, names.ORIGIN_QUEUE: "orders", names.ATTEMPT: attempt, names.ORIGIN_EXCHANGE: "shop",
         names.ORIGIN_ROUTING_KEY: "order.new", **more}
    )  # fmt: skip


def stamped(verdict: Verdict) -> tuple[Send, dict[str, Value]]:
    """The way, and the headers of this letter alone."""
    assert isinstance(verdict, Stamped)
    return verdict.send, field_table.decode(verdict.entries)


def fate_of(verdict: Verdict) -> LetterFate:
    if isinstance(verdict, Stamped):
        verdict = verdict.send
    assert not isinstance(verdict, Later | Stamped)
    assert isinstance(verdict.fate, LetterFate)
    return verdict.fate


async def settled(verdict: Verdict) -> Verdict:
    return await verdict.verdict if isinstance(verdict, Later) else verdict


# -- the ways a decision takes -----------------------------------------------------------------------------
def test_a_retry_goes_into_the_level_of_its_delay_with_all_it_needs_to_come_back() -> None:
    send, stamp = stamped(Desk(RETRIED).decide(letter()))
    assert (send.exchange, send.routing_key) == ("", level_name(1_000))
    assert (send.leg, send.deaths, send.anew) == (Leg.WAIT, Deaths.SET_ASIDE, False)
    assert send.headers == {
        names.ORIGIN_QUEUE: "orders",
        names.ORIGIN_EXCHANGE: "shop",
        names.ORIGIN_ROUTING_KEY: "order.new",
        names.ATTEMPT: 1,
        names.POLICY: "p",
    }
    assert stamp == {names.DUE_AT: NOW_MS + 1_000}
    fate = fate_of(send)
    assert (fate.step, fate.source, fate.origin, fate.policy) == (Step.DELAYED, "orders.dlq", "orders", "p")
    assert (fate.reason, fate.cause, fate.delay_ms, fate.attempt) == ("rejected", "retries-left", 1_000, 1)


def test_each_attempt_takes_its_level_and_the_last_one_parks() -> None:
    desk = Desk(RETRIED)
    found = [fate_of(desk.decide(returned(attempt))) for attempt in range(5)]
    assert [(one.step, one.delay_ms, one.attempt) for one in found] == [
        (Step.DELAYED, 1_000, 1),
        (Step.DELAYED, 5_000, 2),
        (Step.DELAYED, 5_000, 3),
        (Step.PARKED, None, 3),
        (Step.PARKED, None, 4),
    ]


def test_a_parked_letter_keeps_its_deaths_and_says_why_and_when() -> None:
    send, stamp = stamped(Desk(RETRIED).decide(returned(3)))
    assert (send.exchange, send.routing_key) == ("", PARKED)
    assert (send.deaths, send.leg) == (Deaths.KEEP, Leg.PLAIN)
    assert send.headers[names.CAUSE] == "retries-exhausted"
    assert send.headers[names.WHY] == "all 3 retries are used up"
    assert stamp == {names.PARKED_AT: NOW_MS}


def test_what_a_policy_discards_is_dropped_and_what_it_leaves_stays() -> None:
    discard, leave = replace(RETRIED, then=Then.DISCARD), replace(RETRIED, then=Then.LEAVE)
    dropped = Desk(discard).decide(returned(3))
    assert isinstance(dropped, Drop)
    assert fate_of(dropped).step is Step.DISCARDED
    left = Desk(leave, continuous=False).decide(returned(3))
    assert isinstance(left, Leave)
    assert fate_of(left).step is Step.LEFT
    # a continuous watch would get it again at once
    assert fate_of(Desk(leave).decide(returned(3))).step is Step.PARKED


def test_a_copied_letter_is_a_new_one_with_its_own_parent() -> None:
    desk = Desk(RETRIED)
    copied: dict[str, Value] = {names.ORIGIN_QUEUE: "invoices", names.ATTEMPT: 3}
    for identity in (ID, OTHER_ID, ID):
        send, _ = stamped(desk.decide(letter({**copied, names.ID: identity})))
        assert send.anew
        assert send.headers[names.PARENT_ID] == identity
        assert send.headers[names.ATTEMPT] == 1


def test_an_id_that_is_none_makes_no_returned_letter_of_the_next_one() -> None:
    for odd in (5, "", b"\xff", None, "x" * 300):
        desk = Desk(RETRIED)
        own: dict[str, Value] = {names.ORIGIN_QUEUE: "orders", names.ATTEMPT: 2}
        fresh = fate_of(Desk(RETRIED).decide(letter({**own, names.ID: odd})))
        first = fate_of(desk.decide(letter({**own, names.ID: odd})))
        second = fate_of(desk.decide(letter({**own, names.ID: ID})))
        assert first.attempt == fresh.attempt
        assert second.attempt == 3, odd


# -- remembering -------------------------------------------------------------------------------------------
QUEUES: Final = st.sampled_from(("orders", "invoices", "orders.dlq", "deadletter.delay.1000"))
REASON: Final = st.sampled_from(("rejected", "expired", "maxlen", "delivery_limit"))
DEATH: Final[st.SearchStrategy[Value]] = st.builds(
    lambda queue, reason, key, age_s: death(queue, reason, key=key, age_s=age_s),
    QUEUES,
    REASON,
    st.sampled_from(("order.new", "order.old", "")),
    st.sampled_from((0, 1, 60, 4_000)),
)
ODD: Final[st.SearchStrategy[Value]] = st.sampled_from((None, 0, 3, -1, "2", "", b"\xff", [1], {"a": 1}, 2.5))
CHOICES: Final[dict[str, st.SearchStrategy[Value]]] = {
    "x-death": st.one_of(
        st.lists(DEATH, min_size=1, max_size=1), st.lists(DEATH, min_size=2, max_size=3), ODD
    ),
    names.ID: st.sampled_from((ID, OTHER_ID, "", 7, b"\xff", None)),
    names.ORIGIN_QUEUE: st.sampled_from(("orders", "orders", "invoices", "")) | ODD,
    names.ORIGIN_EXCHANGE: st.sampled_from(("shop", "other")) | ODD,
    names.ORIGIN_ROUTING_KEY: st.sampled_from(("order.new", "order.other")) | ODD,
    names.ATTEMPT: st.integers(0, 5) | ODD,
    names.DEATHS: st.lists(DEATH, min_size=1, max_size=2) | ODD,
    "x-first-death-queue": QUEUES,
    "x-first-death-reason": REASON,
    "tenant": st.sampled_from(("gold-1", "silver")) | ODD,
    "x-retry-count": st.integers(0, 5) | ODD,
    "x-exception-message": st.sampled_from(("boom", "bang")),
    names.ERROR_TYPE: st.sampled_from(("TimeoutError", "ValueError")),
    "noise": ODD,
}
SOUND: Final[dict[str, Value]] = {
    "x-death": [death()],
    names.ID: ID,
    names.ORIGIN_QUEUE: "orders",
    names.ORIGIN_EXCHANGE: "shop",
    names.ORIGIN_ROUTING_KEY: "order.new",
    names.ATTEMPT: 1,
}
CHANGE: Final = st.sampled_from(sorted(CHOICES)).flatmap(
    lambda name: st.tuples(st.just(name), CHOICES[name] | st.just(...))
)
"""Another value for one header; an ellipsis takes it off."""


def changed(headers: Mapping[str, Value], changes: Iterable[tuple[str, Any]]) -> dict[str, Value]:
    return {name: value for name, value in {**headers, **dict(changes)}.items() if value is not ...}


@st.composite
def alike(draw: st.DrawFn) -> list[Letter]:
    """A sound letter or one with a few oddities, and others that differ from it in one thing or two."""
    fresh, copied = {"x-death": SOUND["x-death"]}, {**SOUND, names.ORIGIN_QUEUE: "invoices"}
    base = changed(draw(st.sampled_from((SOUND, fresh, copied))), draw(st.lists(CHANGE, max_size=2)))
    content_types = st.sampled_from((None, None, "application/json", "text/plain; charset=utf-8"))
    variants = draw(st.lists(st.lists(CHANGE, max_size=2), min_size=1, max_size=10))
    return [
        raw_letter(encode(View(headers=changed(base, changes), content_type=draw(content_types))))
        for changes in ([], *variants)
    ]


BACKOFFS: Final[st.SearchStrategy[Backoff]] = st.sampled_from(
    (
        Fixed(delays_ms=(1_000, 2_000)),
        Fixed(delays_ms=(1_000,), jitter=0.5),
        Exponential(first_ms=1_000, jitter=0.3, cap_ms=60_000),
    )
)
CONDITIONS: Final[tuple[Match, ...]] = (
    Match(),
    Match(queue="orders"),
    Match(queue="in*"),
    Match(routing_key="order.new"),
    Match(reasons=frozenset({"rejected", "expired"})),
    Match(headers=(HeaderMatch(header="tenant", value="gold-*"),)),
    Match(content_type="application/json"),
    Match(error_types=("TimeoutError",)),
    Match(queue="o*", routing_key="order.#", content_type="text/*"),
)
RULES: Final = st.builds(
    Policy,
    name=st.just("unnamed"),
    match=st.sampled_from(CONDITIONS),
    retries=st.sampled_from((3, 4, 0)),
    backoff=BACKOFFS,
    then=st.sampled_from(Then),
    count_by=st.sampled_from(
        (
            OwnAttempt(),
            OwnAttempt(),
            NamedHeader(header="x-retry-count"),
            FirstEntry(),
            ByReason(reason="rejected"),
        )
    ),
    errors=st.sampled_from(((), (), (), (ErrorRule(error_types=("ValueError",), retries=1),))),
    deadline_ms=st.sampled_from((None, None, None, None, 3_600_000)),
)
DICE: Final = st.sampled_from((0.0, 0.4, 0.99))


def told(verdict: Verdict) -> dict[str, Any]:
    """All that a verdict says, fates by their content."""
    said: dict[str, Any] = {"verdict": type(verdict).__name__}
    if isinstance(verdict, Stamped):
        said["entries"] = verdict.entries
        verdict = verdict.send
    if isinstance(verdict, Send):
        said |= {
            name: getattr(verdict, name)
            for name in ("exchange", "routing_key", "deaths", "leg", "anew", "headers")
        }
    fate = fate_of(verdict)
    return said | {name: getattr(fate, name) for name in LetterFate.__slots__}


@given(
    st.lists(RULES, max_size=3),
    alike(),
    DICE,
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_what_is_remembered_is_what_would_be_decided(
    rules: list[Policy], letters: list[Letter], dice: float, continuous: bool, old_broker: bool
) -> None:
    named = [replace(rule, name=f"p{number}") for number, rule in enumerate(rules)]
    policies = Policies(rules=tuple(named), default=Policy(name="default", retries=2))

    def desk() -> Desk:
        return Desk(
            *named,
            default=policies.default,
            dice=lambda: dice,
            continuous=continuous,
            old_broker=old_broker,
        )

    remembering = desk()
    for one in letters + letters:
        verdict = remembering.decide(one)
        assert told(verdict) == told(desk().decide(one))
        view = view_letter(
            one.headers,
            broker_keeps_client_deaths=old_broker,
            content_type=one.view.content_type,
            body=one.body,
        )
        decision = deciding.decide(
            view,
            policies,
            now=NOW,
            dice=dice,
            circumstances=Circumstances(continuous=continuous, sees_room=True),
        )
        assert agrees(verdict, decision, view), (told(verdict), decision)


def agrees(verdict: Verdict, decision: decisions.Decision, view: LetterView) -> bool:
    fate, origin = fate_of(verdict), view.origin
    if (fate.policy, fate.cause, fate.attempt) != (decision.policy, decision.cause.value, decision.attempt):
        return False
    match decision:
        case Retry():
            send, stamp = stamped(verdict)
            carried = send.headers
            return (
                (fate.step, fate.delay_ms) == (Step.DELAYED, decision.delay_ms)
                and send.routing_key == level_name(decision.delay_ms)
                and stamp == {names.DUE_AT: NOW_MS + decision.delay_ms}
                and origin is not None
                and carried[names.ORIGIN_QUEUE] == origin.queue
                and carried[names.ORIGIN_ROUTING_KEY] == (origin.routing_key or "")
                and carried[names.ATTEMPT] == decision.attempt
                and send.anew == isinstance(view.provenance, Copied)
            )
        case Park():
            send, _ = stamped(verdict)
            return fate.step is Step.PARKED and send.headers[names.WHY] == decision.why[:500]
        case decisions.Leave():
            return isinstance(verdict, Leave) and fate.step is Step.LEFT
        case Discard():
            return isinstance(verdict, Drop) and fate.step is Step.DISCARDED


TENANT: Final = replace(RETRIED, match=Match(headers=(HeaderMatch(header="tenant", value="gold-*"),)))
COUNTED: Final = replace(RETRIED, count_by=NamedHeader(header="x-retry-count"))
ONE_LETTER: Final = replace(RETRIED, match=Match(headers=(HeaderMatch(header=names.ID, value=ID),)))
TWO_QUEUES: Final[Value] = [death("orders.dlq", "expired"), death("orders")]
TWO_EXPIRED: Final[Value] = [death("orders.dlq", "expired"), death("orders", "expired")]
NOT_OURS: Final[dict[str, Value]] = {names.ID: None, names.ORIGIN_QUEUE: None}


@pytest.mark.parametrize(
    ("policy", "header", "one", "other", "base"),
    [
        (TENANT, "tenant", "gold-1", "silver", {}),
        (COUNTED, "x-retry-count", 0, 3, {}),
        (RETRIED, names.ATTEMPT, 1, 2, {}),
        (RETRIED, names.ORIGIN_QUEUE, "orders", "invoices", {}),
        (RETRIED, names.ORIGIN_EXCHANGE, "shop", "other", {}),
        (RETRIED, names.ORIGIN_ROUTING_KEY, "order.new", "order.other", {}),
        (RETRIED, "x-death", [death()], [death(key="order.other")], {names.ID: None}),
        (RETRIED, "x-death", [death()], [death(reason="maxlen")], {}),
        (RETRIED, "x-first-death-queue", "orders", "orders.dlq",
         {"x-death": TWO_EXPIRED, "x-first-death-reason": "expired", **NOT_OURS}),
        (RETRIED, "x-first-death-reason", "expired", "rejected",
         {"x-death": TWO_EXPIRED, "x-first-death-queue": "orders.dlq", **NOT_OURS}),
        (RETRIED, names.DEATHS, TWO_QUEUES, [death()], {"x-death": TWO_QUEUES}),
        (ONE_LETTER, names.ID, ID, "f" * 32, {}),
    ],
)  # fmt: skip
def test_letters_that_differ_where_it_matters_are_not_taken_for_each_other(
    policy: Policy, header: str, one: Value, other: Value, base: dict[str, Value]
) -> None:
    first, second = (letter({**SOUND, **base, header: value}) for value in (one, other))
    apart = [told(Desk(policy, old_broker=True).decide(found)) for found in (first, second)]
    assert apart[0] != apart[1]
    desk = Desk(policy, old_broker=True)
    assert [told(desk.decide(found)) for found in (first, second)] == apart
    for _ in range(LEARN_AFTER):  # now it is known where their headers stand
        desk.decide(first)
    assert [told(desk.decide(found)) for found in (first, second, first)] == [*apart, apart[0]]


def test_jitter_chooses_anew_for_each_letter_although_the_decision_is_remembered() -> None:
    thrown = [n / 10 for n in range(10)] * 3
    jittered = Policy(name="j", retries=3, backoff=Fixed(delays_ms=(10_000,), jitter=0.5))
    choices = jittered.treatments[-1].schedule.choices_ms(0)
    assert len(choices) == 3
    desk = Desk(jittered, dice=iter([*thrown, *thrown]).__next__)
    found = {fate_of(desk.decide(letter())).delay_ms for _ in range(15)}
    assert found == set(choices)


def test_with_a_deadline_the_delay_that_was_weighed_is_the_one_that_is_taken() -> None:
    jittered = Policy(name="j", retries=3, backoff=Fixed(delays_ms=(10_000,), jitter=0.5), deadline_ms=70_000)
    shortest = jittered.treatments[-1].schedule.choices_ms(0)[0]
    # Sixty seconds old: only the shortest of the three delays ends before the deadline.
    desk = Desk(jittered, dice=iter([0.0, 0.99, 0.99]).__next__)
    assert fate_of(desk.decide(letter())).delay_ms == shortest
    assert fate_of(desk.decide(letter())).cause == "deadline-passed"


def test_the_error_of_one_letter_is_not_written_on_the_next() -> None:
    timeout, value = ({names.ERROR_TYPE: name} for name in ("TimeoutError", "ValueError"))
    plain = Desk(RETRIED)
    groups = [stamped(plain.decide(letter(found)))[0].headers.get(names.GROUP) for found in (timeout, value)]
    assert groups == [None, None]  # nobody looks at errors
    caring = replace(RETRIED, errors=(ErrorRule(error_types=("ValueError",), retries=9),))
    desk = Desk(caring)
    groups = [stamped(desk.decide(letter(found)))[0].headers.get(names.GROUP) for found in (timeout, value)]
    assert groups == ["TimeoutError", "ValueError"]


def test_when_the_shape_changes_what_was_remembered_is_forgotten() -> None:
    found = [NO_FANOUTS]
    desk = Desk(RETRIED, fanouts=lambda: found[0])
    assert fate_of(desk.decide(letter())).step is Step.DELAYED
    found[0] = fanouts("billing.dlq", "orders.dlq", watched="orders.dlq", owner="billing")
    assert fate_of(desk.decide(letter())).step is Step.DELAYED
    desk.sorter.forget()
    send, _ = stamped(desk.decide(letter()))
    assert send.headers[names.HOME] == "1 orders.dlq"


def test_only_so_many_kinds_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "KNOWN_MAX", 3)
    desk = Desk(RETRIED)
    for number in range(10):
        key = f"order.{number}"
        send, _ = stamped(desk.decide(letter({"x-death": [death(key=key)]})))
        assert send.headers[names.ORIGIN_ROUTING_KEY] == key
        assert len(desk.sorter._known) <= 3


# -- a fanout that copies ----------------------------------------------------------------------------------
def fanouts(*dlqs: str, watched: str, owner: str, origin: str = "orders", **limits: Value) -> Fanouts:
    """`origin` dies into these, of which the first may be limited; `owner` is another queue."""
    shape = topology(
        exchanges=(Exchange(name="dlx", type="fanout"),),
        queues=(
            Queue(name=origin, arguments={"x-dead-letter-exchange": "dlx"}),
            Queue(name=owner),
            Queue(name=dlqs[0], arguments={f"x-{name.replace('_', '-')}": v for name, v in limits.items()}),
            *(Queue(name=name) for name in dlqs[1:]),
        ),
        bindings=tuple(Binding(source="dlx", destination=name) for name in dlqs),
    )
    return Fanouts(shape, frozenset({watched}))


def elsewhere(**limits: Value) -> Fanouts:
    """Letters that die in `shop` have their home in shop.dlq, and orders.dlq gets a copy."""
    return fanouts("shop.dlq", "orders.dlq", watched="orders.dlq", owner="orders", origin="shop", **limits)


def died_in_shop(attempt: int, mark: str | None = None, *, exchange: bytes = b"dlx") -> Letter:
    headers: dict[str, Value] = {"x-death": [death("shop")]}
    if attempt:
        headers |= {names.ID: ID, names.ORIGIN_QUEUE: "shop", names.ATTEMPT: attempt}
    if mark is not None:
        headers[names.HOME] = mark
    made = letter(headers)
    return Letter(
        source="orders.dlq",
        message=made.message,
        came_by=ExchangeKey(exchange, b"order.new"),
        redelivered=True,
    )


def test_a_copy_by_a_fanout_is_parked_and_the_finding_named() -> None:
    desk = Desk(RETRIED, fanouts=elsewhere)
    send, _ = stamped(desk.decide(died_in_shop(0)))
    assert fate_of(send).step is Step.PARKED
    assert send.headers[names.CAUSE] == "copied-by-fanout"
    assert "'shop.dlq'" in str(send.headers[names.WHY])
    (found,) = [event for event in desk.events if isinstance(event, FindingNamed)]
    assert (found.rule, found.subject) == ("shared-dlx-fanout", "shop")


@pytest.mark.parametrize("attempt", [1, 3], ids=["on its way", "at its end"])
def test_a_later_copy_with_the_mark_is_dropped_and_counted(attempt: int) -> None:
    verdict = Desk(RETRIED, fanouts=elsewhere).decide(died_in_shop(attempt, f"{attempt} shop.dlq"))
    assert isinstance(verdict, Drop)
    assert fate_of(verdict).step is Step.DROPPED
    assert fate_of(verdict).cause == "copied-by-fanout"


@pytest.mark.parametrize(
    ("attempt", "mark", "exchange", "limits"),
    [
        (1, None, b"dlx", {}),
        (2, "1 shop.dlq", b"dlx", {}),
        (1, "1 other.dlq", b"dlx", {}),
        (0, "0 shop.dlq", b"dlx", {}),
        (1, "1 shop.dlq", b"", {}),
        (1, "1 shop.dlq", b"\xff", {}),
        (1, "1 shop.dlq", b"dlx", {"max_length": 100}),
        (1, "1 shop.dlq", b"dlx", {"message_ttl": 100}),
        (1, "1 shop.dlq", b"dlx", {"expires": 100}),
    ],
    ids=["none", "of before", "another home", "never home", "published", "no text", "full", "ttl", "expires"],
)
def test_where_anything_is_missing_the_copy_is_kept(
    attempt: int, mark: str | None, exchange: bytes, limits: dict[str, Value]
) -> None:
    desk = Desk(RETRIED, fanouts=lambda: elsewhere(**limits))
    send, _ = stamped(desk.decide(died_in_shop(attempt, mark, exchange=exchange)))
    assert send.headers[names.CAUSE] == "copied-by-fanout"


def test_a_copy_says_nothing_of_its_origin_to_the_guards() -> None:
    desk = Desk(RETRIED, fanouts=elsewhere, guards=replace(NO_BREAKER, copies=1))
    for _ in range(10):
        desk.decide(died_in_shop(1))
    assert desk.gates.flow("orders") is FREE


@pytest.mark.parametrize("shape", [ServedLayout.RETURN, ServedLayout.SWEEP])
def test_the_queue_that_is_its_home_sends_it_back_with_the_mark(shape: ServedLayout) -> None:
    found = fanouts("orders.dlq", "billing.dlq", watched="orders.dlq", owner="billing")
    desk = Desk(RETRIED, fanouts=lambda: found, shape=shape)
    send, _ = stamped(desk.decide(letter()))
    assert send.headers[names.HOME] == "1 orders.dlq"
    assert not desk.events


# -- what cannot be read or decided ------------------------------------------------------------------------
@pytest.mark.parametrize("raw", [b"", b"\x20\x00", b"\x20\x00\x00\x00\x00\x09\x01aS\xff\xff\xff\xff"])
@pytest.mark.parametrize("shape", [ServedLayout.RETURN, ServedLayout.LEVELS])
def test_an_unreadable_letter_is_wrapped_and_parked(raw: bytes, shape: ServedLayout) -> None:
    wrapped = Desk(RETRIED, shape=shape, numbered_ms=(1_000,)).decide(raw_letter(raw))
    assert isinstance(wrapped, Wrap)
    place = ("", PARKED) if shape is ServedLayout.RETURN else ("dlq-exchange", "dlq-routing-key")
    assert (wrapped.exchange, wrapped.routing_key) == place
    assert wrapped.cause == "unreadable"
    assert wrapped.at_ms == NOW_MS
    assert fate_of(wrapped).step is Step.PARKED


def test_a_decision_that_fails_parks_the_letter_with_the_reason() -> None:
    def broken() -> float:
        raise ZeroDivisionError("the dice are gone")

    send, stamp = stamped(Desk(RETRIED, dice=broken).decide(letter()))
    assert fate_of(send).step is Step.PARKED
    assert send.headers[names.CAUSE] == "decision-failed"
    assert "ZeroDivisionError: the dice are gone" in str(send.headers[names.WHY])
    assert stamp == {names.PARKED_AT: NOW_MS}


def test_a_letter_without_a_death_is_parked_because_nobody_knows_its_origin() -> None:
    send, _ = stamped(Desk(RETRIED).decide(raw_letter(encode(View(headers={"a": 1})))))
    assert send.headers[names.CAUSE] == "origin-unknown"
    assert fate_of(send).step is Step.PARKED


class Ground:
    """A broker whose shape changes, and how often somebody looked."""

    def __init__(self, *shapes: Topology) -> None:
        self._shapes = [Descent(shape) for shape in shapes]
        self.looks = 0

    def place(self) -> Place:
        return Place(queue="orders.dlq", ways=self._shapes[min(self.looks, len(self._shapes) - 1)])

    async def look_afresh(self) -> bool:
        self.looks += 1
        return True


DEAD_ENDS: Final = topology(queues=[Queue(name="orders"), Queue(name="orders.dlq")])
LEADING: Final = topology(
    queues=[
        Queue(
            name="orders",
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"},
        ),
        Queue(name="orders.dlq"),
    ]
)


async def test_an_origin_that_does_not_lead_here_is_parked_after_a_look_of_its_own() -> None:
    shape = Ground(DEAD_ENDS)
    desk = Desk(RETRIED, place=shape.place, look_afresh=shape.look_afresh)
    for looks in (1, 2):  # nothing is remembered of it
        send, _ = stamped(await settled(desk.decide(letter(SOUND))))
        assert (send.headers[names.CAUSE], shape.looks) == ("origin-unproven", looks)
        assert names.ORIGIN_QUEUE not in send.headers
        assert "orders" in str(send.headers[names.WHY])


async def test_a_look_that_shows_the_way_is_enough() -> None:
    shape = Ground(DEAD_ENDS, LEADING)
    desk = Desk(RETRIED, place=shape.place, look_afresh=shape.look_afresh)
    assert fate_of(await settled(desk.decide(letter(SOUND)))).step is Step.DELAYED
    assert fate_of(desk.decide(letter(SOUND))).step is Step.DELAYED
    assert shape.looks == 1


async def test_letters_that_came_by_another_exchange_are_not_taken_for_each_other() -> None:
    shape = Ground(LEADING)
    desk = Desk(RETRIED, place=shape.place, look_afresh=shape.look_afresh)
    assert fate_of(desk.decide(letter(SOUND))).step is Step.DELAYED
    found = letter(SOUND)
    found.came_by = ExchangeKey(b"dlx", b"orders.dlq")
    assert fate_of(await settled(desk.decide(found))).cause == "origin-unproven"


def test_a_claim_that_nobody_confirms_is_parked() -> None:
    claimed = encode(View(headers={names.ORIGIN_QUEUE: "orders"}))
    assert fate_of(Desk(RETRIED).decide(raw_letter(claimed))).cause == "origin-claimed"


# -- body conditions ---------------------------------------------------------------------------------------
@asynccontextmanager
async def asking() -> AsyncIterator[Asker]:
    async with Conditions() as conditions:
        yield Asker(conditions)


BIG: Final = Policy(
    name="big", match=Match(body=JqCondition(program=".total > 100")), retries=3, backoff=RETRIED.backoff
)


async def test_a_body_condition_is_asked_for_each_letter() -> None:
    async with asking() as asker:
        desk = Desk(BIG, asker=asker)
        bodies = [b'{"total": 5}', b'{"total": 500}', b"no json", b'{"total": 501}']
        verdicts = [desk.decide(letter(body=body)) for body in bodies]
        assert all(isinstance(verdict, Later) for verdict in verdicts)
        found = [fate_of(await settled(verdict)) for verdict in verdicts]
    assert [(one.policy, one.step) for one in found] == [
        ("default", Step.PARKED),
        ("big", Step.DELAYED),
        ("default", Step.PARKED),
        ("big", Step.DELAYED),
    ]


async def test_what_fails_after_the_answer_parks_the_letter_too() -> None:
    def broken() -> float:
        raise ZeroDivisionError("the dice are gone")

    async with asking() as asker:
        verdict = await settled(Desk(BIG, asker=asker, dice=broken).decide(letter(body=b'{"total": 500}')))
    assert fate_of(verdict).cause == "decision-failed"


async def test_with_nobody_to_ask_the_letter_stays_where_it_is() -> None:
    class Nobody(Conditions):
        async def answer(self, questions: Sequence[Question]) -> list[Mapping[JqCondition, Answer]]:
            raise JqUnavailable(f"nobody answers {len(questions)} questions")

    verdict = Desk(BIG, asker=Asker(Nobody())).decide(letter(body=b'{"total": 500}'))
    assert isinstance(verdict, Later)
    with pytest.raises(JqUnavailable):
        await verdict.verdict


# -- numbered levels ---------------------------------------------------------------------------------------
def test_numbered_levels_take_the_key_of_the_letter_and_the_number_of_the_retry() -> None:
    desk = Desk(replace(RETRIED, retries=5), shape=ServedLayout.LEVELS, numbered_ms=(10_000, 15_000, 20_000))
    found = [stamped(desk.decide(returned(attempt))) for attempt in range(5)]
    assert {send.exchange for send, _ in found} == {"route-delay"}
    assert [send.routing_key for send, _ in found] == [
        f"binding.order.new.{level}" for level in (1, 2, 3, 3, 3)
    ]
    assert [stamp[names.DUE_AT] for _, stamp in found] == [
        NOW_MS + ms for ms in (10_000, 15_000, 20_000, 20_000, 20_000)
    ]
    parked, _ = stamped(desk.decide(returned(5)))
    assert (parked.exchange, parked.routing_key) == ("dlq-exchange", "dlq-routing-key")


# -- sweeps ------------------------------------------------------------------------------------------------
def test_a_sweep_sends_straight_home_with_the_deaths_set_aside() -> None:
    desk = Desk(RETRIED, shape=ServedLayout.SWEEP, continuous=False)
    send, own = stamped(desk.decide(letter()))
    assert own == {names.RELEASED_AT: NOW_MS}
    assert (send.exchange, send.routing_key) == ("deadletter.return.orders", "order.new")
    assert (send.deaths, send.leg) == (Deaths.SET_ASIDE, Leg.HOME)
    assert send.headers[names.ATTEMPT] == 1
    assert (fate_of(send).step, fate_of(send).reason) == (Step.RELEASED, "rejected")


def test_a_sweep_leaves_what_a_gate_keeps() -> None:
    desk = Desk(RETRIED, shape=ServedLayout.SWEEP, continuous=False)
    desk.gates.observe("orders", OriginState(exists=True, consumers=0, ready=0))
    left = desk.decide(letter())
    assert isinstance(left, Leave)
    fate = fate_of(left)
    assert (fate.step, fate.origin, fate.cause, fate.reason) == (Step.LEFT, "orders", "orders", "rejected")


async def test_a_sweep_looks_for_a_way_it_does_not_know_and_parks_where_there_is_none() -> None:
    desk = Desk(RETRIED, shape=ServedLayout.SWEEP, continuous=False)
    desk.ways.hidden.add("orders")
    assert fate_of(await settled(desk.decide(letter()))).step is Step.RELEASED
    assert desk.ways.asked == [("orders", False)]
    desk.ways.homes.clear()
    parked = await settled(desk.decide(letter()))
    assert (fate_of(parked).step, fate_of(parked).cause) == (Step.PARKED, "origin-missing")


async def test_a_swept_letter_that_is_returned_is_bound_once_more_and_then_parked() -> None:
    desk = Desk(RETRIED, shape=ServedLayout.SWEEP, continuous=False)
    first, _ = stamped(desk.decide(letter()))
    second, _ = stamped(await settled(desk.sorter.again(letter(), first, Setback.UNROUTABLE, "unroutable")))
    assert second.headers == first.headers
    assert desk.ways.asked == [("orders", True)]
    third = await settled(desk.sorter.again(letter(), second, Setback.UNROUTABLE, "unroutable"))
    assert fate_of(third).cause == "origin-missing"


def test_a_swept_letter_that_its_origin_refuses_is_left() -> None:
    desk = Desk(RETRIED, shape=ServedLayout.SWEEP, continuous=False)
    first, _ = stamped(desk.decide(letter()))
    left = desk.sorter.again(letter(), first, Setback.REFUSED, "refused")
    assert isinstance(left, Leave)
    assert (fate_of(left).step, fate_of(left).cause) == (Step.LEFT, "full")
    assert isinstance(desk.decide(letter()), Leave)  # and so is the next: the origin is full


# -- second thoughts ---------------------------------------------------------------------------------------
async def test_a_level_that_is_gone_is_declared_again_and_the_letter_sent_again() -> None:
    desk = Desk(RETRIED)
    send, _ = stamped(desk.decide(letter()))
    again = await settled(desk.sorter.again(letter(), send, Setback.UNROUTABLE, "unroutable"))
    assert desk.ways.repairs == 1
    assert stamped(again) == (send, {names.DUE_AT: NOW_MS + 1_000})


async def test_what_a_level_refuses_is_sent_once_more_after_a_moment() -> None:
    desk = Desk(RETRIED)
    send, _ = stamped(desk.decide(letter()))
    later = desk.sorter.again(letter(), send, Setback.REFUSED, "refused")
    assert isinstance(later, Later)
    assert not later.verdict.done()
    assert stamped(await settled(later)) == (send, {names.DUE_AT: NOW_MS + 1_000})
    parked, _ = stamped(desk.decide(returned(3)))
    again = await settled(desk.sorter.again(letter(), parked, Setback.REFUSED, "refused"))
    assert stamped(again) == (parked, {names.PARKED_AT: NOW_MS})


def test_what_cannot_travel_is_wrapped() -> None:
    desk = Desk(RETRIED)
    send, _ = stamped(desk.decide(letter()))
    wrapped = desk.sorter.again(letter(), send, Setback.UNFIT, "its headers do not fit")
    assert isinstance(wrapped, Wrap)
    assert wrapped.why == "its headers do not fit"


# -- what the guards and the log hear ----------------------------------------------------------------------
def test_the_guards_hear_of_each_letter_that_died_again_and_of_no_other() -> None:
    desk = Desk(RETRIED, guards=replace(NO_BREAKER, copies=2))
    for number in range(10):
        desk.decide(letter({"noise": number}))
    desk.decide(returned(1))
    desk.decide(returned(1))
    assert desk.gates.flow("orders") is FREE
    desk.decide(returned(1))  # the third with one id and attempt is one too many
    assert isinstance(desk.gates.flow("orders"), Hold)


def test_each_decision_is_told_when_somebody_asked_for_it() -> None:
    desk = Desk(RETRIED, each=True)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    desk.decide(returned(1, traceparent=trace))
    desk.decide(returned(3))
    found = [event for event in desk.events if isinstance(event, Decided)]
    assert [(one.letter_id, one.fate.step, one.traceparent) for one in found] == [
        (ID, Step.DELAYED, trace),
        (ID, Step.PARKED, None),
    ]
    assert found[1].why == "all 3 retries are used up"


def test_nothing_is_told_otherwise() -> None:
    desk = Desk(RETRIED)
    desk.decide(letter())
    assert not desk.events
