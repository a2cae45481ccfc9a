"""Whether letters are safe in queues of ours: what is a danger, whose fault it is, and what mends it.

About `core.topology.safekeeping`, `core.topology.merging`.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from deadletter.core.layouts.service import serving
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy, Chooser, effective, void_keys
from deadletter.core.topology.safekeeping import Risk, Told, dangers, shortfalls, threats
from deadletter.core.topology.vhost import Exchange, Queue, Topology, topology

VERSIONS = ("3.10.8", "4.0.5", "4.3.6")
LEVEL = "deadletter.delay.1000"


def vhost(
    version: str, *policies: BrokerPolicy, exchanges: tuple[str, ...] = ()
) -> tuple[Topology, Topology]:
    """The plan of the service and the vhost it is laid in, with these policies beside ours."""
    empty = topology(vhost="a shop", version=version)
    plan = serving(empty, levels_ms=(1_000,), numbered_ms=None)
    live = topology(
        vhost="a shop",
        version=version,
        queues=plan.queues.values(),
        exchanges=[Exchange(name=name, type="fanout") for name in exchanges],
        policies=[*plan.policies, *policies],
    )
    return serving(live, levels_ms=(1_000,), numbered_ms=None), live


def operator(pattern: str, **definition: Value) -> BrokerPolicy:
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    return BrokerPolicy(name="it's theirs", pattern=pattern, definition=named, operator=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_as_laid_nothing_threatens(version: str) -> None:
    assert threats(*vhost(version, exchanges=("deadletter.return.orders",))) == ()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("definition", "subjects", "risk"),
    [
        ({"message_ttl": 5}, {"deadletter.due", "deadletter.parked"}, Risk.LOST),
        ({"message_ttl": 5}, {LEVEL}, Risk.ASTRAY),
        ({"expires": 5}, {"deadletter.due", "deadletter.parked", LEVEL}, Risk.LOST),
        ({"max_length": 5}, {"deadletter.due", "deadletter.parked", LEVEL}, Risk.REFUSED),
        ({"max_length_bytes": 5}, {"deadletter.parked"}, Risk.REFUSED),
        ({"max_length": 5, "overflow": "drop-head"}, {"deadletter.parked", LEVEL}, Risk.LOST),
        ({"overflow": "drop-head"}, {LEVEL}, Risk.LOST),
        ({"delivery_limit": 5}, {"deadletter.due", "deadletter.parked"}, Risk.LOST),
    ],
)
def test_an_operator_policy_is_named_with_the_command(
    version: str, definition: dict[str, Value], subjects: set[str], risk: Risk
) -> None:
    pattern = f"^({'|'.join(subjects)})$"
    (threat,) = threats(*vhost(version, operator(pattern, **definition)))
    assert set(threat.subjects) == subjects
    assert risk in {danger.risk for danger in threat.dangers}
    assert threat.only_refuses is (risk is Risk.REFUSED)
    assert shlex.split(threat.command) == [
        "rabbitmqctl",
        "clear_operator_policy",
        "-p",
        "a shop",
        "it's theirs",
    ]
    assert "operator policy" in str(threat)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_longer_ttl_than_the_level_has_changes_nothing(version: str) -> None:
    assert threats(*vhost(version, operator("delay", message_ttl=1_001))) == ()


@pytest.mark.parametrize("priority", [0, 998])
def test_a_user_policy_below_ours_has_no_say(priority: int) -> None:
    theirs = BrokerPolicy(
        name="all",
        pattern=".*",
        priority=priority,
        definition={"message-ttl": 5, "alternate-exchange": "hole", "expires": 9},
    )
    plan, live = vhost("4.3.6", theirs, exchanges=("deadletter.return.orders", "hole"))
    assert threats(plan, live) == ()
    assert plan.policies[0].priority == 999


@pytest.mark.parametrize("priority", [999, 5_000])
def test_the_plan_goes_above_a_user_policy_that_stands_as_high(priority: int) -> None:
    theirs = BrokerPolicy(
        name="all", pattern=".*", priority=priority, definition={"message-ttl": 5, "alternate-exchange": "x"}
    )
    plan, live = vhost("4.3.6", theirs, exchanges=("deadletter.return.orders",))
    assert [policy.priority for policy in plan.policies] == [priority + 1]
    then = topology(
        version="4.3.6",
        queues=live.queues.values(),
        exchanges=live.exchanges.values(),
        policies=[*plan.policies, theirs],
    )
    assert threats(plan, then) == ()
    if priority > 999:
        (threat,) = threats(plan, live)
        assert "deadletter.return.orders" in threat.subjects
        assert shlex.split(threat.command) == ["rabbitmqctl", "clear_policy", "-p", "a shop", "all"]


def test_ours_is_not_lowered_again() -> None:
    plan, live = vhost("4.0.5")
    higher = [replace(policy, priority=2_000) for policy in live.policies]
    again = serving(
        topology(version="4.0.5", queues=live.queues.values(), policies=higher),
        levels_ms=(1_000,),
        numbered_ms=None,
    )
    assert [policy.priority for policy in again.policies] == [2_000]
    assert [policy.priority for policy in plan.policies] == [999]


@pytest.mark.parametrize("version", VERSIONS)
def test_ours_that_is_gone_is_to_be_set(version: str) -> None:
    plan, live = vhost(version)
    small = BrokerPolicy(name="small", pattern=".*", definition={"max-length": 3})
    bare = topology(vhost="a shop", version=version, queues=live.queues.values(), policies=[small])
    found = threats(plan, bare)
    assert {threat.policy for threat in found} == {"deadletter"}
    assert found[0].command.startswith("rabbitmqctl set_policy -p 'a shop' --apply-to all --priority 999")
    # The argument holds where the policy is gone: a length refuses, and only RabbitMQ 4 counts deliveries.
    assert found[0].only_refuses is (version == "3.10.8")


def test_what_the_broker_tells_is_believed_where_operator_policies_may_not_be_read() -> None:
    plan, live = vhost("4.0.5")
    told = Told(
        policy="deadletter",
        operator_policy="hidden",
        definition={"overflow": "reject-publish", "delivery-limit": -1, "message-ttl": 300},
    )
    (threat,) = threats(plan, live, {"deadletter.due": told})
    assert (threat.policy, threat.operator, threat.subjects) == ("hidden", True, ("deadletter.due",))


def test_leases_are_nobodys_home() -> None:
    plan, live = vhost("4.0.5", operator("lease", expires=5))
    lease = Queue(name="deadletter.lease.x", exclusive=True)
    with_lease = topology(version="4.0.5", queues=[*live.queues.values(), lease], policies=live.policies)
    assert threats(plan, with_lease) == ()


# -- a layout that was found ------------------------------------------------------------------------------
def found_as(name: str, kind: str = "classic", **arguments: Value) -> Queue:
    return Queue(
        name=name,
        type=kind,
        arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()},
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_numbered_delay_that_was_there_keeps_our_ttl(version: str, kind: str) -> None:
    """The policy for it has no key that its type does not take."""
    there = topology(
        version=version,
        queues=[
            found_as(
                "queue.delay.1",
                kind,
                dead_letter_exchange="retry-exchange-1",
                dead_letter_routing_key="retry.#.1",
            )
        ],
    )
    plan = serving(there, levels_ms=(), numbered_ms=(20_000,))
    then = topology(version=version, queues=there.queues.values(), policies=plan.policies)
    assert then.queues["queue.delay.1"].ttl_ms == 20_000
    assert not any(one.grave for one in shortfalls(plan, then) if one.queue == "queue.delay.1")


def test_a_numbered_delay_that_leads_elsewhere_is_grave_and_another_delay_is_not() -> None:
    there = topology(
        version="4.0.5",
        queues=[
            found_as("queue.delay.1", message_ttl=10_000, dead_letter_exchange="elsewhere"),
            found_as(
                "queue.delay.2",
                message_ttl=10_000,
                dead_letter_exchange="retry-exchange-2",
                dead_letter_routing_key="retry.#.2",
            ),
        ],
    )
    plan = serving(there, levels_ms=(), numbered_ms=(10_000, 20_000))
    live = topology(version="4.0.5", queues=there.queues.values(), policies=plan.policies)
    found = shortfalls(plan, live)
    assert {one.queue for one in found if one.grave} == {"queue.delay.1"}
    assert "10 s instead of 20 s" in next(str(one) for one in found if one.queue == "queue.delay.2")


def test_a_delay_without_a_ttl_is_grave() -> None:
    planned = topology(queues=[found_as("q.retry", message_ttl=5)]).queues["q.retry"]
    (danger,) = dangers(planned, Queue(name="q.retry"), "4.0.5")
    assert danger.risk is Risk.STUCK


# -- policies as brokers take them ------------------------------------------------------------------------
def test_one_key_makes_a_policy_void_and_the_next_one_applies() -> None:
    above = BrokerPolicy(
        name="above", pattern="", priority=2, definition={"message-ttl": 5, "delivery-limit": 9}
    )
    below = BrokerPolicy(name="below", pattern="", definition={"max-length": 7})
    chooser = Chooser([above, below], "4.0.5")
    assert chooser.choose("q", "classic").policy == "below"
    assert chooser.choose("q", "quorum").policy == "above"
    assert chooser.without_effect("q", "classic") is above
    assert chooser.without_effect("q", "quorum") is None


def test_some_keys_are_void_on_some_versions_only() -> None:
    assert void_keys("classic", {"queue-leader-locator"}, "3.10.8") == {"queue-leader-locator"}
    assert not void_keys("classic", {"queue-leader-locator"}, "4.0.5")
    assert void_keys("classic", {"max-in-memory-length"}, "4.3.6") == {"max-in-memory-length"}
    assert not void_keys("classic", {"max-in-memory-length"}, "3.10.8")


def test_on_a_quorum_queue_a_policys_overflow_holds_against_the_declarations() -> None:
    own: dict[str, Value] = {"x-overflow": "reject-publish"}
    assert effective(own, {"overflow": "drop-head"}, "quorum") == {"overflow": "drop-head"}
    assert effective(own, {"overflow": "drop-head"}, "classic") == {"overflow": "reject-publish"}
