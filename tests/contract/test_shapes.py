"""Declaring, binding, deleting: what is accepted, and with which error it is not.

About `testing.memory.contents.shapes`, `testing.memory.connections.declare_refusals`,
`core.topology.rabbitmq_versions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.contract.ground import Ground

from deadletter.amqp import requests
from deadletter.amqp.channel import Channel
from deadletter.broker.lease import Lease
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.errors import (
    AccessRefused,
    ClosedByBroker,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    WireError,
)

Ask = Callable[[Channel], Awaitable[object]]

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
QUORUM = {"x-queue-type": "quorum"}
REFUSED: dict[str, tuple[Ask, type[WireError], str]] = {
    "passive": (lambda c: c.declare_queue("none", passive=True), NotFound, "no queue 'none' in vhost"),
    "get": (lambda c: c.get("none"), NotFound, "no queue 'none' in vhost"),
    "purge": (lambda c: c.purge_queue("none"), NotFound, "no queue 'none' in vhost"),
    "consume": (lambda c: c.consume("none", print, print), NotFound, "no queue 'none' in vhost"),
    "reserved": (lambda c: c.declare_queue("amq.mine"), AccessRefused, "reserved prefix 'amq.*'"),
    "durable": (lambda c: c.declare_queue("there", durable=False), PreconditionFailed, "'durable' for queue"),
    "auto delete": (lambda c: c.declare_queue("there", auto_delete=True), PreconditionFailed, "auto_delete"),
    "exclusive": (lambda c: c.declare_queue("there", exclusive=True), ResourceLocked, "locked queue 'there'"),
    "type": (lambda c: c.declare_queue("there", arguments=QUORUM), PreconditionFailed, "'x-queue-type'"),
    "argument": (
        lambda c: c.declare_queue("there", arguments={"x-message-ttl": 5}),
        PreconditionFailed,
        "inequivalent arg 'x-message-ttl' for queue 'there'",
    ),
    "negative ttl": (
        lambda c: c.declare_queue("new", arguments={"x-message-ttl": -1}),
        PreconditionFailed,
        "{value_negative,-1}",
    ),
    "text for ttl": (
        lambda c: c.declare_queue("new", arguments={"x-message-ttl": "5"}),
        PreconditionFailed,
        "expected integer",
    ),
    "overflow": (
        lambda c: c.declare_queue("new", arguments={"x-overflow": "perhaps"}),
        PreconditionFailed,
        "invalid_overflow",
    ),
    "key without exchange": (
        lambda c: c.declare_queue("new", arguments={"x-dead-letter-routing-key": "k"}),
        PreconditionFailed,
        "routing_key_but_no_dlx_defined",
    ),
    "unknown type": (
        lambda c: c.declare_queue("new", arguments={"x-queue-type": "round"}),
        PreconditionFailed,
        "unsupported queue type 'round'",
    ),
    "limit of a classic": (
        lambda c: c.declare_queue("new", arguments={"x-delivery-limit": 3}),
        PreconditionFailed,
        "invalid arg 'x-delivery-limit'",
    ),
    "strategy of a classic": (
        lambda c: c.declare_queue("new", arguments={"x-dead-letter-strategy": "at-least-once"}),
        PreconditionFailed,
        "invalid arg 'x-dead-letter-strategy'",
    ),
    "priorities of a quorum": (
        lambda c: c.declare_queue("new", arguments={**QUORUM, "x-max-priority": 3}),
        PreconditionFailed,
        "invalid arg 'x-max-priority'",
    ),
    "mode of a quorum": (
        lambda c: c.declare_queue("new", arguments={**QUORUM, "x-queue-mode": "lazy"}),
        PreconditionFailed,
        "invalid arg 'x-queue-mode'",
    ),
    "version of a quorum": (
        lambda c: c.declare_queue("new", arguments={**QUORUM, "x-queue-version": 2}),
        PreconditionFailed,
        "invalid arg 'x-queue-version'",
    ),
    "a version nobody has": (
        lambda c: c.declare_queue("new", arguments={"x-queue-version": 3}),
        PreconditionFailed,
        "unsupported queue version '3'",
    ),
    "group of a classic": (
        lambda c: c.declare_queue("new", arguments={"x-quorum-initial-group-size": 1}),
        PreconditionFailed,
        "invalid arg 'x-quorum-initial-group-size'",
    ),
    "age of a classic": (
        lambda c: c.declare_queue("new", arguments={"x-max-age": "1D"}),
        PreconditionFailed,
        "invalid arg 'x-max-age'",
    ),
    "too many priorities": (
        lambda c: c.declare_queue("new", arguments={"x-max-priority": 300}),
        PreconditionFailed,
        "{max_value_exceeded,300}",
    ),
    "strategy": (
        lambda c: c.declare_queue("new", arguments={**QUORUM, "x-dead-letter-strategy": "perhaps"}),
        PreconditionFailed,
        "invalid_dlx_strategy",
    ),
    "number for a name": (
        lambda c: c.declare_queue("new", arguments={"x-dead-letter-exchange": 5}),
        PreconditionFailed,
        "invalid type 'long' for arg 'x-dead-letter-exchange'",
    ),
    "expires at once": (
        lambda c: c.declare_queue("new", arguments={"x-expires": 0}),
        PreconditionFailed,
        "{value_zero,0}",
    ),
    "text for the active one": (
        lambda c: c.declare_queue("new", arguments={"x-single-active-consumer": "yes"}),
        PreconditionFailed,
        "{unacceptable_type,longstr}",
    ),
    "transient quorum": (
        lambda c: c.declare_queue("new", durable=False, arguments=QUORUM),
        PreconditionFailed,
        "invalid property 'non-durable'",
    ),
    "exclusive quorum": (
        lambda c: c.declare_queue("new", exclusive=True, arguments=QUORUM),
        PreconditionFailed,
        "exclusive-owner",
    ),
    "auto delete quorum": (
        lambda c: c.declare_queue("new", auto_delete=True, arguments=QUORUM),
        PreconditionFailed,
        "auto-delete",
    ),
    "exchange type": (lambda c: c.declare_exchange("way", "topic"), PreconditionFailed, "arg 'type'"),
    "exchange durable": (
        lambda c: c.declare_exchange("way", "direct", durable=False),
        PreconditionFailed,
        "'durable' for exchange 'way'",
    ),
    "exchange alternate": (
        lambda c: c.declare_exchange("way", "direct", arguments={"alternate-exchange": "x"}),
        PreconditionFailed,
        "'alternate-exchange'",
    ),
    "exchange passive": (
        lambda c: c.declare_exchange("none", "direct", passive=True),
        NotFound,
        "no exchange 'none'",
    ),
    "exchange reserved": (lambda c: c.declare_exchange("amq.mine", "topic"), AccessRefused, "amq.mine"),
    "default exchange": (lambda c: c.declare_exchange("", "direct"), AccessRefused, "default exchange"),
    "delete default": (lambda c: c.delete_exchange(""), AccessRefused, "default exchange"),
    "delete system": (lambda c: c.delete_exchange("amq.topic"), AccessRefused, "amq.topic"),
    "bind no queue": (lambda c: c.bind_queue("none", "way"), NotFound, "no queue 'none'"),
    "bind no exchange": (lambda c: c.bind_queue("there", "none"), NotFound, "no exchange 'none'"),
    "bind default": (lambda c: c.bind_queue("there", ""), AccessRefused, "default exchange"),
    "bind x-match": (
        lambda c: c.bind_queue("there", "amq.headers", "", {"x-match": "some"}),
        PreconditionFailed,
        "Invalid x-match",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_refused_closes_the_channel_with_its_error(ground: Ground, what: str) -> None:
    ask, expected, words = REFUSED[what]
    channel = await ground.channel()
    await channel.declare_queue("there")
    await channel.declare_exchange("way", "direct")
    with pytest.raises(expected) as caught:
        await ask(channel)
    assert words in str(caught.value)
    with pytest.raises(expected):
        await channel.declare_queue("there", passive=True)  # the channel is gone, with the same error
    assert (await (await ground.channel()).declare_queue("there", passive=True)).queue == "there"


ACCEPTED: dict[str, Ask] = {
    "the same again": lambda c: c.declare_queue("there"),
    "its type said": lambda c: c.declare_queue("there", arguments={"x-queue-type": "classic"}),
    "an argument nobody knows": lambda c: c.declare_queue("there", arguments={"x-unheard": 1}),
    "the same exchange": lambda c: c.declare_exchange("way", "direct"),
    "a system exchange": lambda c: c.declare_exchange("amq.topic", "topic"),
    "passive with another type": lambda c: c.declare_exchange("way", "topic", passive=True),
    "unbind what is not bound": lambda c: c.unbind_queue("there", "way", "k"),
    "unbind no queue": lambda c: c.unbind_queue("none", "way", "k"),
    "unbind no exchange": lambda c: c.unbind_queue("there", "none", "k"),
    "delete no queue": lambda c: c.delete_queue("none"),
    "delete no exchange": lambda c: c.delete_exchange("none"),
    "bind twice": lambda c: c.bind_queue("there", "way", "k"),
    "two wildcards": lambda c: c.bind_queue("there", "amq.topic", "#.a.#"),
    "a lazy queue": lambda c: c.declare_queue("new", arguments={"x-queue-mode": "lazy"}),
    "a transient queue": lambda c: c.declare_queue("new", durable=False),
    "reject-publish-dlx of a quorum": lambda c: c.declare_queue(
        "new", arguments={**QUORUM, "x-overflow": "reject-publish-dlx"}
    ),
}


@pytest.mark.parametrize("what", ACCEPTED)
async def test_what_is_accepted(ground: Ground, what: str) -> None:
    channel = await ground.channel()
    await channel.declare_queue("there")
    await channel.declare_exchange("way", "direct")
    await channel.bind_queue("there", "way", "k")
    await ACCEPTED[what](channel)
    assert channel.error is None


async def test_an_exchange_type_nobody_knows(ground: Ground) -> None:
    channel = await ground.channel()
    ends_all = ground.traits.unknown_exchange_type_ends_connection
    with pytest.raises(ClosedByBroker if ends_all else PreconditionFailed):
        await channel.declare_exchange("x", "round")
    assert channel.connection.closed.done() is ends_all


VERSIONED: dict[str, tuple[Ask, Callable[[Traits], str | None]]] = {
    "a mode nobody has": (
        lambda c: c.declare_queue("new", arguments={"x-queue-mode": "soon"}),
        lambda t: "unsupported queue mode 'soon'" if t.checks_queue_mode else None,
    ),
    "the first version": (
        lambda c: c.declare_queue("new", arguments={"x-queue-version": 1}),
        lambda t: None if 1 in t.queue_versions else "unsupported queue version '1'",
    ),
    "leader of a classic": (
        lambda c: c.declare_queue("new", arguments={"x-queue-leader-locator": "balanced"}),
        lambda t: "'x-queue-leader-locator'" if "x-queue-leader-locator" in t.foreign_to_classic else None,
    ),
    "master of a classic": (
        lambda c: c.declare_queue("new", arguments={"x-queue-master-locator": "min-masters"}),
        lambda t: "541 INTERNAL_ERROR" if t.no_master_locator else None,
    ),
    "three wildcards": (
        lambda c: c.bind_queue("there", "amq.topic", "#.a.#.b.#"),
        lambda t: "uses 3 '#' wildcards, at most 2" if t.topic_wildcards_max else None,
    ),
}


@pytest.mark.parametrize("what", VERSIONED)
async def test_what_only_some_versions_refuse(ground: Ground, what: str) -> None:
    ask, refusal = VERSIONED[what]
    channel = await ground.channel()
    await channel.declare_queue("there")
    words = refusal(ground.traits)
    if words is None:
        await ask(channel)
        return
    with pytest.raises(WireError) as caught:
        await ask(channel)
    assert words in str(caught.value)


async def refusal_of(channel: Channel, payload: bytes) -> str:
    """What the broker says to a request our client has no call for; empty when it does as asked."""
    try:
        await channel._ask_any(payload)
    except WireError as error:
        return str(error)
    return ""


@KINDS
@pytest.mark.parametrize("flag", ["if_empty", "if_unused"])
@pytest.mark.parametrize("met", [True, False])
async def test_deleting_a_queue_on_a_condition(ground: Ground, kind: str, flag: str, met: bool) -> None:
    """A quorum queue cannot tell, and ends the whole connection over the question."""
    await ground.declare("q", kind)
    if not met and flag == "if_empty":
        await ground.put("q", b"1")
        await ground.depth_becomes("q", 1)
    elif not met:
        await (await ground.channel()).consume("q", print, print)
    asking = await ground.channel(await ground.connect())
    said = await refusal_of(asking, requests.delete_queue("q", **{flag: True}))
    if kind == "quorum":
        assert "540 NOT_IMPLEMENTED" in said
        assert asking.connection.closed.done()
    else:
        assert said.endswith("" if met else {"if_empty": "not empty", "if_unused": "in use"}[flag])
        assert bool(said) is not met


@pytest.mark.parametrize("bound", [True, False])
async def test_deleting_an_exchange_that_is_used(ground: Ground, bound: bool) -> None:
    channel = await ground.channel()
    await channel.declare_queue("there")
    await channel.declare_exchange("way", "fanout")
    if bound:
        await channel.bind_queue("there", "way")
    said = await refusal_of(channel, requests.delete_exchange("way", if_unused=True))
    assert said.endswith("in use") if bound else not said


async def test_native_retries_are_for_quorum_queues_of_new_brokers(ground: Ground) -> None:
    channel = await ground.channel()
    arguments: dict[str, Value] = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 100}
    if ground.traits.native_retry:
        with pytest.raises(PreconditionFailed):
            await channel.declare_queue("new", arguments=arguments)
    else:
        await channel.declare_queue("new", arguments=arguments)


async def test_a_queue_without_a_name_gets_one(ground: Ground) -> None:
    channel = await ground.channel()
    name = (await channel.declare_queue("")).queue
    assert name.startswith("amq.gen-")
    assert (await channel.declare_queue(name, passive=True)).message_count == 0


async def test_counts_of_a_declared_purged_and_deleted_queue(ground: Ground) -> None:
    await ground.declare("q")
    await ground.put("q", b"1", b"2", b"3")
    channel = await ground.channel()
    await channel.consume(await ground.declare("other"), print, print)
    assert tuple(await channel.declare_queue("q", passive=True)) == ("q", 3, 0)
    assert tuple(await channel.declare_queue("other", passive=True)) == ("other", 0, 1)
    held = await channel.get("q")
    assert held is not None
    assert await channel.purge_queue("q") == 2  # not what is with a consumer
    channel.nack(held.tag, requeue=True)
    await ground.depth_becomes("q", 1)
    assert await channel.delete_queue("q") == 1


async def test_an_exclusive_queue_is_its_connections_alone(ground: Ground) -> None:
    first, second = await ground.connect(), await ground.connect()
    await (await ground.channel(first)).declare_queue("mine", durable=False, exclusive=True)
    asks: list[Ask] = [
        lambda c: c.declare_queue("mine", durable=False, exclusive=True),
        lambda c: c.declare_queue("mine", passive=True),
        lambda c: c.get("mine"),
        lambda c: c.consume("mine", print, print),
        lambda c: c.bind_queue("mine", "amq.topic", "a"),
        lambda c: c.purge_queue("mine"),
        lambda c: c.delete_queue("mine"),
    ]
    for ask in asks:
        with pytest.raises(ResourceLocked):
            await ask(await ground.channel(second))
    outcome = await ground.put("mine", b"1", channel=await ground.channel(second))
    assert outcome.confirmed == 1  # publishing is open to all
    await ground.vanish(first)
    with pytest.raises(NotFound):
        await (await ground.channel(second)).declare_queue("mine", passive=True)


async def test_a_lease_is_held_by_one_and_taken_over(ground: Ground) -> None:
    first, second = await ground.connect(), await ground.connect()
    assert await Lease.take(first, "work") is not None
    assert await Lease.take(second, "work") is None
    await ground.vanish(first)
    lease = await Lease.take(second, "work")
    assert lease is not None
    await lease.release()
    assert await Lease.take(await ground.connect(), "work") is not None


async def test_an_auto_delete_queue_goes_with_its_last_consumer(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_queue("brief", auto_delete=True)
    one = await channel.consume("brief", print, print)
    two = await channel.consume("brief", print, print)
    await channel.cancel(one)
    assert (await channel.declare_queue("brief", passive=True)).consumer_count == 1
    await channel.cancel(two)
    await ground.calm()
    with pytest.raises(NotFound):
        await channel.declare_queue("brief", passive=True)


async def test_deleting_a_queue_takes_its_bindings(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("way", "fanout")
    await channel.declare_queue("q")
    await channel.bind_queue("q", "way")
    await channel.delete_queue("q")
    await channel.declare_queue("q")
    assert len((await ground.put("k", b"1", exchange="way")).returned) == 1


@pytest.mark.timeout(120)
async def test_what_a_restart_leaves(ground: Ground) -> None:
    channel = await ground.channel()
    await ground.declare("classic")
    await ground.declare("quorum", "quorum")
    await channel.declare_exchange("kept", "fanout")
    await channel.declare_exchange("lost", "fanout", durable=False)
    await channel.bind_queue("classic", "kept")
    await channel.declare_queue("brief", durable=False, exclusive=True)
    await channel.declare_queue("passing", durable=False)
    for queue in ("classic", "quorum"):
        await ground.put(queue, b"persistent", delivery_mode=2)
        await ground.put(queue, b"transient", delivery_mode=1)
    await ground.site.restart()
    await ground.calm()
    assert channel.connection.closed.done()
    assert [d.message.body for d in await ground.drain("classic")] == [b"persistent"]
    assert [d.message.body for d in await ground.drain("quorum")] == [b"persistent", b"transient"]
    assert (await ground.put("", b"1", exchange="kept")).confirmed == 1
    await ground.depth_becomes("classic", 1)
    for queue in ("brief", "passing"):
        with pytest.raises(NotFound):
            await (await ground.channel()).declare_queue(queue, passive=True)
    transient = (await ground.channel()).declare_exchange("lost", "fanout", passive=True)
    if ground.traits.keeps_transient_exchanges:
        await transient
    else:
        with pytest.raises(NotFound):
            await transient
