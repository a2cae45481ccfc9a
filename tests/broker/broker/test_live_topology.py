"""Reading a live vhost: what we compute of its policies and routes is what the broker computes.

About `broker.live_topology`, `broker.management`, `broker.definitions_file`, `core.topology.merging`,
`core.topology.routing`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import Vhost, call

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.broker.definitions_file import read_definitions
from deadletter.broker.live_topology import read_topology
from deadletter.core.topology.rabbitmq_versions import version_of
from deadletter.core.topology.routing import Router
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import Binding, DestinationKind, Topology
from deadletter.errors import ManagementRefused


async def read(vhost: Vhost) -> Topology:
    return await read_topology(parse_addresses(vhost.url)[0], vhost.api)


async def test_everything_that_is_there_is_read(vhost: Vhost) -> None:
    vhost.put("exchanges", "orders", type="topic")
    vhost.put("exchanges", "all", type="fanout", arguments={"alternate-exchange": "orders"})
    vhost.put("queues", "bill", durable=True, arguments={"x-queue-type": "quorum", "x-message-ttl": 5000})
    vhost.put("queues", "mail", durable=True, arguments={"x-dead-letter-exchange": ""})
    bind(vhost, "e", "all", "e", "orders", "")
    bind(vhost, "e", "orders", "q", "bill", "bill.#")

    found = await read(vhost)

    assert found.live
    assert found.version == vhost.broker.version
    assert found.vhost == vhost.name
    assert found.exchanges["all"].alternate == "orders"
    assert found.exchanges["amq.topic"].type == "topic"
    assert (found.queues["bill"].type, found.queues["bill"].ttl_ms) == ("quorum", 5000)
    assert (found.queues["mail"].type, found.queues["mail"].dead_letter_exchange) == ("classic", "")
    assert set(found.bindings) == {
        Binding(source="all", destination="orders", to=DestinationKind.EXCHANGE),
        Binding(source="orders", destination="bill", routing_key="bill.#"),
    }
    assert found.permissions is not None


MERGES = [
    # own arguments, policy, operator policy
    ({"x-message-ttl": 5000}, {"message-ttl": 900}, {}),
    ({"x-message-ttl": 500}, {"message-ttl": 900}, {"message-ttl": 700}),
    ({}, {"max-length": 10, "message-ttl": 900}, {"max-length": 20, "message-ttl": 100}),
    ({"x-max-length": 50}, {"max-length": 10}, {"max-length": 20}),
    ({"x-dead-letter-exchange": "own"}, {"dead-letter-exchange": "policy"}, {}),
    ({}, {"dead-letter-exchange": "policy", "expires": 1_800_000}, {"expires": 3_600_000}),
    ({"x-overflow": "reject-publish"}, {"overflow": "drop-head", "max-length": 3}, {}),
]


@pytest.mark.parametrize(("own", "policy", "operator"), MERGES)
async def test_policies_merge_as_the_broker_merges_them(
    vhost: Vhost, own: dict[str, object], policy: dict[str, object], operator: dict[str, object]
) -> None:
    vhost.put("queues", "merged", durable=True, arguments=own)
    vhost.put("policies", "user", pattern="^mer", definition=policy, **{"apply-to": "queues"}, priority=1)
    vhost.put("policies", "low", pattern=".*", definition={"max-length": 1}, **{"apply-to": "queues"})
    if operator:
        vhost.put("operator-policies", "op", pattern=".*", definition=operator, **{"apply-to": "queues"})
    told = await told_of(vhost, "merged")

    found = (await read(vhost)).queues["merged"]

    assert found.policy == told["policy"] == "user"
    assert found.operator_policy == (told["operator_policy"] or None)
    definition = {
        key: value
        for key, value in found.effective.items()
        if key in {*policy, *operator} and f"x-{key}" not in own
    }
    assert definition == {
        key: value for key, value in told["effective_policy_definition"].items() if f"x-{key}" not in own
    }


@pytest.mark.parametrize(
    ("argument", "policy", "dies"), [(30_000, 200, True), (200, 30_000, True), (30_000, 40_000, False)]
)
async def test_of_two_ttls_the_smaller_holds(vhost: Vhost, argument: int, policy: int, dies: bool) -> None:
    """What a queue does with an argument and a policy no API tells: one has to see it."""
    vhost.put("queues", "short", durable=True, arguments={"x-message-ttl": argument})
    vhost.put("policies", "ttl", pattern="^short$", definition={"message-ttl": policy})
    connection = await connect(parse_addresses(vhost.url)[0], name="test")
    channel = await connection.channel()
    vhost_publish(vhost, "short")

    if dies:
        async with asyncio.timeout(60):
            while (await channel.declare_queue("short", passive=True)).message_count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    else:
        await asyncio.sleep(0.8)
        assert (await channel.declare_queue("short", passive=True)).message_count == 1
    await connection.close()
    assert (await read(vhost)).queues["short"].ttl_ms == min(argument, policy)


async def test_a_policy_cannot_change_a_frozen_dead_letter_exchange(vhost: Vhost) -> None:
    vhost.put("queues", "into.own")
    vhost.put("queues", "into.policy")
    vhost.put(
        "queues",
        "dying",
        arguments={
            "x-message-ttl": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "into.own",
        },
    )
    vhost.put("policies", "p", pattern="^dying$", definition={"dead-letter-routing-key": "into.policy"})
    vhost_publish(vhost, "dying")
    found = (await read(vhost)).queues["dying"]
    assert found.dead_letter_key == "into.own"
    connection = await connect(parse_addresses(vhost.url)[0], name="test")
    channel = await connection.channel()
    async with asyncio.timeout(60):
        while not (await channel.declare_queue("into.own", passive=True)).message_count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await channel.declare_queue("into.policy", passive=True)).message_count == 0
    await connection.close()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("bill.paid", {"bill", "everything"}),
        ("mail", {"everything", "mail"}),
        ("retry.#.1", {"everything", "level"}),
        ("nobody", {"everything"}),
    ],
)
async def test_routes_are_the_brokers(vhost: Vhost, key: str, expected: set[str]) -> None:
    vhost.put("exchanges", "in", type="topic")
    vhost.put("exchanges", "copy", type="fanout")
    vhost.put("exchanges", "keyed", type="direct", arguments={"alternate-exchange": "caught"})
    vhost.put("exchanges", "caught", type="fanout")
    for queue in ("bill", "mail", "everything", "level", "nobody's"):
        vhost.put("queues", queue)
    bind(vhost, "e", "in", "q", "bill", "bill.*")
    bind(vhost, "e", "in", "q", "level", "retry.#.1")
    bind(vhost, "e", "in", "e", "copy", "#")
    bind(vhost, "e", "copy", "q", "everything", "")
    bind(vhost, "e", "copy", "e", "keyed", "")
    bind(vhost, "e", "keyed", "q", "mail", "mail")
    bind(vhost, "e", "caught", "q", "everything", "")

    router = Router(await read(vhost))
    reach = router.route("in", Keys(key))
    published = call(
        vhost.broker, "POST", "exchanges", vhost.name, "in", "publish",
        content={"properties": {}, "routing_key": key, "payload": "x", "payload_encoding": "string"},
    )  # fmt: skip

    assert reach.queues == expected
    assert reach.complete == published["routed"]
    assert {q for q in ("bill", "mail", "everything", "level", "nobody's") if ready(vhost, q)} == expected


async def test_consumers_are_told_with_the_name_their_client_gave(vhost: Vhost) -> None:
    vhost.put("queues", "served", durable=True)
    connection = await connect(parse_addresses(vhost.url)[0], name="billing service")
    channel = await connection.channel()
    await channel.qos(7)
    await channel.consume("served", lambda _delivery: None, lambda: None)
    state = (await read(vhost)).queues["served"].state
    for _ in range(600):
        if state is not None and any(found.connection == "billing service" for found in state.consumers):
            break
        await asyncio.sleep(0.1)  # the API learns of a connection within seconds
        state = (await read(vhost)).queues["served"].state
    await connection.close()
    assert state is not None
    (consumer,) = state.consumers
    assert (consumer.connection, consumer.prefetch, consumer.ack_required) == ("billing service", 7, True)
    assert consumer.user == "guest"


async def test_a_definitions_file_says_the_same(vhost: Vhost, tmp_path: Path) -> None:
    vhost.put("exchanges", "orders", type="topic")
    vhost.put("queues", "bill", durable=True, arguments={"x-queue-type": "quorum", "x-message-ttl": 5000})
    bind(vhost, "e", "orders", "q", "bill", "bill.#")
    vhost.put("policies", "p", pattern="^b", definition={"max-length": 5}, **{"apply-to": "queues"})
    vhost.put("operator-policies", "o", pattern="^b", definition={"max-length": 3}, **{"apply-to": "queues"})
    exported = tmp_path / "definitions.json"
    exported.write_text(json.dumps(call(vhost.broker, "GET", "definitions")))

    from_file = read_definitions(exported)[vhost.name]
    live = await read(vhost)

    assert from_file.queues["bill"].effective == live.queues["bill"].effective
    assert from_file.queues["bill"].max_length == 3
    assert from_file.bindings == live.bindings
    assert set(from_file.exchanges) == set(live.exchanges)
    assert version_of(from_file.version) == version_of(live.version)
    assert not from_file.live


async def test_a_user_without_the_tag_is_told_what_to_do(vhost: Vhost) -> None:
    call(vhost.broker, "PUT", "users", "plain", content={"password": "plain", "tags": ""})
    call(
        vhost.broker, "PUT", "permissions", vhost.name, "plain",
        content={"configure": ".*", "write": ".*", "read": ".*"},
    )  # fmt: skip
    try:
        address = parse_addresses(vhost.url.replace(vhost.url.split("@")[0], "amqp://plain:plain"))[0]
        with pytest.raises(ManagementRefused, match="set_user_tags plain management"):
            await read_topology(address, vhost.api.replace("//", "//plain:plain@"))
    finally:
        call(vhost.broker, "DELETE", "users", "plain")


async def told_of(vhost: Vhost, queue: str) -> dict[str, Any]:
    """What the broker tells of a queue once its statistics have come, which takes seconds."""
    for _ in range(200):
        told: dict[str, Any] = vhost.get("queues", queue)
        if "effective_policy_definition" in told and told.get("policy"):
            return told
        await asyncio.sleep(0.1)
    raise AssertionError(f"no statistics of {queue} came within 20 s")


def bind(vhost: Vhost, source_kind: str, source: str, kind: str, destination: str, key: str) -> None:
    call(
        vhost.broker, "POST", "bindings", vhost.name, source_kind, source, kind, destination,
        content={"routing_key": key},
    )  # fmt: skip


def vhost_publish(vhost: Vhost, key: str) -> None:
    call(
        vhost.broker, "POST", "exchanges", vhost.name, "amq.default", "publish",
        content={"properties": {}, "routing_key": key, "payload": "x", "payload_encoding": "string"},
    )  # fmt: skip


def ready(vhost: Vhost, queue: str) -> bool:
    found = call(
        vhost.broker, "POST", "queues", vhost.name, queue, "get",
        content={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    )  # fmt: skip
    return bool(found)
