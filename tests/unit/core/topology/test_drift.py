"""What is planned beside what is there.

About `core.topology.drift`, `core.topology.migration`, `core.topology.vhost`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deadletter.core.topology import migration
from deadletter.core.topology.drift import (
    DifferentExchange,
    DifferentPolicy,
    DifferentQueue,
    Drift,
    Interrupted,
    Missing,
    Overruled,
    compare,
    words,
)
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import Binding, DestinationKind, Exchange, Queue, Topology, topology

OURS = BrokerPolicy(
    name="deadletter",
    pattern=r"^deadletter\.",
    definition={"delivery-limit": -1},
    priority=999,
    apply_to="queues",
)


def plan(**more: Any) -> Topology:
    parts: dict[str, Any] = {
        "exchanges": [Exchange(name="dlx", type="topic")],
        "queues": [Queue(name="deadletter.due", type="quorum", arguments={"x-message-ttl": 5})],
        "bindings": [Binding(source="dlx", destination="deadletter.due", routing_key="a")],
        "policies": [OURS],
    }
    return topology(**{**parts, **more})


def one(planned: Topology, live: Topology) -> Drift:
    (found,) = compare(planned, live)
    return found


def test_the_same_is_no_drift() -> None:
    assert compare(plan(), plan()) == ()


def test_what_the_plan_does_not_name_is_no_drift() -> None:
    live = plan(
        queues=[*plan().queues.values(), Queue(name="other", arguments={"x-max-length": 1})],
        exchanges=[Exchange(name="dlx", type="topic"), Exchange(name="theirs")],
        bindings=[*plan().bindings, Binding(source="dlx", destination="other")],
        policies=[OURS, BrokerPolicy(name="theirs", pattern="^other$", definition={"max-length": 1})],
    )
    assert compare(plan(), live) == ()


def test_everything_missing_in_the_order_of_declaration() -> None:
    found = compare(plan(), topology())
    assert all(isinstance(drift, Missing) for drift in found)
    assert [words(drift, topology()).subject for drift in found] == [
        "policy deadletter",
        "exchange dlx",
        "queue deadletter.due",
        "binding dlx → queue deadletter.due (a)",
    ]


def test_predeclared_exchanges_and_default_bindings_are_never_missing() -> None:
    planned = topology(
        exchanges=[Exchange(name="amq.topic", type="topic")], bindings=[Binding(source="", destination="q")]
    )
    assert compare(planned, topology()) == ()


@pytest.mark.parametrize(
    "binding",
    [
        Binding(source="dlx", destination="deadletter.due", routing_key="b"),
        Binding(source="dlx", destination="deadletter.due", routing_key="a", to=DestinationKind.EXCHANGE),
        Binding(source="dlx", destination="deadletter.due", routing_key="a", arguments={"x-match": "all"}),
    ],
)
def test_another_binding_is_not_the_planned_one(binding: Binding) -> None:
    assert isinstance(one(plan(), plan(bindings=[binding])), Missing)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"type": "direct"}, "type"),
        ({"durable": False}, "durable"),
        ({"internal": True}, "internal"),
        ({"arguments": {"alternate-exchange": "x"}}, "alternate-exchange"),
    ],
)
def test_a_different_exchange(change: dict[str, Any], key: str) -> None:
    live = plan(exchanges=[replace(Exchange(name="dlx", type="topic"), **change)])
    found = one(plan(), live)
    assert isinstance(found, DifferentExchange)
    assert [difference.key for difference in found.differences] == [key]
    assert any("delete exchange dlx" in step for step in words(found, live).steps)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"type": "classic"}, "type"),
        ({"durable": False}, "durable"),
        ({"arguments": {"x-message-ttl": 6}}, "x-message-ttl"),
        ({"arguments": {}}, "x-message-ttl"),
        ({"arguments": {"x-message-ttl": 5, "x-max-length": 1}}, "x-max-length"),
    ],
)
def test_a_different_queue(change: dict[str, Any], key: str) -> None:
    live = plan(queues=[replace(plan().queues["deadletter.due"], **change)])
    found = one(plan(), live)
    assert isinstance(found, DifferentQueue)
    assert [difference.key for difference in found.differences] == [key]


def test_where_a_queue_is_kept_is_no_difference() -> None:
    live = plan(
        queues=[
            Queue(
                name="deadletter.due",
                type="quorum",
                arguments={
                    "x-message-ttl": 5,
                    "x-quorum-initial-group-size": 3,
                    "x-queue-leader-locator": "balanced",
                },
            )
        ]
    )
    assert compare(plan(), live) == ()


def test_a_different_policy_comes_with_its_command() -> None:
    live = replace(plan(policies=[replace(OURS, priority=1)]), vhost="a b")
    found = one(plan(), live)
    assert isinstance(found, DifferentPolicy)
    assert words(found, live).steps[0] == (
        "rabbitmqctl set_policy -p 'a b' --apply-to queues --priority 999 deadletter '^deadletter\\.' "
        "'{\"delivery-limit\": -1}'"
    )


def test_a_policy_that_goes_before_ours() -> None:
    stronger = BrokerPolicy(name="all", pattern=".*", definition={"max-length": 10}, priority=1000)
    live = plan(policies=[OURS, stronger])
    found = one(plan(), live)
    assert isinstance(found, Overruled)
    assert found.by == ("all",)
    assert [difference.key for difference in found.differences] == ["delivery-limit", "max-length"]
    assert "narrow its pattern" in words(found, live).steps[0]
    assert compare(plan(), plan(policies=[OURS, replace(stronger, priority=1)])) == ()


def test_an_operator_policy_goes_before_everything() -> None:
    operator = BrokerPolicy(name="cap", pattern=".*", definition={"max-length": 10}, operator=True)
    found = one(plan(), plan(policies=[OURS, operator]))
    assert isinstance(found, Overruled)
    assert found.by == ("cap (operator policy)",)


def test_a_missing_policy_of_ours_is_not_said_twice() -> None:
    assert [type(drift) for drift in compare(plan(), plan(policies=[]))] == [Missing]


def test_policies_on_somebody_s_own_queue_are_their_business() -> None:
    own = topology(queues=[Queue(name="orders")])
    limited = topology(
        queues=[Queue(name="orders")],
        policies=[BrokerPolicy(name="p", pattern="^orders$", definition={"max-length": 10})],
    )
    assert compare(own, limited) == ()


def test_an_interrupted_migration_is_seen() -> None:
    waiting = Queue(name=migration.waiting_name("deadletter.due"), type="quorum")
    live = plan(queues=[*plan().queues.values(), waiting])
    found = one(plan(), live)
    assert isinstance(found, Interrupted)
    assert found.waiting == "deadletter.migrating.deadletter.due"
    gone = plan(queues=[waiting], bindings=[])
    assert [type(drift) for drift in compare(plan(), gone)] == [Missing, Interrupted, Missing]


def test_the_steps_name_everything() -> None:
    live = topology(
        queues=[
            Queue(name="q", arguments={"x-max-length": 1}),
            Queue(name="feeder", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}),
        ],
        exchanges=[Exchange(name="shop")],
        bindings=[Binding(source="shop", destination="q", routing_key="k")],
    )
    found = one(topology(queues=[Queue(name="q")]), live)
    steps = words(found, live).steps
    assert "feeder" in steps[0]
    assert any("shop (k)" in step for step in steps)
    assert any("dlq move --keep-deaths q deadletter.migrating.q" in step for step in steps)


def test_at_least_once_holds_what_it_cannot_deliver_and_is_no_feeder() -> None:
    holding = Queue(
        name="feeder",
        type="quorum",
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "q",
            "x-dead-letter-strategy": "at-least-once",
        },
    )
    assert migration.feeders("q", topology(queues=[holding])) == ()
    assert migration.feeders("q", topology(queues=[replace(holding, type="classic")])) == ("feeder",)


def test_names_of_long_queues_stay_within_the_limit_and_apart() -> None:
    one_long, other = "x" * 250 + "1", "x" * 250 + "2"
    names = {
        make(queue)
        for make in (migration.waiting_name, migration.copies_name, migration.detour_name)
        for queue in (one_long, other)
    }
    assert len(names) == 6
    assert all(len(name.encode()) <= 255 for name in names)
