"""Release: home if it may go, held if not, parked where there is no home; and what is remembered.

About `service.guarding.guarded_release`, `retrying.release`, `retrying.homewards`, `retrying.parking`,
`core.letter.parking`, `core.deciding.letter_fate`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from deadletter.broker.return_exchanges import Home
from deadletter.config.settings import GuardSettings
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.policy import Policies, Policy
from deadletter.core.deciding.states import Step
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.guards.health import OriginState
from deadletter.core.layouts.naming import DUE, PARKED, held_name
from deadletter.core.letter import field_table, names
from deadletter.core.letter.envelope import Deaths, ExchangeKey, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.move.verdict import Later, Leave, Send, Setback, Stamped, Verdict, Wrap
from deadletter.retrying import release
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.guarded_release import GuardedRelease
from deadletter.service.telling.service_events import ServiceEvent

CARRIED: Final[dict[str, Value]] = {
    names.ID: "0123456789abcdef0123456789abcdef",
    names.ORIGIN_QUEUE: "orders",
    names.ORIGIN_EXCHANGE: "shop",
    names.ORIGIN_ROUTING_KEY: "order.new",
    names.ATTEMPT: 2,
    names.POLICY: "p",
}
CLOSED: Final = OriginState(exists=True, consumers=0, ready=0)
OPEN: Final = OriginState(exists=True, consumers=1, ready=0)


class Ways:
    """Ways that are there, or not, as a test says; what was asked for is noted."""

    def __init__(self, *origins: str) -> None:
        self.homes = {origin: _home(origin) for origin in origins}
        self.there = set(origins)
        self.asked: list[tuple[str, bool]] = []
        self.made: set[str] = set()
        self.opened: list[tuple[str, bool]] = []
        self.repairs = 0

    def known(self, origin: str) -> Home | None:
        return self.homes.get(origin)

    async def find(self, origin: str, *, again: bool = False) -> Home | None:
        self.asked.append((origin, again))
        if origin not in self.there:
            return None
        self.homes[origin] = _home(origin)
        return self.homes[origin]

    async def repair(self) -> None:
        self.repairs += 1
        self.made.clear()

    def forget(self) -> None:
        self.homes.clear()

    def holds(self, gate: str) -> bool:
        return gate in self.made

    async def holding(self, gate: str, *, again: bool = False) -> None:
        self.opened.append((gate, again))
        self.made.add(gate)


def _home(origin: str) -> Home:
    return Home(origin=origin, exchange=f"deadletter.return.{origin}")


class Bench:
    """A releaser with everything around it."""

    def __init__(
        self,
        *,
        waiting: bool = False,
        shape: ServedLayout = ServedLayout.RETURN,
        policies: Policies | None = None,
    ) -> None:
        self.events: list[ServiceEvent] = []
        self.now_s = 0.0
        guards = GuardSettings(breaker=BreakerTerms(enabled=False))
        self.gates = Gates(guards, policies or Policies(), self.events.append, clock=lambda: self.now_s)
        self.ways = Ways("orders")
        self.told: list[str] = []
        source = held_name("orders") if waiting else DUE
        self.releaser = GuardedRelease(
            source, shape, keeper=self.gates, ways=self.ways, waiting=waiting, on_gate=self.told.append
        )

    def decide(self, one: Letter) -> Verdict:
        return self.releaser.decide(one)


def due(headers: Mapping[str, Value] = CARRIED) -> Letter:
    return _letter(encode(View(headers=headers)))


def _letter(properties: bytes) -> Letter:
    came_by = ExchangeKey(b"", DUE.encode())
    return Letter(source=DUE, message=RawMessage(properties, b"{}"), came_by=came_by, redelivered=False)


def without(*missing: str) -> dict[str, Value]:
    return {name: value for name, value in CARRIED.items() if name not in missing}


def sent(verdict: Verdict) -> Send:
    if isinstance(verdict, Stamped):
        assert field_table.decode(verdict.entries).keys() == {names.RELEASED_AT}
        assert fate_of(verdict.send).step is Step.RELEASED
        return verdict.send
    assert isinstance(verdict, Send)
    return verdict


def parked(verdict: Verdict) -> tuple[Send, LetterFate]:
    assert isinstance(verdict, Stamped)
    assert field_table.decode(verdict.entries).keys() == {names.PARKED_AT}
    fate = verdict.send.fate
    assert isinstance(fate, LetterFate)
    assert fate.step is Step.PARKED
    return verdict.send, fate


def fate_of(verdict: Send) -> LetterFate:
    assert isinstance(verdict.fate, LetterFate)
    return verdict.fate


async def settled(verdict: Verdict) -> Verdict:
    return await verdict.verdict if isinstance(verdict, Later) else verdict


# -- home -------------------------------------------------------------------------------------------------
def test_a_letter_goes_home_with_its_own_key_and_without_the_death_in_our_delay() -> None:
    send = sent(Bench().decide(due()))
    assert (send.exchange, send.routing_key) == ("deadletter.return.orders", "order.new")
    assert (send.deaths, send.leg) == (Deaths.FORGET, Leg.HOME)
    fate = fate_of(send)
    assert (fate.step, fate.source, fate.origin, fate.policy, fate.attempt) == (
        Step.RELEASED,
        DUE,
        "orders",
        "p",
        2,
    )


def test_where_we_may_not_bind_it_goes_by_the_name_of_the_queue() -> None:
    bench = Bench()
    bench.ways.homes["orders"] = Home(origin="orders", exchange="")
    send = sent(bench.decide(due()))
    assert (send.exchange, send.routing_key) == ("", "orders")


def test_letters_of_one_kind_share_a_way_until_it_is_found_anew() -> None:
    bench = Bench()
    first = sent(bench.decide(due()))
    assert sent(bench.decide(due({**CARRIED, names.ID: "f" * 32, names.DUE_AT: 1}))) is first
    assert sent(bench.decide(due({**CARRIED, names.ATTEMPT: 3}))) is not first
    bench.ways.homes["orders"] = Home(origin="orders", exchange="")
    second = sent(bench.decide(due()))
    assert (second.exchange, second.routing_key) == ("", "orders")
    assert sent(bench.decide(due())) is second


async def test_a_way_that_is_not_known_is_looked_for_and_one_that_is_not_there_parks() -> None:
    bench = Bench()
    bench.ways.homes.clear()
    assert fate_of(sent(await settled(bench.decide(due())))).step is Step.RELEASED
    send, fate = parked(await settled(bench.decide(due({**CARRIED, names.ORIGIN_QUEUE: "gone"}))))
    assert (fate.cause, fate.origin, send.headers[names.CAUSE]) == (
        "origin-missing",
        "gone",
        "origin-missing",
    )
    assert send.headers[names.WHY] == "its origin 'gone' is not there"
    assert send.deaths is Deaths.FORGET
    assert bench.ways.asked == [("orders", False), ("gone", False)]


@pytest.mark.parametrize("odd", [None, 5, "", b"\xff"])
@pytest.mark.parametrize("shape", [ServedLayout.RETURN, ServedLayout.LEVELS])
def test_a_letter_that_does_not_say_where_it_belongs_is_parked_with_its_deaths(
    odd: Value, shape: ServedLayout
) -> None:
    headers = {**without(names.ORIGIN_QUEUE), **({} if odd is None else {names.ORIGIN_QUEUE: odd})}
    send, fate = parked(Bench(shape=shape).decide(due(headers)))
    place = ("", PARKED) if shape is ServedLayout.RETURN else ("dlq-exchange", "dlq-routing-key")
    assert (send.exchange, send.routing_key) == place
    assert fate.cause == "origin-unknown"
    assert send.deaths is Deaths.KEEP


@pytest.mark.parametrize("raw", [b"", b"\x20\x00\x00\x00\x00\x09\x01aS\xff\xff\xff\xff"])
def test_an_unreadable_letter_is_wrapped(raw: bytes) -> None:
    wrapped = Bench().decide(_letter(raw))
    assert isinstance(wrapped, Wrap)
    assert (wrapped.routing_key, wrapped.cause) == (PARKED, "unreadable")


def test_only_so_many_kinds_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "KNOWN_MAX", 3)
    bench = Bench()
    for number in range(10):
        key = f"order.{number}"
        assert sent(bench.decide(due({**CARRIED, names.ORIGIN_ROUTING_KEY: key}))).routing_key == key
        assert len(bench.releaser._known) <= 3


# -- how late it is ---------------------------------------------------------------------------------------
def test_how_late_a_letter_is_is_read_once_from_its_stamp() -> None:
    bench = Bench()
    promised_ms = int(time.time() * 1000) - 3_000
    letter = due({**CARRIED, names.DUE_AT: promised_ms})
    send = sent(bench.decide(letter))
    (late_s,) = bench.releaser.late_s
    assert 3.0 <= late_s < 60.0
    bench.releaser.again(letter, send, Setback.UNFIT, "too large")
    assert bench.releaser.late_s == [late_s]


@pytest.mark.parametrize("odd", [None, "soon", 2.5, True])
def test_a_stamp_that_is_none_is_passed_over(odd: Value) -> None:
    bench = Bench()
    bench.decide(due({**CARRIED, names.DUE_AT: odd}))
    assert all(isinstance(late_s, float) for late_s in bench.releaser.late_s)
    assert fate_of(sent(bench.decide(due()))).step is Step.RELEASED


def test_held_letters_are_late_for_another_reason() -> None:
    bench = Bench(waiting=True)
    bench.decide(due({**CARRIED, names.DUE_AT: 1}))
    assert not bench.releaser.late_s


# -- held -------------------------------------------------------------------------------------------------
async def test_what_may_not_go_is_moved_to_the_queue_of_what_keeps_it() -> None:
    bench = Bench()
    bench.gates.observe("orders", CLOSED)
    first = bench.decide(due())
    assert isinstance(first, Later)  # its queue is declared first
    send = sent(await settled(first))
    assert bench.ways.made == {"orders"}
    assert (send.exchange, send.routing_key) == (names.ASKED, held_name("orders"))
    assert (send.deaths, send.leg) == (Deaths.FORGET, Leg.WAIT)
    assert send.headers == {names.CAUSE: "consumers", names.WHY: "nobody consumes the origin"}
    assert (fate_of(send).step, fate_of(send).cause, fate_of(send).attempt) == (Step.HELD, "orders", 2)
    assert bench.decide(due()) is send
    bench.gates.observe("orders", OPEN)
    bench.now_s += 3_600
    assert fate_of(sent(bench.decide(due()))).step is Step.RELEASED


async def test_each_budget_has_a_queue_of_its_own() -> None:
    policies = Policies(rules=(Policy(name="p", budget_per_minute=1),))
    bench = Bench(policies=policies)
    assert fate_of(sent(bench.decide(due()))).step is Step.RELEASED
    held = sent(await settled(bench.decide(due())))
    assert held.routing_key == held_name("budget/p")
    other = bench.decide(due({**CARRIED, names.POLICY: "another"}))
    assert fate_of(sent(other)).step is Step.RELEASED


def test_a_held_letter_that_still_may_not_go_stays_where_it_is() -> None:
    bench = Bench(waiting=True)
    bench.gates.observe("orders", CLOSED)
    assert bench.decide(due()) == Leave()
    assert bench.told == ["orders"]


def test_a_held_letter_goes_when_it_may() -> None:
    bench = Bench(waiting=True)
    send = sent(bench.decide(due()))
    assert (send.exchange, fate_of(send).step) == ("deadletter.return.orders", Step.RELEASED)
    assert not bench.told


# -- second thoughts --------------------------------------------------------------------------------------
async def test_a_letter_that_is_returned_is_bound_once_more_and_then_parked() -> None:
    bench = Bench()
    letter = due()
    first = sent(bench.decide(letter))
    second = sent(await settled(bench.releaser.again(letter, first, Setback.UNROUTABLE, "unroutable")))
    assert bench.ways.asked == [("orders", True)]
    assert (second.exchange, second.routing_key) == (first.exchange, first.routing_key)
    _, fate = parked(await settled(bench.releaser.again(letter, second, Setback.UNROUTABLE, "unroutable")))
    assert fate.cause == "origin-missing"


async def test_what_went_by_its_origins_name_goes_by_it_again() -> None:
    """Its own routing key is not on the first publish any more: the second must not take the name for it."""
    bench = Bench()
    bench.ways.homes["orders"] = Home(origin="orders", exchange="")
    letter = due()
    first = sent(bench.decide(letter))
    bench.ways.homes["orders"] = _home("orders")
    second = sent(await settled(bench.releaser.again(letter, first, Setback.UNROUTABLE, "gone")))
    assert (second.exchange, second.routing_key, second.retried) == ("", "orders", True)


async def test_a_returned_letter_whose_origin_is_gone_is_parked_at_once() -> None:
    bench = Bench()
    first = sent(bench.decide(due()))
    bench.ways.there.clear()
    _, fate = parked(await settled(bench.releaser.again(due(), first, Setback.UNROUTABLE, "unroutable")))
    assert (fate.cause, fate.attempt) == ("origin-missing", 2)


async def test_a_letter_its_origin_refuses_is_held_and_so_are_those_after_it() -> None:
    bench = Bench()
    first = sent(bench.decide(due()))
    held = sent(await settled(bench.releaser.again(due(), first, Setback.REFUSED, "refused")))
    assert (held.routing_key, fate_of(held).step) == (held_name("orders"), Step.HELD)
    assert bench.decide(due()) is held


def test_a_held_letter_its_origin_refuses_stays_held() -> None:
    bench = Bench(waiting=True)
    first = sent(bench.decide(due()))
    assert bench.releaser.again(due(), first, Setback.REFUSED, "refused") == Leave()


async def test_a_queue_of_ours_that_is_gone_is_declared_again() -> None:
    bench = Bench()
    bench.gates.observe("orders", CLOSED)
    held = sent(await settled(bench.decide(due())))
    again = sent(await settled(bench.releaser.again(due(), held, Setback.UNROUTABLE, "unroutable")))
    assert again.routing_key == held.routing_key
    # Nobody used it for a while, which is no reason to look at everything that is ours.
    assert (bench.ways.repairs, bench.ways.opened) == (0, [("orders", False), ("orders", True)])


@pytest.mark.parametrize("setback", [Setback.UNROUTABLE, Setback.REFUSED])
async def test_a_parked_letter_that_did_not_arrive_is_parked_again_with_its_time(setback: Setback) -> None:
    bench = Bench()
    letter = due(without(names.ORIGIN_QUEUE))
    send, _ = parked(bench.decide(letter))
    again, _ = parked(await settled(bench.releaser.again(letter, send, setback, setback.value)))
    assert again is send
    assert bench.ways.repairs == (setback is Setback.UNROUTABLE)


async def test_an_unreadable_letter_that_did_not_arrive_is_wrapped_again() -> None:
    bench = Bench()
    wrapped = bench.decide(_letter(b""))
    assert isinstance(wrapped, Wrap)
    assert await settled(bench.releaser.again(_letter(b""), wrapped, Setback.UNROUTABLE, "")) is wrapped
    assert bench.ways.repairs == 1


def test_what_cannot_travel_is_wrapped() -> None:
    bench = Bench()
    first = sent(bench.decide(due()))
    wrapped = bench.releaser.again(due(), replace(first), Setback.UNFIT, "its headers do not fit")
    assert isinstance(wrapped, Wrap)
    assert wrapped.why == "its headers do not fit"
