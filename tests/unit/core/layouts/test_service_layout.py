"""What the service declares for itself, and what it says about the limits of other people's queues.

About `core.layouts.service`.
"""

from __future__ import annotations

from typing import Final

import pytest

from deadletter.core.layouts.naming import exactly
from deadletter.core.layouts.service import Limit, limit_of, serving
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import Queue, Topology, topology

OLD: Final = "3.10.8"
NEW: Final = ("4.0.5", "4.3.6")


def there(version: str, *queues: Queue, policies: tuple[BrokerPolicy, ...] = ()) -> Topology:
    return topology(vhost="shop", version=version, queues=queues, policies=policies)


def dlq(**arguments: Value) -> Queue:
    spelled = {name.replace("_", "-"): value for name, value in arguments.items()}
    return Queue(name="orders.dlq", type="quorum", arguments=spelled)


# -- what is ours -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [OLD, *NEW])
def test_levels_lead_to_due_at_least_once_and_nothing_belongs_to_an_origin(version: str) -> None:
    found = serving(there(version, Queue(name="orders")), levels_ms=(5_000, 1_000), numbered_ms=None)
    assert (found.vhost, found.version) == ("shop", version)
    assert set(found.queues) == {
        "deadletter.due",
        "deadletter.parked",
        "deadletter.delay.1000",
        "deadletter.delay.5000",
    }
    assert all(queue.type == "quorum" and queue.durable for queue in found.queues.values())
    for delay_ms in (1_000, 5_000):
        level = found.queues[f"deadletter.delay.{delay_ms}"]
        assert level.arguments == {
            "x-message-ttl": delay_ms,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "deadletter.due",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
    assert not found.bindings
    assert not any(queue.delivery_limit(version) for queue in found.queues.values())


def test_the_numbered_delays_come_with_everything_they_lead_to() -> None:
    found = serving(there(OLD), levels_ms=(), numbered_ms=(10_000, 15_000))
    ours = {"deadletter.due", "deadletter.parked"}
    assert set(found.queues) - ours == {
        "retry-queue", "dlq-queue", "queue.delay.1", "queue.delay.2", "retry-queue-1", "retry-queue-2",
    }  # fmt: skip
    assert {"retry-exchange", "route-delay", "dlq-exchange", "retry-exchange-1"} <= set(found.exchanges)
    assert found.queues["queue.delay.2"].ttl_ms == 15_000
    ways = {(bound.source, bound.routing_key, bound.destination) for bound in found.bindings}
    assert ("route-delay", "binding.#.2", "queue.delay.2") in ways
    assert ("dlq-exchange", "dlq-routing-key", "dlq-queue") in ways


def test_without_levels_there_is_still_a_place_for_what_is_due_and_parked() -> None:
    assert set(serving(there(OLD), levels_ms=(), numbered_ms=None).queues) == {
        "deadletter.due",
        "deadletter.parked",
    }


# -- the limits of others -----------------------------------------------------------------------------------
@pytest.mark.parametrize("version", NEW)
def test_a_limit_that_nobody_set_is_taken_off_by_a_policy_for_this_queue_alone(version: str) -> None:
    limit = limit_of(there(version, dlq()), there(version, dlq()).queues["orders.dlq"])
    assert isinstance(limit, Limit)
    assert (limit.queue, limit.limit) == ("orders.dlq", 20)
    assert limit.policy is not None
    assert limit.policy.pattern == exactly("orders.dlq")
    assert limit.policy.definition == {"delivery-limit": -1}


def test_before_4_nothing_is_thrown_away_unless_somebody_asked_for_it() -> None:
    assert limit_of(there(OLD), dlq()) is None


@pytest.mark.parametrize("version", [OLD, *NEW])
def test_a_limit_that_is_frozen_into_the_queue_is_told_and_left(version: str) -> None:
    found = there(version, dlq(x_delivery_limit=5)).queues["orders.dlq"]
    assert limit_of(there(version), found) == Limit(queue="orders.dlq", limit=5, policy=None)


@pytest.mark.parametrize("version", NEW)
def test_the_policy_carries_on_what_another_one_sets(version: str) -> None:
    theirs = BrokerPolicy(
        name="theirs",
        pattern=r"\.dlq$",
        apply_to="queues",
        priority=7,
        definition={"delivery-limit": 3, "max-length": 1_000},
    )
    shape = there(version, dlq(), policies=(theirs,))
    limit = limit_of(shape, shape.queues["orders.dlq"])
    assert limit is not None
    assert limit.limit == 3
    assert limit.policy is not None
    assert limit.policy.definition == {"delivery-limit": -1, "max-length": 1_000}
    assert limit.policy.priority > theirs.priority


@pytest.mark.parametrize("version", NEW)
def test_a_queue_that_is_already_without_a_limit_is_left_alone(version: str) -> None:
    off = BrokerPolicy(
        name="off", pattern=".*", apply_to="queues", priority=0, definition={"delivery-limit": -1}
    )
    shape = there(version, dlq(), policies=(off,))
    assert limit_of(shape, shape.queues["orders.dlq"]) is None


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_only_quorum_queues_count(kind: str) -> None:
    assert limit_of(there("4.3.6"), Queue(name="orders.dlq", type=kind)) is None
