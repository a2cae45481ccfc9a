"""Deaths: what brokers write, what clients make of it, and where a letter belongs.

About `core.deciding.deaths`, `core.deciding.origin`, `core.letter.header_values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from deadletter.core.deciding import deaths as d
from deadletter.core.deciding.origin import (
    Ambiguous,
    Claimed,
    Copied,
    Fresh,
    Origin,
    Provenance,
    Returned,
    Unknown,
    read_provenance,
)
from deadletter.core.letter import header_values

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(
    queue: str,
    reason: str = "rejected",
    count: int = 1,
    *,
    after_s: int = 0,
    exchange: str = "shop",
    key: str = "k",
) -> dict[str, object]:
    return {
        "count": count,
        "reason": reason,
        "queue": queue,
        "time": T0 + timedelta(seconds=after_s),
        "exchange": exchange,
        "routing-keys": [key],
    }


def ours(origin: str, more: Mapping[str, object] | None = None) -> dict[str, object]:
    own = {"deadletter-id": "id-1", "deadletter-origin-queue": origin, "deadletter-attempt": 1}
    return {**own, **(more or {})}


def provenance(
    headers: Mapping[str, object], *, old_broker: bool = False, by: d.OriginBy = d.OriginBy.FAILURE
) -> Provenance:
    history = d.read_history(headers)
    return read_provenance(headers, history, broker_keeps_client_deaths=old_broker, by=by).provenance


# --- reading


def test_reads_what_a_broker_writes() -> None:
    headers = {"x-death": [{**entry("orders", count=3), "original-expiration": "60000"}]}
    assert d.read_history(headers) == d.History(
        recent=(
            d.Death(
                queue="orders",
                reason="rejected",
                count=3,
                exchange="shop",
                routing_keys=("k",),
                first_at=T0,
                original_expiration="60000",
            ),
        )
    )


@pytest.mark.parametrize(
    "value",
    [None, "garbage", b"\xff", 7, 1.5, True, {}, {"queue": "q"}, [], [None], ["x"], [[]], [{}], Decimal(1)],
)
def test_whatever_is_no_death_is_no_death(value: object) -> None:
    assert d.read_history({"x-death": value}).recent == ()


@pytest.mark.parametrize(
    "broken",
    [
        {"queue": 5},
        {"queue": ""},
        {"queue": None},
        {"queue": "q" * 256},
        {"queue": ["q"]},
        {"reason": None},
        {"reason": {}},
    ],
)
def test_an_entry_without_queue_or_reason_is_left_out_and_counted(broken: dict[str, object]) -> None:
    history = d.read_history({"x-death": [entry("a"), {**entry("b"), **broken}]})
    assert [death.queue for death in history.recent] == ["a"]
    assert history.skipped == 1


@pytest.mark.parametrize("count", [None, "x", -1, 0, [], float("nan"), Decimal("sNaN"), True])
def test_a_death_on_the_list_happened_at_least_once(count: object) -> None:
    history = d.read_history({"x-death": [{**entry("a"), "count": count}]})
    assert history.recent[0].count == 1


def test_thousands_of_entries_are_cut() -> None:
    history = d.read_history({"x-death": [entry("q")] * 5_000})
    assert len(history.recent) == d.MAX_DEATHS
    assert history.truncated


def test_a_name_that_is_not_utf8_survives_byte_for_byte() -> None:
    history = d.read_history({"x-death": [{**entry("x"), "queue": b"caf\xe9"}]})
    assert history.recent[0].queue.encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert header_values.shown(history.recent[0].queue) == "caf\\xe9"


def test_our_older_deaths_come_after_the_broker_s() -> None:
    history = d.read_history({"x-death": [entry("b")], "deadletter-deaths": [entry("a", after_s=-60)]})
    assert [death.queue for death in history.all] == ["b", "a"]
    assert history.first_at == T0 - timedelta(seconds=60)


# --- carrying them in our own header


def test_carried_deaths_read_back_as_the_older_history() -> None:
    before = d.read_history({"x-death": [entry("dlq", "expired", after_s=5), entry("orders", count=2)]})
    after = d.read_history({"deadletter-deaths": d.carried(before)})
    assert after.older == before.recent


def test_carried_deaths_of_one_pair_become_one_with_the_first_arrival() -> None:
    headers: dict[str, object] = {
        "x-death": [entry("orders", after_s=90, exchange="deadletter.return.orders")],
        "deadletter-deaths": [entry("orders", count=2)],
    }
    (kept,) = d.carried(d.read_history(headers))
    assert kept == entry("orders", count=3)


def test_carried_deaths_stay_small_and_keep_newest_and_oldest() -> None:
    history = d.read_history({"x-death": [entry(f"q{n}") for n in range(900)]})
    carried = d.carried(history)
    assert len(carried) == d.MAX_CARRIED
    assert carried[0]["queue"] == "q0"
    assert carried[-1]["queue"] == "q899"


def test_our_own_waiting_is_not_carried() -> None:
    assert d.carried(d.read_history({"x-death": [entry("deadletter.delay.1000", "expired")]})) == []


# --- counting

TRIPS: dict[str, object] = {
    "x-death": [entry("orders", count=2), entry("orders.retry", "expired", 4), entry("orders", "expired", 8)],
    "deadletter-deaths": [entry("orders", count=16), entry("deadletter.delay.1000", "expired", 1_000)],
    "deadletter-attempt": 5,
    "x-retry-count": "6",
}


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (d.FirstEntry(), 18),
        (d.ByReason(reason="rejected"), 18),
        (d.ByReason(reason="expired"), 12),
        (d.ByReason(reason="maxlen"), 0),
        (d.ByQueue(queue="orders"), 26),
        (d.SumOfAll(), 30),
        (d.OwnAttempt(), 5),
        (d.NamedHeader(header="x-retry-count"), 6),
        (d.NamedHeader(header="retry_count"), 0),
    ],
)
def test_counts_by_every_strategy(by: d.CountBy, expected: int) -> None:
    assert d.count_deaths(d.read_history(TRIPS), TRIPS, by) == expected


@pytest.mark.parametrize(
    "by", [d.FirstEntry(), d.ByReason(reason="rejected"), d.ByQueue(queue="q"), d.SumOfAll(), d.OwnAttempt()]
)
def test_a_letter_without_headers_counts_nothing(by: d.CountBy) -> None:
    assert d.count_deaths(d.History(), {}, by) == 0
    assert d.attempts_made(d.History(), {}, by) == 0


def test_a_first_death_is_attempt_zero_by_every_strategy() -> None:
    headers = {"x-death": [entry("orders")]}
    history = d.read_history(headers)
    strategies: tuple[d.CountBy, ...] = (
        d.FirstEntry(),
        d.SumOfAll(),
        d.OwnAttempt(),
        d.ByQueue(queue="orders"),
    )
    assert [d.attempts_made(history, headers, by) for by in strategies] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        ("3", 3),
        (b"3", 3),
        (" 3 ", 3),
        (3.0, 3),
        (Decimal(3), 3),
        (-3, 0),
        ("-3", 0),
        ("3.5", 0),
        (3.5, 0),
        ("²", 0),
        ("٣", 0),
        (True, 0),
        (None, 0),
        ([3], 0),
        ("9" * 5_000, 0),
        (2**70, 2**63 - 1),
        (float("inf"), 0),
        (float("nan"), 0),
    ],
)
def test_a_named_header_may_hold_anything(value: object, expected: int) -> None:
    headers = {"goqueue-retry-count": value}
    assert d.count_deaths(d.History(), headers, d.NamedHeader(header="goqueue-retry-count")) == expected


# --- origin


def began_in(headers: Mapping[str, object]) -> str:
    found = d.decisive(headers, d.read_history(headers).recent, d.OriginBy.FIRST)
    assert found is not None
    return found.queue


FIRST = {"x-first-death-queue": "orders", "x-first-death-reason": "rejected"}


def test_the_origin_is_the_queue_that_failed_not_its_dead_letter_queue() -> None:
    headers = {
        "x-death": [entry("orders.dlq", "expired", after_s=9, exchange="dlx"), entry("orders", key="new")]
    }
    assert provenance(headers) == Fresh(origin=Origin(queue="orders", exchange="shop", routing_keys=("new",)))
    assert provenance(headers, by=d.OriginBy.LAST) == Fresh(
        origin=Origin(queue="orders.dlq", exchange="dlx", routing_keys=("k",))
    )


@pytest.mark.parametrize("first", [FIRST, {}])
def test_in_a_loop_the_origin_is_where_it_began_even_within_one_second(first: dict[str, str]) -> None:
    headers = {"x-death": [entry("orders", count=3), entry("orders.retry", "expired", 2)], **first}
    assert began_in(headers) == "orders"


def test_time_beats_the_order_of_the_list() -> None:
    headers = {"x-death": [entry("orders", count=2), entry("orders.retry", "expired", 5, after_s=1)]}
    assert provenance(headers) == Fresh(origin=Origin(queue="orders", exchange="shop", routing_keys=("k",)))


def test_what_the_broker_calls_first_beats_clocks_that_disagree() -> None:
    headers = {"x-death": [entry("orders.dlq", "expired", after_s=-30), entry("orders")], **FIRST}
    assert began_in(headers) == "orders"


def test_after_a_level_of_ours_the_first_death_named_is_not_the_origin() -> None:
    headers = {
        "x-death": [entry("billing", after_s=9), entry("deadletter.delay.1000", "expired"), entry("orders")],
        "x-first-death-queue": "orders",
        "x-first-death-reason": "rejected",
    }
    assert provenance(headers) == Fresh(origin=Origin(queue="billing", exchange="shop", routing_keys=("k",)))


def test_after_a_level_of_ours_the_oldest_since_then_counts() -> None:
    level = entry("deadletter.delay.1000", "expired")
    headers = {
        "x-death": [entry("invoices", "expired", after_s=20), entry("billing", "expired", after_s=9), level],
        "x-first-death-queue": "invoices",
        "x-first-death-reason": "rejected",
    }
    assert provenance(headers) == Fresh(origin=Origin(queue="billing", exchange="shop", routing_keys=("k",)))


def test_deaths_on_both_sides_of_a_level_are_ambiguous() -> None:
    level = entry("deadletter.delay.1000", "expired", after_s=5)
    headers = {"x-death": [entry("orders", count=2), entry("billing", after_s=9), level]}
    assert isinstance(provenance(headers), Ambiguous)


def test_our_return_exchange_is_nobody_s_origin() -> None:
    back = entry("orders", exchange="deadletter.return.orders", key="order.new")
    assert provenance(ours("orders", {"x-death": [back]})) == Returned(
        origin=Origin(queue="orders", routing_keys=("order.new",)), letter_id="id-1"
    )


def test_a_letter_that_died_again_where_we_sent_it_keeps_its_id_and_first_arrival() -> None:
    headers = ours(
        "orders",
        {
            "x-death": [entry("orders", exchange="deadletter.return.orders", after_s=60)],
            "deadletter-deaths": [entry("orders", key="order.new")],
        },
    )
    origin = Origin(queue="orders", exchange="shop", routing_keys=("order.new",))
    assert provenance(headers) == Returned(origin=origin, letter_id="id-1")
    assert provenance(headers, old_broker=True) == Returned(origin=origin, letter_id="id-1")


def test_our_headers_of_the_first_arrival_win_where_they_are_trusted() -> None:
    headers = ours(
        "orders",
        {
            "x-death": [entry("orders", exchange="", key="orders")],
            "deadletter-origin-exchange": "shop",
            "deadletter-origin-routing-key": "order.new",
        },
    )
    origin = Origin(queue="orders", exchange="shop", routing_keys=("order.new",))
    assert provenance(headers) == Returned(origin=origin, letter_id="id-1")


@pytest.mark.parametrize("old_broker", [True, False])
def test_copied_headers_make_a_new_letter_with_a_parent(*, old_broker: bool) -> None:
    headers = ours("orders", {"x-death": [entry("invoices")], "deadletter-deaths": [entry("orders")]})
    assert provenance(headers, old_broker=old_broker) == Copied(
        origin=Origin(queue="invoices", exchange="shop", routing_keys=("k",)), parent_id="id-1"
    )


COPIED_WITH_DEATHS = ours(
    "orders",
    {
        "x-death": [entry("invoices"), entry("orders", count=3), entry("orders.retry", "expired", 3)],
        **FIRST,
    },
)


def test_copied_deaths_are_ambiguous_on_a_broker_that_keeps_them() -> None:
    doubt = provenance(COPIED_WITH_DEATHS, old_broker=True)
    assert isinstance(doubt, Ambiguous)
    assert doubt.candidates == ("invoices", "orders", "orders.retry")


def test_a_way_through_several_queues_is_the_letter_s_own_where_the_broker_ignores_copies() -> None:
    assert isinstance(provenance(COPIED_WITH_DEATHS), Returned)


def test_a_way_the_letter_took_before_is_no_copy() -> None:
    way = [entry("orders.dlq", "expired", after_s=9), entry("orders")]
    headers = ours("orders", {"x-death": way, "deadletter-deaths": way})
    assert isinstance(provenance(headers, old_broker=True), Returned)


def test_deaths_no_broker_wrote_are_ambiguous() -> None:
    assert isinstance(provenance({"x-death": [entry("orders"), "?"]}), Ambiguous)
    assert isinstance(provenance({"x-death": [entry("orders")] * 2_000}), Ambiguous)
    assert isinstance(provenance({"x-death": "garbage"}), Ambiguous)


def test_without_a_death_our_header_is_only_a_claim() -> None:
    claim = provenance(ours("orders"))
    assert claim == Claimed(origin=Origin(queue="orders"), letter_id="id-1", by="deadletter-origin-queue")


def test_a_framework_s_queue_is_a_claim_too() -> None:
    claim = read_provenance(
        {}, d.History(), broker_keeps_client_deaths=False, failed_in=("sales", "NServiceBus.FailedQ")
    ).provenance
    assert claim == Claimed(origin=Origin(queue="sales"), letter_id=None, by="NServiceBus.FailedQ")


@pytest.mark.parametrize(
    "headers", [{}, {"deadletter-id": "x"}, {"deadletter-origin-queue": "deadletter.due"}]
)
def test_nothing_known_is_said(headers: dict[str, object]) -> None:
    assert provenance(headers) == Unknown()


@pytest.mark.parametrize(
    "own",
    [
        {"deadletter-id": 5, "deadletter-origin-queue": "orders"},
        {"deadletter-id": "x", "deadletter-origin-queue": ["orders"]},
        {"deadletter-id": "x"},
        {"deadletter-origin-queue": "elsewhere"},
    ],
)
def test_half_of_our_headers_is_none_of_them(own: dict[str, object]) -> None:
    assert isinstance(provenance({"x-death": [entry("orders")], **own}), Fresh)
