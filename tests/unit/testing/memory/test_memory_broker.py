"""The broker in memory where no real one can be asked: its faults, its looks, and that it is our own client.

What it has in common with RabbitMQ is in `tests/contract`.

About `testing.memory.broker`, `testing.memory.transport`, `testing.memory.connections.server_channel`,
`testing.memory.connections.peer`, `testing.memory.connections.wire`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.paths import ROOT

from deadletter.amqp import requests
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.amqp.publisher import publish_all
from deadletter.broker.session import Connected, Link, Persistence, SessionEvent, Waiting, supervise
from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View, encode, view
from deadletter.errors import (
    ClosedByBroker,
    ConnectionForced,
    ConnectionLost,
    NotFound,
    QueueMissing,
    Unreachable,
    UsageError,
    WireError,
)
from deadletter.move.courier import Bounds, Courier, Ended, Judging, Letter, Send, Terms
from deadletter.service.queue_loop import QueueLoop
from deadletter.service.telling.service_events import Recovered, Trouble
from deadletter.testing.memory import (
    MemoryBroker,
    MemoryConnection,
    MemoryLink,
    VirtualClock,
    settle,
    virtual_time,
)
from deadletter.testing.memory.connections.server_channel import HANDLERS

EMPTY = b"\0\0"


async def channel_of(broker: MemoryBroker) -> Channel:
    channel = await (await broker.connect()).channel()
    await channel.select_confirms()
    return channel


async def put(channel: Channel, queue: str, *bodies: bytes) -> None:
    outcome = await publish_all(
        channel, "", queue, [RawMessage(encode(View(delivery_mode=2)), b) for b in bodies]
    )
    assert outcome.confirmed == len(bodies)


def nobody() -> None:
    raise AssertionError("the consumer was cancelled")


# -- it is our own client -----------------------------------------------------------------------------------
async def test_connections_and_channels_are_our_own() -> None:
    """No imitation that could drift: only the line and the far end are played."""
    broker = MemoryBroker()
    connection = await broker.connect()
    assert isinstance(connection, Connection)
    assert type(await connection.channel()) is Channel
    own = {name for name in vars(MemoryConnection) if not name.startswith("__")}
    assert not own & set(dir(Connection))
    link = broker.link()
    assert isinstance(link, Link)
    assert {name for name in vars(MemoryLink) if not name.startswith("__")} <= {"_abc_impl"}


def test_every_method_our_client_can_say_is_understood() -> None:
    of_connections = {
        (10, 11),
        (10, 31),
        (10, 40),
        (10, 50),
        (10, 51),
        (20, 10),
        (20, 21),
        (20, 40),
        (20, 41),
    }
    of_migrations = {(40, 30), (40, 40)}
    """Bindings between exchanges. A migration needs the management API, which a broker in memory has not."""
    known = set(HANDLERS) | of_connections | of_migrations
    said: dict[tuple[int, int], str] = {}
    for name, value in vars(requests).items():
        if isinstance(value, bytes) and name.isupper() and not name.startswith("_"):
            said[int.from_bytes(value[:2], "big"), int.from_bytes(value[2:4], "big")] = name
        elif inspect.isfunction(value) and value.__module__ == requests.__name__ and name[0] != "_":
            if name in ("short", "long"):
                continue
            payload = value(**_some(value))
            said[int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")] = name
    assert len(said) > 20
    assert {name for key, name in said.items() if key not in known} == set()


def _some(function: Callable[..., bytes]) -> dict[str, object]:
    """Any arguments that fit."""
    values: dict[str, object] = {"str": "x", "int": 1, "bool": False, "bytes": b"", "Mapping[str, Value]": {}}
    return {
        name: values[str(parameter.annotation)]
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }


async def test_what_a_connection_says_about_itself() -> None:
    connection = await MemoryBroker("3.10.8").connect(name="me")
    assert (connection.server_version, connection.name) == ("3.10.8", "me")
    assert (connection.frame_max_bytes, connection.congested) == (131_072, False)
    await connection.close()
    assert connection.closed.done()
    with pytest.raises(ConnectionLost):
        await connection.channel()


@pytest.mark.parametrize("version", ["3.9", "5.0.1", "four", ""])
def test_versions_it_cannot_play(version: str) -> None:
    async def make() -> None:
        MemoryBroker(version)

    with pytest.raises(UsageError, match="RabbitMQ version"):
        asyncio.run(make())


# -- the safe move ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.3.6"])
async def test_the_courier_moves_letters(version: str) -> None:
    with virtual_time():
        broker = MemoryBroker(version, scramble=7)
        channel = await channel_of(broker)
        for queue in ("source", "target"):
            await channel.declare_queue(queue, arguments={"x-queue-type": "quorum"})
        await put(channel, "source", *[b"%d" % n for n in range(500)])
        courier = Courier([broker.address], source="source", decide=lambda _l: Send(routing_key="target"))
        tally = await courier.on(broker.link())
        assert (tally.moved, tally.failed, tally.ended) == (500, 0, Ended.COMPLETE)
        assert (broker.depth("source"), broker.unacked("source")) == (0, 0)
        moved = broker.messages("target")
        assert sorted(int(m.body) for m in moved) == list(range(500))
        assert len({str((view(m.properties).headers or {})[names.ID]) for m in moved}) == 500


async def test_a_courier_survives_cut_lines_and_loses_nothing() -> None:
    with virtual_time():
        broker = MemoryBroker(scramble=1)
        channel = await channel_of(broker)
        for queue in ("source", "target"):
            await channel.declare_queue(queue, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})
        await put(channel, "source", *[b"%d" % n for n in range(1_200)])
        events: list[SessionEvent] = []
        looked = 0

        def decide(_letter: Letter) -> Send:
            nonlocal looked
            looked += 1
            if looked in (200, 600, 1_100):
                # Some publishes of this turn are out by then.
                asyncio.get_running_loop().call_soon(broker.cut)
            return Send(routing_key="target")

        courier = Courier([], source="source", decide=decide, terms=Terms(prefetch=50))
        patient = Persistence(first_s=60, again_s=60)
        ended = await supervise(
            [broker.address],
            courier.on,
            persistence=patient,
            on_event=events.append,
            dial=broker.connect,
        )
        assert ended.ended is Ended.COMPLETE
        bodies = {m.body for m in broker.messages("target")}
        assert bodies == {b"%d" % n for n in range(1_200)}
        assert broker.depth("source") == 0
        assert [type(event) for event in events] == [Connected, Waiting] * 3 + [Connected]


async def test_a_line_of_the_service_runs_for_a_virtual_day() -> None:
    """Over cut lines, a queue that is away for a while, and its own beginning anew every ten minutes."""
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        channel = await channel_of(broker)
        for queue in ("dlq", "out"):
            await channel.declare_queue(queue, arguments={"x-queue-type": "quorum"})
        told: list[object] = []
        judging = Judging(decide=lambda _letter: Send(routing_key="out"))
        line = QueueLoop("dlq", judging, prefetch=10, emit=told.append, dice=lambda: 0.5)
        running = asyncio.create_task(
            supervise(
                [broker.address],
                line.on,
                persistence=Persistence(first_s=None, again_s=None),
                dial=broker.connect,
            )
        )
        for hour in range(24):
            channel = await channel_of(broker)
            if hour == 7:
                await channel.delete_queue("dlq")
                await clock.advance(1_800)
                await channel.declare_queue("dlq", arguments={"x-queue-type": "quorum"})
                await clock.advance(60)
            await put(channel, "dlq", b"%d" % hour, b"more")
            if hour % 5 == 0:
                broker.cut()
            await clock.advance(3_600)
        line.stop()
        await running
        found = Counter(m.body for m in broker.messages("out"))
        assert set(found) == {b"more", *(b"%d" % hour for hour in range(24))}
        assert broker.depth("dlq") == broker.unacked("dlq") == 0
        assert any(isinstance(event, Trouble) for event in told)
        assert isinstance(told[-1], Recovered)


# -- faults -------------------------------------------------------------------------------------------------
async def test_a_cut_line_loses_what_is_under_way_and_gives_back_what_was_held() -> None:
    broker = MemoryBroker("3.10.8")
    channel = await channel_of(broker)
    await channel.declare_queue("q")
    await put(channel, "q", b"1")
    taking = await broker.connect()
    other = await taking.channel()
    got: list[Delivery] = []
    await other.consume("q", got.append, nobody)
    await settle()
    assert (len(got), broker.unacked("q")) == (1, 1)
    other.ack(got[0].tag)  # never arrives
    broker.cut(taking)
    await settle()
    assert (broker.depth("q"), broker.unacked("q")) == (1, 0)
    assert isinstance(taking.closed.result(), ConnectionLost)
    with pytest.raises(ConnectionLost):
        await other.get("q")
    with pytest.raises(UsageError, match="not, or over"):
        broker.cut(taking)


async def test_a_publish_that_arrived_is_there_though_its_confirm_is_lost() -> None:
    broker = MemoryBroker()
    channel = await channel_of(broker)
    await channel.declare_queue("q")
    confirms: list[int] = []
    channel.on_confirm = lambda tag, _multiple, _ok: confirms.append(tag)
    channel.publish(channel.publishing("", "q", mandatory=True), EMPTY, b"1")
    for _ in range(2):  # out of the client, and into the broker
        await asyncio.sleep(0)
    assert broker.depth("q") == 1
    broker.cut()
    await settle()
    assert confirms == []


async def test_a_queue_that_refuses() -> None:
    broker = MemoryBroker()
    channel = await channel_of(broker)
    await channel.declare_queue("q")
    broker.refuse_publishes("q")
    outcome = await publish_all(channel, "", "q", [RawMessage(EMPTY, b"1")])
    assert (outcome.confirmed, outcome.refused) == (0, 1)
    broker.refuse_publishes("q", refuse=False)
    await put(channel, "q", b"2")
    assert [m.body for m in broker.messages("q")] == [b"2"]
    with pytest.raises(QueueMissing):
        broker.refuse_publishes("none")


async def test_a_stopped_broker_cannot_be_reached_until_it_is_started() -> None:
    with virtual_time():
        broker = MemoryBroker()
        channel = await channel_of(broker)
        await channel.declare_queue("q")
        await put(channel, "q", b"1")
        await broker.stop()
        assert isinstance(channel.error, ConnectionForced)
        with pytest.raises(Unreachable):
            await broker.connect()
        asyncio.get_running_loop().call_later(30, broker.start)
        seen: list[SessionEvent] = []

        async def work(link: Link) -> int:
            connection = await link.connection("consume")
            return (await (await connection.channel()).declare_queue("q", passive=True)).message_count

        patient = Persistence(first_s=600)
        assert (
            await supervise(
                [broker.address], work, persistence=patient, on_event=seen.append, dial=broker.connect
            )
            == 1
        )
        assert isinstance(seen[0], Waiting)
        assert isinstance(seen[-1], Connected)


async def test_an_operator_closes_a_connection() -> None:
    broker = MemoryBroker()
    connection = await broker.connect()
    broker.close(connection, "go home")
    error: WireError = await connection.closed
    assert isinstance(error, ConnectionForced)
    assert "go home" in str(error)
    assert broker.connections == ()


async def test_scrambled_confirms_come_out_of_order_and_all_come() -> None:
    orders: list[list[int]] = []
    for _ in range(2):
        broker = MemoryBroker(scramble=3)
        channel = await channel_of(broker)
        await channel.declare_queue("q")
        tags: list[int] = []
        channel.on_confirm = lambda tag, _multiple, _ok, tags=tags: tags.append(tag)  # type: ignore[misc]
        publishing = channel.publishing("", "q", mandatory=True)
        for _ in range(50):
            channel.publish(publishing, EMPTY, b"")
        await settle()
        orders.append(tags)
    assert sorted(orders[0]) == list(range(1, 51))
    assert orders[0] != sorted(orders[0])
    assert orders[0] == orders[1]  # the same seed, the same order


# -- looking, and time --------------------------------------------------------------------------------------
async def test_looking_changes_nothing() -> None:
    broker = MemoryBroker("3.10.8")
    channel = await channel_of(broker)
    await channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
    await put(channel, "q", b"1", b"2")
    assert [m.body for m in broker.messages("q")] == [b"1", b"2"]
    assert (broker.depth("q"), broker.unacked("q"), broker.held("q")) == (2, 0, 0)
    delivery = await channel.get("q")
    assert delivery is not None
    assert not delivery.redelivered
    assert "q" in broker.queues
    assert "amq.topic" in broker.exchanges
    with pytest.raises(QueueMissing):
        broker.depth("none")


async def test_a_ladder_of_ten_minutes_and_an_hour() -> None:
    """The retry behaviour of an application, over a virtual day."""
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        channel = await channel_of(broker)
        await channel.declare_queue("work")
        for minutes in (10, 60):
            await channel.declare_queue(
                f"wait.{minutes}",
                arguments={
                    "x-message-ttl": minutes * 60_000,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "work",
                },
            )
        came: list[float] = []
        began = clock.time()

        def handle(delivery: Delivery) -> None:
            came.append(clock.time() - began)
            if len(came) <= 2:
                level = channel.publishing("", f"wait.{(10, 60)[len(came) - 1]}", mandatory=True)
                channel.publish(level, EMPTY, delivery.message.body)
            channel.ack(delivery.tag)

        await channel.consume("work", handle, nobody)
        channel.publish(channel.publishing("", "work", mandatory=True), EMPTY, b"1")
        await clock.advance(86_400)
        assert came == pytest.approx([0, 600, 4_200])


async def test_a_clock_in_ones_own_hand() -> None:
    clock = VirtualClock()
    broker = MemoryBroker(clock=clock)
    channel = await channel_of(broker)
    await channel.declare_queue("q", arguments={"x-message-ttl": 60_000})
    await put(channel, "q", b"1")
    await clock.advance(59.9)
    assert broker.depth("q") == 1
    await clock.advance(0.2)
    assert broker.depth("q") == 0


async def test_at_least_once_tries_again_after_three_minutes() -> None:
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        channel = await channel_of(broker)
        await channel.declare_queue(
            "q",
            arguments={
                "x-queue-type": "quorum",
                "x-message-ttl": 1_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "later",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
        await put(channel, "q", *[b"x"] * 40)
        await clock.advance(10)
        assert (broker.depth("q"), broker.held("q")) == (0, 40)
        await channel.declare_queue("later")
        await clock.advance(160)
        assert broker.depth("later") == 0
        await clock.advance(20)
        assert (broker.depth("later"), broker.held("q")) == (40, 0)


async def test_a_policy_changes_queues_that_are_there() -> None:
    broker = MemoryBroker()
    channel = await channel_of(broker)
    await channel.declare_queue("q")
    await put(channel, "q", b"1", b"2", b"3")
    broker.set_policy("short", "^q$", {"max-length": 1})
    assert [m.body for m in broker.messages("q")] == [b"3"]
    broker.remove_policy("short")
    await put(channel, "q", b"4")
    assert broker.depth("q") == 2
    broker.set_policy("queues of exchanges only", "", {"max-length": 0}, apply_to="exchanges")
    assert broker.depth("q") == 2
    with pytest.raises(UsageError, match="regular expression"):
        broker.set_policy("bad", "(", {})


async def test_a_closed_broker_channel_gives_the_same_error_to_all_who_wait() -> None:
    broker = MemoryBroker()
    channel = await channel_of(broker)
    results = await asyncio.gather(channel.get("none"), channel.declare_queue("fine"), return_exceptions=True)
    assert all(isinstance(result, NotFound) for result in results)
    assert "fine" not in broker.queues


@pytest.mark.parametrize(
    "arguments", [{"x-queue-type": "quorum", "x-consumer-timeout": 1_000}, {"x-queue-type": "stream"}]
)
async def test_what_it_does_not_play_it_refuses_in_words(arguments: dict[str, Value]) -> None:
    channel = await channel_of(MemoryBroker())
    with pytest.raises(ClosedByBroker, match="the memory broker does not play"):
        await channel.declare_queue("q", arguments=arguments)


def test_the_example_in_the_docs_runs() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(example, found)
    asyncio.run(found["test_a_failed_order_comes_back_after_ten_minutes"]())


def test_bounds_are_there_for_a_courier_on_memory() -> None:
    async def main() -> int:
        with virtual_time():
            broker = MemoryBroker()
            channel = await channel_of(broker)
            await channel.declare_queue("a")
            await channel.declare_queue("b")
            await put(channel, "a", b"1", b"2", b"3")
            courier = Courier([], source="a", decide=lambda _l: Send(routing_key="b"), bounds=Bounds(count=2))
            return (await courier.on(broker.link())).moved

    assert asyncio.run(main()) == 2
