"""What a shape means for the watches: which queues are looked after, which are not and why, one home each.

About `service.survey`.
"""

from __future__ import annotations

from typing import Final

import pytest

from deadletter.config.settings import Mode, Watch
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import Binding, Exchange, Queue, Topology, topology
from deadletter.service.survey import OriginLimits, see

ALL: Final = Watch(dlq="*.dlq", vhost="/", mode=Mode.CONSUME)
LATER: Final = Watch(dlq="orders.*", vhost="/", mode=Mode.MANUAL)


def queue(
    name: str,
    dlx: str | None = None,
    key: str | None = None,
    *,
    kind: str = "quorum",
    exclusive: bool = False,
    **arguments: Value,
) -> Queue:
    """`x_max_length=10` stands for x-max-length."""
    spelled = {argument.replace("_", "-"): value for argument, value in arguments.items()}
    if dlx is not None:
        spelled["x-dead-letter-exchange"] = dlx
    if key is not None:
        spelled["x-dead-letter-routing-key"] = key
    return Queue(name=name, type=kind, exclusive=exclusive, arguments=spelled)


def shape(
    *queues: Queue, fanout: tuple[str, ...] = (), bindings: tuple[Binding, ...] = (), vhost: str = "/"
) -> Topology:
    """With an exchange `dlx` that gives a copy to each of `fanout`, and a topic exchange `topics`."""
    bound = tuple(Binding(source="dlx", destination=name) for name in fanout)
    return topology(
        vhost=vhost,
        exchanges=(Exchange(name="dlx", type="fanout"), Exchange(name="topics", type="topic")),
        queues=queues,
        bindings=bound + bindings,
    )


def names(found: Topology, *watches: Watch) -> dict[str, Watch]:
    return {one.queue: one.watch for one in see(found, watches).watched}


# -- which queues -----------------------------------------------------------------------------------------
def test_a_pattern_finds_what_it_names_and_the_first_watch_counts() -> None:
    found = shape(queue("orders"), queue("orders.dlq"), queue("bills.dlq"), queue("orders.old"))
    assert names(found, LATER, ALL) == {"orders.dlq": LATER, "bills.dlq": ALL, "orders.old": LATER}
    assert names(found, ALL, LATER)["orders.dlq"] is ALL
    assert names(found, Watch(dlq="orders.dlq", vhost="/", mode=Mode.CONSUME)).keys() == {"orders.dlq"}
    assert names(found) == {}


def test_a_watch_is_for_its_own_vhost() -> None:
    assert names(shape(queue("orders.dlq"), vhost="shop"), ALL) == {}
    shop = Watch(dlq="*", vhost="shop", mode=Mode.CONSUME)
    assert names(shape(queue("orders.dlq"), vhost="shop"), ALL, shop).keys() == {"orders.dlq"}


def test_our_own_queues_are_never_watched() -> None:
    everything = Watch(dlq="*", vhost="/", mode=Mode.CONSUME)
    ours = ("deadletter.due", "deadletter.parked", "deadletter.delay.1000", "deadletter.held.orders")
    sight = see(shape(*map(queue, ours), queue("orders.dlq")), [everything])
    assert [one.queue for one in sight.watched] == ["orders.dlq"]
    assert not sight.refused


def test_a_queue_that_is_named_and_not_there_is_said_and_a_pattern_is_not() -> None:
    one = Watch(dlq="nosuch.dlq", vhost="/", mode=Mode.CONSUME)
    elsewhere = Watch(dlq="other.dlq", vhost="shop", mode=Mode.CONSUME)
    sight = see(shape(queue("orders")), [one, elsewhere, ALL])
    assert list(sight.refused) == ["nosuch.dlq"]
    assert "no queue of this name in vhost /" in sight.refused["nosuch.dlq"]
    assert not see(shape(queue("nosuch.dlq")), [one]).refused


@pytest.mark.parametrize("kind", ["stream", "x-something"])
def test_a_queue_from_which_nothing_can_be_taken_is_refused_with_the_reason(kind: str) -> None:
    sight = see(shape(queue("orders.dlq", kind=kind), queue("bills.dlq", kind="classic")), [ALL])
    assert [one.queue for one in sight.watched] == ["bills.dlq"]
    assert kind in sight.refused["orders.dlq"]
    assert "quorum queue" in sight.refused["orders.dlq"]


def test_an_exclusive_queue_is_refused() -> None:
    sight = see(shape(queue("orders.dlq", kind="classic", exclusive=True)), [ALL])
    assert not sight.watched
    assert "exclusive" in sight.refused["orders.dlq"]


# -- one home ---------------------------------------------------------------------------------------------
def test_where_a_fanout_gives_copies_one_queue_is_the_home_of_each_origin() -> None:
    found = shape(
        queue("orders", "dlx"),
        queue("bills", "dlx"),
        queue("other", "dlx"),
        queue("orders.dlq"),
        queue("bills.dlq"),
        fanout=("orders.dlq", "bills.dlq"),
    )
    assert see(found, [ALL]).fanouts.homes == {
        "orders": "orders.dlq",
        "bills": "bills.dlq",
        "other": "bills.dlq",
    }


def test_a_copy_into_a_queue_nobody_watches_is_no_second_home() -> None:
    found = shape(queue("orders", "dlx"), queue("orders.dlq"), queue("audit"), fanout=("orders.dlq", "audit"))
    assert see(found, [ALL]).fanouts.homes == {}


def test_each_queue_with_its_own_way_has_no_need_of_one() -> None:
    found = shape(
        queue("orders", "", "orders.dlq"),
        queue("bills", "", "bills.dlq"),
        queue("orders.dlq"),
        queue("bills.dlq"),
    )
    assert see(found, [ALL]).fanouts.homes == {}


def test_two_keys_that_lead_to_two_queues_are_two_ways_and_not_two_copies() -> None:
    found = shape(
        queue("orders", "topics"),
        queue("orders.dlq"),
        queue("bills.dlq"),
        bindings=(
            Binding(source="topics", destination="orders.dlq", routing_key="order.new"),
            Binding(source="topics", destination="bills.dlq", routing_key="order.bill"),
        ),
    )
    assert see(found, [ALL]).fanouts.homes == {}


# -- what an origin can hold --------------------------------------------------------------------------------
def test_limits_are_those_in_force() -> None:
    found = topology(
        queues=(
            queue("orders", x_max_length=10),
            queue("bills", x_max_length=20, x_overflow="reject-publish"),
            queue("by.policy"),
            queue("endless"),
        ),
        policies=(
            BrokerPolicy(
                name="short", pattern="^by", apply_to="queues", priority=1, definition={"max-length": 5}
            ),
        ),
    )
    assert see(found, [ALL]).limits == {
        "orders": OriginLimits(max_length=10, drops_head=True),
        "bills": OriginLimits(max_length=20, drops_head=False),
        "by.policy": OriginLimits(max_length=5, drops_head=True),
    }
