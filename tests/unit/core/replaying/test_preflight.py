"""The look before a replay: which facts are well, and which would lose letters.

About `core.replaying.preflight`, `operations.replays.preflight`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from deadletter.core.replaying.preflight import (
    Deployed,
    QueueFacts,
    RemarkLevel,
    ReplayFacts,
    WayFacts,
    preflight,
    worst,
)
from deadletter.core.replaying.replay_target import HOME, ToExchange, ToQueue
from deadletter.core.topology.vhost import Binding, Exchange, Queue, QueueState, Topology, topology
from deadletter.operations.replays.preflight import LetterKinds, ways_in

WELL = QueueFacts(name="orders", consumers=2, dead_letters_go=True, comes_back_by=("orders.dlq",))
FIXED = Deployed(service="shop", release="2.0", after_ms=1_000)


def facts(queue: QueueFacts = WELL, **more: object) -> ReplayFacts:
    way = WayFacts(letters=100, place="queue orders", queues=(queue,))
    found = ReplayFacts(letters=100, ways=(way,), deployed=(FIXED,))
    return replace(found, **more)  # type: ignore[arg-type]


def told(found: ReplayFacts) -> set[tuple[RemarkLevel, str]]:
    return {(one.level, one.about) for one in preflight(found)}


def test_all_is_well() -> None:
    assert worst(preflight(facts())) is RemarkLevel.NOTE  # that what fails comes back
    assert (RemarkLevel.OK, "release") in told(facts())


def test_nothing_selected() -> None:
    assert told(ReplayFacts(letters=0)) == {(RemarkLevel.STOP, "selection")}


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (QueueFacts(name="orders", there=False), (RemarkLevel.STOP, "target")),
        (replace(WELL, consumers=0), (RemarkLevel.WARNING, "consumers")),
        (replace(WELL, ready=7), (RemarkLevel.NOTE, "depth")),
        (replace(WELL, ttl_ms=1_000), (RemarkLevel.WARNING, "ttl")),
        (replace(WELL, max_length=99, drops_head=True, dead_letters_go=False), (RemarkLevel.STOP, "limit")),
        (replace(WELL, max_length=99, drops_head=True), (RemarkLevel.WARNING, "limit")),
        (replace(WELL, max_length=99), (RemarkLevel.WARNING, "limit")),
        (replace(WELL, max_length=100), (RemarkLevel.OK, "limit")),
        (replace(WELL, comes_back_by=()), (RemarkLevel.WARNING, "loop")),
        (replace(WELL, comes_back_by=(), dead_letters_go=False), (RemarkLevel.WARNING, "loop")),
        (replace(WELL, type="stream"), (RemarkLevel.WARNING, "target")),
    ],
)
def test_each_fact_is_told(queue: QueueFacts, expected: tuple[RemarkLevel, str]) -> None:
    assert expected in told(facts(queue))


def test_a_pace_with_less_room_keeps_within_a_limit() -> None:
    queue = replace(WELL, max_length=99, drops_head=True, dead_letters_go=False)
    assert (RemarkLevel.OK, "limit") in told(facts(queue, room=50))


def test_one_missing_origin_of_two_is_no_stop() -> None:
    gone = WayFacts(letters=10, place="queue gone", queues=(QueueFacts(name="gone", there=False),))
    there = WayFacts(letters=90, place="queue orders", queues=(WELL,))
    found = facts(ways=(gone, there))
    assert worst(preflight(found)) is RemarkLevel.WARNING


def test_letters_that_were_replayed_before_and_no_release() -> None:
    found = facts(replayed_before=3, most_replays=2, deployed=(), failing_releases=("1.9",))
    assert {(RemarkLevel.WARNING, "loop"), (RemarkLevel.WARNING, "release")} <= told(found)
    same = facts(deployed=(replace(FIXED, release="1.9"),), failing_releases=("1.9",))
    assert (RemarkLevel.WARNING, "release") in told(same), "it failed in that release"


def shape() -> Topology:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"}
    retry = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"}
    return topology(
        version="4.0.5",
        exchanges=[Exchange(name="shop", type="topic"), Exchange(name="odd", type="headers")],
        queues=[
            Queue(name="orders", arguments=dead, state=QueueState(ready=3, consumer_count=2)),
            Queue(name="retry", arguments=retry),
            Queue(name="orders.dlq"),
            Queue(name="audit"),
        ],
        bindings=[
            Binding(source="shop", destination="orders", routing_key="order.*"),
            Binding(source="shop", destination="audit", routing_key="#"),
        ],
    )


LETTERS = LetterKinds(origins={"orders": 5, "gone": 1}, keys={"order.1": 4, "bill": 2})


def test_ways_home_lead_to_one_queue_alone() -> None:
    ways = list(ways_in(shape(), HOME, LETTERS, lambda name: name.endswith(".dlq")))
    (orders,), (gone,) = (way.queues for way in ways)
    assert (orders.ready, orders.consumers, orders.comes_back_by) == (3, 2, ("orders.dlq",))
    assert not gone.there
    assert all(way.alone for way in ways)
    (way,) = ways_in(shape(), ToQueue(queue="audit"), LETTERS, lambda _name: False)
    assert (way.letters, way.queues[0].name, way.queues[0].dead_letters_go) == (6, "audit", False)


def test_an_exchange_leads_where_its_bindings_say() -> None:
    by_key = {
        way.place: way for way in ways_in(shape(), ToExchange(exchange="shop"), LETTERS, lambda _name: False)
    }
    both = by_key["exchange shop by key order.1"]
    assert ([queue.name for queue in both.queues], both.alone) == (["audit", "orders"], False)
    assert [queue.name for queue in by_key["exchange shop by key bill"].queues] == ["audit"]
    (missing,) = ways_in(shape(), ToExchange(exchange="none", key="k"), LETTERS, lambda _name: False)
    assert missing.missing == "none"
    (odd,) = ways_in(shape(), ToExchange(exchange="odd", key="k"), LETTERS, lambda _name: False)
    assert not odd.queues
