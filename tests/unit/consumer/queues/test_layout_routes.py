"""The ways out of a handler, in each layout; what a message carries of earlier tries; whom to suspect.

About `consumer.queues.layout_routes`, `consumer.queues.suspicion`, `consumer.statistics`,
`core.letter.parking`, `core.topology.layout_names`.
"""

from __future__ import annotations

import pytest

from deadletter.consumer.backoffs import compiled, fixed, linear
from deadletter.consumer.queues.layout_routes import (
    LayoutRoutes,
    Past,
    Reject,
    asked_delay_of,
    delay_of,
    delays_of,
    extra_rung_name,
    parked_in,
    rounded_ms,
)
from deadletter.consumer.queues.suspicion import ALONE, FINE, Anew, Deadly, Suspicion, suspicion
from deadletter.core.letter import names
from deadletter.core.letter.envelope import Deaths, ExchangeKey, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage as Raw
from deadletter.core.letter.message import View, encode
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.move.receipts import Receipts
from deadletter.move.verdict import Send, Wrap

SCHEDULE = compiled(fixed(1, 10, 60), 3)
FRESH = Past(attempt=0, counted=0, deliveries=0, exchange="ex", routing_key="key", first_failed_at_ms=None)
SECOND = Past(attempt=1, counted=0, deliveries=0, exchange="ex", routing_key="key", first_failed_at_ms=5)


def letter(headers: dict[str, Value] | None = None, *, redelivered: bool = False) -> Letter:
    raw = Raw(encode(View(headers=headers)), b"")
    return Letter(source="q", message=raw, came_by=ExchangeKey(b"ex", b"key"), redelivered=redelivered)


# -- again ---------------------------------------------------------------------------------------------------
def test_again_in_return() -> None:
    paths = LayoutRoutes(ConsumerLayout.RETURN, "q")
    route = paths.again(SECOND, SCHEDULE, 1234, {"why": "x"})
    assert isinstance(route, Send)
    assert (route.exchange, route.routing_key, route.leg) == ("", "deadletter.delay.1234", Leg.WAIT)
    assert route.headers == {
        names.ORIGIN_QUEUE: "q",
        names.ORIGIN_EXCHANGE: "ex",
        names.ORIGIN_ROUTING_KEY: "key",
        names.ATTEMPT: 2,
        names.POLICY: "consumer",
        "why": "x",
    }
    assert paths.delay_ms(SECOND, SCHEDULE, 1234) == 1234


def test_again_on_a_ladder() -> None:
    paths = LayoutRoutes(ConsumerLayout.LADDER, "q")
    route = paths.again(SECOND, SCHEDULE, 10_000, {})
    assert isinstance(route, Send)
    assert (route.exchange, route.routing_key) == ("q__retry_exchange", "q__retry.2")
    # a delay that is no rung's has a queue of its own, and the attempt is still the second
    other = paths.again(SECOND, SCHEDULE, 45_000, {})
    assert isinstance(other, Send)
    assert (other.exchange, other.routing_key) == ("", "q__retry.45000ms")
    asked = LayoutRoutes(ConsumerLayout.LADDER, "q", levels_ms=frozenset()).again(
        SECOND, SCHEDULE, 45_000, {}
    )
    assert isinstance(asked, Send)
    assert (asked.exchange, asked.routing_key) == ("deadletter.asked", "q__retry.45000ms")
    assert other.headers[names.ATTEMPT] == 2
    assert paths.delay_ms(SECOND, SCHEDULE, 45_000) == 45_000
    assert paths.delay_ms(SECOND, SCHEDULE, 10_000) == 10_000


def test_again_beyond_the_rungs_of_a_ladder() -> None:
    past = Past(attempt=5, counted=0, deliveries=0, exchange="", routing_key="q", first_failed_at_ms=None)
    route = LayoutRoutes(ConsumerLayout.LADDER, "q").again(past, SCHEDULE, 60_000, {})
    assert isinstance(route, Send)
    assert route.routing_key == "q__retry.3"  # never a rung that is not there


def test_a_ladder_with_jitter_has_queues_beside_its_rungs() -> None:
    schedule = compiled(fixed(10, jitter=0.2), 2)
    low, middle, high = schedule.choices_ms(0)
    paths = LayoutRoutes(ConsumerLayout.LADDER, "q", levels_ms=frozenset(schedule.levels_ms))
    for asked, exchange, key in (
        (low, "deadletter.asked", f"q__retry.{low}ms"),
        (middle, "q__retry_exchange", "q__retry.1"),
        (high, "deadletter.asked", f"q__retry.{high}ms"),
    ):
        route = paths.again(FRESH, schedule, asked, {"d": 1})
        assert isinstance(route, Send)
        assert (route.exchange, route.routing_key) == (exchange, key)
        assert paths.delay_ms(FRESH, schedule, asked) == asked
        home = paths.on_its_rung(FRESH, schedule, route)
        assert isinstance(home, Send)
        assert (home.exchange, home.routing_key, home.headers) == (
            "q__retry_exchange",
            "q__retry.1",
            route.headers,
        )
    later = paths.again(FRESH, schedule, 45_000, {})
    assert isinstance(later, Send)
    assert paths.on_its_rung(FRESH, schedule, later) is later  # no rung waits that long


def test_a_ladder_without_the_way_to_others_waits_as_its_rung_does() -> None:
    schedule = compiled(fixed(10, jitter=0.2), 2)
    low, middle, _ = schedule.choices_ms(0)
    paths = LayoutRoutes(ConsumerLayout.LADDER, "q")
    route = paths.again(FRESH, schedule, low, {})
    assert isinstance(route, Send)
    assert route.routing_key == "q__retry.1"
    assert paths.delay_ms(FRESH, schedule, low) == middle


@pytest.mark.parametrize(
    ("way", "target", "expected"),
    [
        (ConsumerLayout.LADDER, "q__retry.45000ms", 45_000),
        (ConsumerLayout.LADDER, "q__retry.1", None),
        (ConsumerLayout.LADDER, "qq__retry.45000ms", None),
        (ConsumerLayout.RETURN, "deadletter.asked.45000", 45_000),
        (ConsumerLayout.RETURN, "deadletter.asked.045", None),
        (ConsumerLayout.RETURN, "deadletter.asked.", None),
        (ConsumerLayout.RETURN, "deadletter.asked." + "9" * 5_000, None),
        (ConsumerLayout.RETURN, "deadletter.delay.45000", None),
        (ConsumerLayout.LOOP, "deadletter.asked.45000", None),
    ],
)
def test_the_delays_a_handler_asked_for(way: ConsumerLayout, target: str, expected: int | None) -> None:
    assert asked_delay_of(way, "q", target) == expected


@pytest.mark.parametrize(
    ("way", "requeue"),
    [(ConsumerLayout.LOOP, False), (ConsumerLayout.NATIVE, True), (ConsumerLayout.EXTERNAL, False)],
)
def test_again_is_the_brokers_work(way: ConsumerLayout, requeue: bool) -> None:
    assert LayoutRoutes(way, "q").again(FRESH, SCHEDULE, 5, {}) == Reject(requeue=requeue)


def test_what_the_broker_waits_is_told_as_it_is() -> None:
    one = compiled(fixed(2), 3)
    assert LayoutRoutes(ConsumerLayout.LOOP, "q").delay_ms(SECOND, one, 99) == 2000
    assert LayoutRoutes(ConsumerLayout.NATIVE, "q").delay_ms(SECOND, compiled(linear(1), 3), 99) == 2000
    assert LayoutRoutes(ConsumerLayout.EXTERNAL, "q").delay_ms(SECOND, one, 99) is None


# -- aside ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("way", "exchange", "key"),
    [
        (ConsumerLayout.RETURN, "", "deadletter.parked"),
        (ConsumerLayout.LADDER, "", "q__dlq"),
        (ConsumerLayout.LOOP, "q.dlq", "key"),
        (ConsumerLayout.NATIVE, "", "q.dlq"),
    ],
)
def test_aside(way: ConsumerLayout, exchange: str, key: str) -> None:
    route = LayoutRoutes(way, "q").aside(SECOND, {"d": 1}, cause=Cause.HANDLER, why="w" * 1000, at_ms=7)
    assert isinstance(route, Send)
    assert (route.exchange, route.routing_key, route.deaths) == (exchange, key, Deaths.KEEP)
    assert route.headers[names.ATTEMPT] == 1  # it was not sent back
    assert route.headers[names.CAUSE] == "handler"
    assert route.headers[names.WHY] == "w" * 499 + "…"
    assert route.headers[names.PARKED_AT] == 7
    assert route.headers["d"] == 1
    wrapped = LayoutRoutes(way, "q").wrapped(why="w", at_ms=1)
    assert isinstance(wrapped, Wrap)
    assert wrapped.exchange == exchange
    assert parked_in(way, "q") == (exchange or route.routing_key)


def test_aside_in_external_is_the_applications_own_way() -> None:
    routes = LayoutRoutes(ConsumerLayout.EXTERNAL, "q")
    assert routes.aside(FRESH, {}, cause=Cause.HANDLER, why="w", at_ms=1) == Reject(requeue=False)
    assert routes.wrapped(why="w", at_ms=1) == Reject(requeue=False)
    assert parked_in(ConsumerLayout.EXTERNAL, "q") is None


# -- the past ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", list(ConsumerLayout))
def test_a_message_that_comes_for_the_first_time(way: ConsumerLayout) -> None:
    assert LayoutRoutes(way, "q").past(letter()) == FRESH


def test_headers_of_ours_count_only_for_their_own_queue() -> None:
    mine: dict[str, Value] = {
        names.ORIGIN_QUEUE: "q",
        names.ORIGIN_EXCHANGE: "first",
        names.ORIGIN_ROUTING_KEY: "k1",
        names.ATTEMPT: 2,
        names.ERROR_FIRST_AT: 77,
        names.DELIVERIES: 1,
    }
    found = LayoutRoutes(ConsumerLayout.LADDER, "q").past(letter(mine))
    assert found == Past(
        attempt=2, counted=0, deliveries=1, exchange="first", routing_key="k1", first_failed_at_ms=77
    )
    copied = LayoutRoutes(ConsumerLayout.LADDER, "q").past(letter({**mine, names.ORIGIN_QUEUE: "another"}))
    assert copied == FRESH


def test_attempts_as_each_layout_counts_them() -> None:
    death: dict[str, Value] = {
        "queue": "q",
        "reason": "rejected",
        "count": 3,
        "exchange": "",
        "routing-keys": [],
    }
    expired: dict[str, Value] = {**death, "queue": "q.retry", "reason": "expired"}
    assert LayoutRoutes(ConsumerLayout.LOOP, "q").past(letter({"x-death": [expired, death]})).attempt == 3
    assert LayoutRoutes(ConsumerLayout.LADDER, "q").past(letter({"x-death": [expired, death]})).attempt == 0
    counted = letter({"x-delivery-count": 2}, redelivered=True)
    assert LayoutRoutes(ConsumerLayout.NATIVE, "q").past(counted).attempt == 2
    assert LayoutRoutes(ConsumerLayout.LADDER, "q").past(counted).counted == 2
    # a count that came along with a publish says nothing
    assert LayoutRoutes(ConsumerLayout.NATIVE, "q").past(letter({"x-delivery-count": 2})).attempt == 0


def looped(rejected: int, count: int, noted: int | None = None) -> Past:
    """A message on its way round a loop, as RabbitMQ 4 shows it."""
    headers: dict[str, Value] = {"x-death": [{"queue": "q", "reason": "rejected", "count": rejected}]}
    if count:
        headers["x-delivery-count"] = count
    if noted is not None:
        headers |= {names.ORIGIN_QUEUE: "q", names.ATTEMPT: noted}
    return LayoutRoutes(ConsumerLayout.LOOP, "q").past(letter(headers, redelivered=count > 0))


def test_a_rejection_in_a_loop_is_no_death() -> None:
    # 4.x counts a rejection as a delivery, and goes on counting after the way round
    for trips in (1, 2, 3, 10):
        past = looped(trips, trips)
        assert (past.attempt, past.counted, past.came_back) == (trips, 0, False)
    died = looped(3, 5)
    assert (died.attempt, died.counted, died.came_back) == (3, 2, True)


def test_attempts_go_on_after_it_was_put_back_anew() -> None:
    assert looped(2, 0, noted=2).attempt == 2  # not rejected since
    assert looped(3, 0, noted=2).attempt == 3  # 3.x goes on
    assert looped(1, 1, noted=2).attempt == 3  # 4.x begins again
    assert not looped(1, 1, noted=2).came_back
    assert looped(1, 2, noted=2).came_back


def test_anew_says_what_it_cost() -> None:
    send = LayoutRoutes(ConsumerLayout.LADDER, "q").anew(SECOND, 2)
    assert (send.exchange, send.routing_key, send.deaths) == ("", "q", Deaths.SET_ASIDE)
    assert send.headers[names.DELIVERIES] == 2
    assert send.headers[names.ATTEMPT] == 1
    assert LayoutRoutes(ConsumerLayout.LOOP, "q").anew(SECOND, 2).deaths is Deaths.KEEP


# -- delays of one's own -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("asked_ms", "found_ms"),
    [
        (1, 1),
        (999, 999),
        (1000, 1000),
        (1001, 1010),
        (61_000, 61_000),
        (1_234_567, 1_240_000),
        (86_400_000, 86_400_000),
        (2**32 - 1, 2**32 - 1),
    ],
)
def test_a_delay_a_handler_asks_for_is_never_shorter(asked_ms: int, found_ms: int) -> None:
    assert rounded_ms(asked_ms) == found_ms


def test_extra_rungs_by_name() -> None:
    assert delay_of("q", extra_rung_name("q", 60_000)) == 60_000
    assert delay_of("other", extra_rung_name("q", 60_000)) is None
    assert delay_of("q", "q__retry.2") is None
    long = "q" * 250
    assert delay_of(long, extra_rung_name(long, 5)) == 5


def test_where_letters_wait() -> None:
    more = [SCHEDULE, compiled(fixed(45), 3)]
    assert delays_of(ConsumerLayout.LADDER, "q", SCHEDULE, more) == {
        "q__retry.1": 1000,
        "q__retry.2": 10_000,
        "q__retry.3": 60_000,
        "q__retry.45000ms": 45_000,
    }
    assert delays_of(ConsumerLayout.RETURN, "q", SCHEDULE, more) == {
        f"deadletter.delay.{ms}": ms for ms in (1000, 10_000, 45_000, 60_000)
    }
    assert delays_of(ConsumerLayout.LOOP, "q", compiled(fixed(2), 3), []) == {"q.retry": 2000}
    assert delays_of(ConsumerLayout.NATIVE, "q", SCHEDULE, more) == {}


def test_what_is_rejected_in_a_row_need_not_be_remembered() -> None:
    receipts = Receipts(patience=1)
    for tag in range(1, 1001):
        receipts.take(tag)
    for tag in (*range(2, 1001), 1):
        receipts.let_go(tag)
    assert (receipts.unacked, receipts._upto, receipts._single) == (0, 1000, set())
    receipts.take(1001)
    receipts.confirm(1001)
    assert receipts.due() == [(1001, False)]


# -- suspicion -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("redelivered", "counted", "noted", "expected"),
    [
        (False, 0, 0, FINE),
        (False, 0, 1, FINE),
        (False, 0, 2, ALONE),
        (False, 0, 4, ALONE),
        # a classic queue does not count: the header does
        (True, 0, 0, Anew(deliveries=1)),
        (True, 0, 1, Anew(deliveries=2)),
        # a quorum queue does
        (True, 1, 0, FINE),
        (True, 2, 0, Anew(deliveries=2)),
        (True, 19, 0, Anew(deliveries=2)),  # but never alone so far
        # it died alone
        (True, 0, 2, Anew(deliveries=3)),
        (True, 1, 3, Anew(deliveries=4)),
        (True, 1, 4, Deadly(deliveries=5)),
        (True, 0, 9, Deadly(deliveries=10)),
    ],
)
def test_whom_to_suspect(redelivered: bool, counted: int, noted: int, expected: Suspicion) -> None:
    assert suspicion(redelivered=redelivered, counted=counted, noted=noted, most=5) == expected


@pytest.mark.parametrize("most", [2, 3, 5, 20])
@pytest.mark.parametrize("counts", [True, False])
def test_one_that_always_kills_is_put_aside_after_so_many_deaths(most: int, counts: bool) -> None:
    """A queue that gives it back after each death; `deaths` are handlers that died."""
    noted = counted = deaths = 0
    redelivered = False
    for _ in range(200):
        found = suspicion(redelivered=redelivered, counted=counted, noted=noted, most=most)
        match found:
            case Anew(deliveries=deliveries):
                noted, counted, redelivered = deliveries, 0, False
            case Deadly():
                break
            case _:
                deaths, redelivered, counted = deaths + 1, True, counted + 1 if counts else 0
    assert deaths == most


def test_being_given_back_makes_a_suspect_at_most() -> None:
    for counted in (0, 1, 2, 50):
        for noted in (0, 1):
            found = suspicion(redelivered=True, counted=counted, noted=noted, most=5)
            assert found in (FINE, Anew(deliveries=1), Anew(deliveries=2))


def test_a_message_without_any_header_can_come_back_too() -> None:
    raw = Raw(encode(View()), b"")
    back = Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=True)
    assert LayoutRoutes(ConsumerLayout.LADDER, "q").past(back).came_back
    first = Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=False)
    assert not LayoutRoutes(ConsumerLayout.LADDER, "q").past(first).came_back
