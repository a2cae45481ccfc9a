"""Our wire against a broker that does what real ones do rarely: block, fall silent, cross, close, forget.

About `amqp.connection`, `amqp.channel`, `amqp.handshake`, `amqp.publisher`, `amqp.deliveries`,
`amqp.requests`, `amqp.replies`.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests import amqp_oracle as oracle
from tests.amqp_server import Peer, serving, talking

from deadletter.amqp import channel as channel_module
from deadletter.amqp import replies
from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel, Delivery, ReturnedMessage
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter.message import RawMessage
from deadletter.errors import (
    AccessRefused,
    ChannelClosed,
    ChannelsExhausted,
    ClosedByBroker,
    ConnectionForced,
    ConnectionLost,
    ContentTooLarge,
    FrameError,
    FrameRefused,
    HeartbeatMissed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    WireError,
)

MIB = 1024 * 1024


async def for_ever() -> None:
    await asyncio.sleep(3600)


async def soon(condition: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        await condition.wait()


async def congestion(connection: Connection) -> None:
    """Wait until the connection says that it takes no more."""
    pressed = asyncio.Event()
    connection.on_pressure.append(pressed.set)
    if not connection.congested:
        await soon(pressed)
    assert connection.congested


# -- the handshake's numbers --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("offered", "asked", "expected"),
    [(60, 30, 30), (10, 30, 10), (0, 30, 30), (60, 0, 60), (0, 0, 0)],
)
async def test_of_two_heartbeats_the_shorter_and_of_one_and_none_the_one(
    offered: int, asked: int, expected: int
) -> None:
    heard: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.reader.readexactly(8)
        peer.say(0, oracle.start())
        await peer.expect(10, 11)
        peer.say(0, oracle.tune(0, 0, offered))
        heard.append((await peer.expect(10, 31))[1])
        await peer.expect(10, 40)
        peer.say(0, oracle.OPEN_OK)

    async with serving(script) as port:
        connection = await connect(Address(port=port, heartbeat_s=asked))
        assert connection.channel_max > 0, "no limit offered is not no channel"
        assert connection.frame_max_bytes >= 4096
        await connection.close()
    assert heard[0][-2:] == expected.to_bytes(2, "big")
    assert heard[0][:2] == connection.channel_max.to_bytes(2, "big")
    assert heard[0][2:6] == connection.frame_max_bytes.to_bytes(4, "big")


async def test_bodies_are_cut_to_what_was_negotiated() -> None:
    sizes: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.greet(frame_max=4096)
        await peer.open_channel()
        await peer.expect(60, 40)
        await peer.frame()
        while sum(sizes) < 10_000:
            sizes.append(len((await peer.frame())[2]))

    async with talking(script) as connection:
        channel = await connection.channel()
        channel.publish(channel.publishing("", "q", mandatory=True), b"\0\0", b"x" * 10_000)
        await connection.close()
    assert sizes == [4088, 4088, 1824]


# -- heartbeats ---------------------------------------------------------------------------------------------
HEARTBEAT_S = 3
"""Both ends are in this process: a machine so busy that it stands still for twice as long is not meant."""


async def test_heartbeats_go_both_ways_and_silence_ends_the_conversation() -> None:
    # Three conversations at once, because each takes its real time.
    peers: list[Peer] = []

    async def beats(peer: Peer) -> None:
        peers.append(peer)
        await peer.greet(heartbeat_s=HEARTBEAT_S)

        async def beat() -> None:
            while True:
                peer.beat()
                await asyncio.sleep(0.4)

        async with asyncio.TaskGroup() as both:
            both.create_task(beat())
            both.create_task(peer.goodbye())

    async def is_silent(peer: Peer) -> None:
        await peer.greet(heartbeat_s=HEARTBEAT_S)

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with (
        talking(beats, heartbeat_s=HEARTBEAT_S) as alive,
        talking(is_silent, heartbeat_s=HEARTBEAT_S) as silent,
        talking(is_silent, heartbeat_s=HEARTBEAT_S) as deaf,
    ):
        deaf.pause_reading()
        error = await asyncio.wait_for(silent.closed, 60)
        assert isinstance(error, HeartbeatMissed)
        assert f"{2 * HEARTBEAT_S} s" in str(error)
        assert loop.time() - began > 2 * HEARTBEAT_S - 0.1
        with pytest.raises(HeartbeatMissed):
            await silent.ready()
        assert not alive.closed.done(), "its broker was heard"
        assert peers[0].heartbeats >= 2, "ours are sent while nothing else is"
        assert not deaf.closed.done(), "it was we who did not listen"
        deaf.resume_reading()
        await asyncio.sleep(0.3)
        assert not deaf.closed.done(), "the silence counts from when we listen again"


async def test_what_lies_in_the_socket_when_we_were_away_ourselves_is_not_acted_on() -> None:
    """A frozen process that wakes up: the broker has given its letters to others long ago."""

    async def script(peer: Peer) -> None:
        await peer.greet(heartbeat_s=1)
        await asyncio.sleep(0.2)
        peer.say(0, oracle.blocked(b"said while nobody listened"))
        time.sleep(2.3)  # noqa: ASYNC251 -- the loop stands still: that is what is tested

    async with talking(script, heartbeat_s=1) as connection:
        error = await asyncio.wait_for(connection.closed, 60)
        assert isinstance(error, HeartbeatMissed)
        assert connection.blocked_reason is None


async def test_without_heartbeats_none_are_sent_and_none_missed() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(heartbeat_s=0)

    async with talking(script, heartbeat_s=0) as connection:
        assert connection._ticker is None


# -- blocked ------------------------------------------------------------------------------------------------
async def test_blocked_is_congestion_and_unblocked_its_end() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.say(0, oracle.blocked(b"low on memory"))
        await go_on.wait()
        peer.say(0, oracle.UNBLOCKED)

    async with talking(script) as connection:
        await congestion(connection)
        assert connection.blocked_reason == "low on memory"
        waiting = asyncio.create_task(connection.ready())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        go_on.set()
        await asyncio.wait_for(waiting, 60)
        assert not connection.congested
        assert connection.blocked_reason is None


async def test_an_end_while_blocked_ends_the_waiting() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.say(0, oracle.blocked(b"low on disk"))
        await asyncio.sleep(0.1)
        peer.writer.close()

    async with talking(script) as connection:
        await congestion(connection)
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(connection.ready(), 60)


# -- closing ------------------------------------------------------------------------------------------------
CHANNEL_CODES = [
    (311, ContentTooLarge),
    (403, AccessRefused),
    (404, NotFound),
    (405, ResourceLocked),
    (406, PreconditionFailed),
    (540, ChannelClosed),
    (999, ChannelClosed),
]


@pytest.mark.parametrize(("code", "kind"), CHANNEL_CODES)
async def test_a_channel_closed_in_answer_to_a_question(code: int, kind: type[ChannelClosed]) -> None:
    answered: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(50, 10)
        peer.say(number, oracle.closing(20, 40, code, "so gehört es sich".encode()))
        answered.append((await peer.expect(20, 41))[0])
        await peer.open_channel()

    async with talking(script) as connection:
        channel = await connection.channel()
        told: list[WireError] = []
        channel.on_closed = told.append
        with pytest.raises(ChannelClosed) as raised:
            await channel.declare_queue("q", passive=True)
        assert type(raised.value) is kind
        assert (raised.value.code, raised.value.text) == (code, "so gehört es sich")
        assert told == [raised.value]
        for call in (
            lambda: channel.ack(1),
            lambda: channel.nack(1, requeue=True),
            lambda: channel.reject(1, requeue=True),
            lambda: channel.publish(b"", b"\0\0", b""),
        ):
            with pytest.raises(kind):
                call()
        with pytest.raises(kind):
            await channel.qos(1)
        await channel.close()
        assert not connection.closed.done(), "the other channels are not concerned"
        again = await connection.channel()
        assert again.number == channel.number == answered[0]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(320, ConnectionForced), (501, FrameRefused), (541, ClosedByBroker), (7, ClosedByBroker)],
)
async def test_a_connection_closed_with_a_word(code: int, kind: type[ClosedByBroker]) -> None:
    answered = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()
        await peer.expect(50, 10)
        peer.say(0, oracle.closing(10, 50, code, b"because"))
        await peer.expect(10, 51)
        answered.set()

    async with talking(script) as connection:
        channel = await connection.channel()
        told: list[WireError] = []
        channel.on_closed = told.append
        with pytest.raises(ClosedByBroker) as raised:
            await channel.declare_queue("q")
        assert type(raised.value) is kind
        assert (raised.value.code, raised.value.text) == (code, "because")
        assert told == [raised.value]
        assert await connection.closed is raised.value
        with pytest.raises(kind):
            await connection.ready()
        with pytest.raises(kind):
            await channel.qos(1)
        await soon(answered)
        await connection.close()


async def test_a_channel_of_a_conversation_that_has_ended_is_refused_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.say(0, oracle.closing(10, 50, 320, b"CONNECTION_FORCED - shutdown"))

    async with talking(script) as connection:
        await asyncio.wait_for(connection.closed, 60)
        with pytest.raises(ConnectionForced):
            await asyncio.wait_for(connection.channel(), 60)


async def test_to_ask_whether_it_has_ended_leaves_nothing_behind() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()

    async with talking(script) as connection:
        for _ in range(1000):
            assert not connection.closed.done()
        await asyncio.sleep(0)
        waiting = [held for held in gc.get_objects() if isinstance(held, asyncio.Future) and not held.done()]
        assert len(waiting) < 100


async def test_giving_up_the_wait_for_the_end_does_not_end_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()

    async with talking(script) as connection:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.closed, 0.05)
        await connection.channel()
        connection.abort(ConnectionLost("enough"))
        assert str(await connection.closed) == "enough"


async def test_the_line_is_cut_in_a_question() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()
        await peer.expect(50, 10)
        peer.writer.transport.abort()

    async with talking(script) as connection:
        channel = await connection.channel()
        with pytest.raises(ConnectionLost):
            await channel.declare_queue("q")


async def test_closing_in_good_order_is_answered_and_said_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()

    async with talking(script) as connection:
        channel = await connection.channel()
        told: list[WireError] = []
        channel.on_closed = told.append
        await channel.close()
        await channel.close()
        assert [type(error) for error in told] == [ChannelClosed]
        await connection.close()
        await connection.close()
        assert isinstance(await connection.closed, ConnectionLost)


async def test_two_closes_that_cross_leave_the_number_usable() -> None:
    # The broker closes a channel while our own close is on its way, and answers that one too, as RabbitMQ
    # does. The answer belongs to the channel that is gone, not to the next one of that number.
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(20, 40)
        peer.say(number, oracle.closing(20, 40, 406, b"PRECONDITION_FAILED - unknown delivery tag 9"))
        await peer.expect(20, 41)
        await asyncio.sleep(0.05)  # until the client has asked for its next channel
        peer.say(number, oracle.CLOSE_CHANNEL_OK)
        await peer.open_channel()

    async with talking(script) as connection:
        channel = await connection.channel()
        with suppress(PreconditionFailed):  # it may say so, or be content that the channel is closed
            await channel.close()
        assert await asyncio.wait_for(connection.channel(), 60) is not channel
        assert not connection.closed.done()


# -- taking -------------------------------------------------------------------------------------------------
async def consuming(peer: Peer) -> tuple[int, bytes]:
    """The channel and consumer tag of a client that begins to consume."""
    await peer.greet()
    number = await peer.open_channel()
    _, arguments = await peer.expect(60, 20)
    at = 3 + arguments[2]
    tag = arguments[at + 1 : at + 1 + arguments[at]]
    peer.say(number, oracle.consume_ok(tag))
    return number, tag


async def test_a_consumer_cancelled_by_the_broker_is_told() -> None:
    async def script(peer: Peer) -> None:
        number, tag = await consuming(peer)
        peer.say(number, oracle.cancel(tag))
        # What was on its way to a consumer that is no more, and a cancel of one that never was.
        peer.say(number, oracle.deliver(tag, 1, b"", b""))
        peer.raw(oracle.content(number, b"\0\0", b"late"))
        peer.say(number, oracle.cancel(b"somebody else's"))
        peer.say(number, oracle.cancel(tag))

    async with talking(script) as connection:
        channel = await connection.channel()
        cancelled, deliveries = asyncio.Event(), list[Delivery]()
        count = 0

        def on_cancel() -> None:
            nonlocal count
            count += 1
            cancelled.set()

        await channel.consume("q", deliveries.append, on_cancel)
        await soon(cancelled)
        await asyncio.sleep(0.05)
        assert (count, deliveries) == (1, [])
        assert channel.error is None


async def test_deliveries_may_come_with_the_answer_and_above_the_frame_size() -> None:
    # RabbitMQ sends such frames itself, when a table that just fitted has grown by a death (row by row).
    headers = oracle.table_bytes([(b"h", oracle.text(b"x" * 200_000))])
    properties, body = oracle.properties(headers=headers), b"b" * 300_000

    async def script(peer: Peer) -> None:
        await peer.greet(frame_max=131072)
        number = await peer.open_channel()
        _, arguments = await peer.expect(60, 20)
        tag = b"dlq-1-1"
        assert tag in arguments
        peer.raw(
            oracle.frame(1, number, oracle.consume_ok(tag))
            + oracle.frame(1, number, oracle.deliver(tag, 1, b"e", b"\xff", redelivered=True))
            + oracle.content(number, properties, body)
        )

    async with talking(script) as connection:
        channel = await connection.channel()
        came = asyncio.Event()
        deliveries: list[Delivery] = []

        def on_delivery(delivery: Delivery) -> None:
            deliveries.append(delivery)
            came.set()

        await channel.consume("q", on_delivery, lambda: None)
        await soon(came)
        assert deliveries == [Delivery(1, True, b"e", b"\xff", RawMessage(properties, body))]
        assert not connection.closed.done()


async def test_get_takes_one_or_none() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(60, 70)
        peer.say(number, oracle.method(60, 72, b"\0"))
        await peer.expect(60, 70)
        got = (5).to_bytes(8, "big") + b"\x01" + oracle.short(b"e") + oracle.short(b"k") + b"\0\0\0\0"
        peer.say(number, oracle.method(60, 71, got))
        peer.raw(oracle.content(number, b"\0\0", b""))

    async with talking(script) as connection:
        channel = await connection.channel()
        assert await channel.get("q") is None
        assert await channel.get("q") == Delivery(5, True, b"e", b"k", RawMessage(b"\0\0", b""))


async def test_confirms_and_returns_come_as_calls() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(85, 10)
        peer.say(number, oracle.CONFIRM_OK)
        for _ in range(6):
            await peer.frame()
        why = (312).to_bytes(2, "big") + oracle.short(b"NO_ROUTE") + oracle.short(b"") + oracle.short(b"q")
        peer.say(number, oracle.method(60, 50, why))
        peer.raw(oracle.content(number, b"\0\0", b"one"))
        peer.say(number, oracle.ack(1))
        peer.say(number, oracle.method(60, 120, (2).to_bytes(8, "big"), b"\x01"))

    async with talking(script) as connection:
        channel = await connection.channel()
        await channel.select_confirms()
        confirms: list[tuple[int, bool, bool]] = []
        returned: list[ReturnedMessage] = []
        both = asyncio.Event()

        def on_confirm(tag: int, multiple: bool, ok: bool) -> None:
            confirms.append((tag, multiple, ok))
            if len(confirms) == 2:
                both.set()

        channel.on_confirm, channel.on_return = on_confirm, returned.append
        publishing = channel.publishing("", "q", mandatory=True)
        assert channel.publish(publishing, b"\0\0", b"one") == 1
        assert channel.publish(publishing, b"\0\0", b"two") == 2
        await soon(both)
        assert confirms == [(1, False, True), (2, True, False)]
        assert returned == [ReturnedMessage(312, "NO_ROUTE", b"", b"q", RawMessage(b"\0\0", b"one"))]


async def test_flow_is_answered() -> None:
    done = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        for active in (b"\0", b"\1"):
            peer.say(number, oracle.method(20, 20, active))
            assert await peer.expect(20, 21) == (number, active)
        done.set()

    async with talking(script) as connection:
        await connection.channel()
        await soon(done)


# -- pressure -----------------------------------------------------------------------------------------------
async def stops_reading(peer: Peer) -> None:
    await peer.greet()
    await peer.open_channel()
    await for_ever()


def held_bytes(connection: Connection) -> int:
    """What of ours waits in this process."""
    assert connection._transport is not None
    return connection._transport.get_write_buffer_size() + sum(map(len, connection._out))


@pytest.mark.parametrize(
    ("properties_bytes", "body_bytes"),
    [(0, 1024), (0, 256 * 1024), (60_000, 0), (0, 0)],
    ids=["small", "large", "nothing-but-headers", "nothing-at-all"],
)
async def test_a_broker_that_stops_reading_stops_who_publishes(
    properties_bytes: int, body_bytes: int
) -> None:
    headers = oracle.table_bytes([(b"h", oracle.text(b"x" * properties_bytes))])
    properties, body = oracle.properties(headers=headers), b"x" * body_bytes
    async with talking(stops_reading) as connection:
        channel = await connection.channel()
        publishing = channel.publishing("", "q", mandatory=True)
        size = len(publishing) + len(properties) + len(body) + 3 * 8
        accepted = 0

        async def publish() -> None:
            nonlocal accepted
            while accepted < 64 * MIB:  # far more than any buffer between us takes
                await connection.ready()
                channel.publish(publishing, properties, body)
                accepted += size

        publisher = asyncio.create_task(publish())
        await asyncio.sleep(0.7)
        assert not publisher.done(), f"{accepted // MIB} MiB were taken that nobody reads"
        assert connection.congested
        assert held_bytes(connection) <= 4 * MIB
        assert accepted <= 24 * MIB, "the rest is in the network's buffers"
        connection.abort(ConnectionLost("enough"))
        with pytest.raises(ConnectionLost, match="enough"):
            await publisher


async def test_publish_all_does_not_pile_up_large_bodies() -> None:
    pulled = 0

    def messages() -> Iterator[RawMessage]:
        nonlocal pulled
        for _ in range(64):
            pulled += 1
            yield RawMessage(b"\0\0", b"x" * MIB)

    async with talking(stops_reading) as connection:
        channel = await connection.channel()
        publisher = asyncio.create_task(publish_all(channel, "", "q", messages()))
        await asyncio.sleep(0.5)
        held, taken = held_bytes(connection), pulled
        connection.abort(ConnectionLost("enough"))
        with pytest.raises(ConnectionLost, match="enough"):
            await publisher
        assert held <= 8 * MIB, f"{held // MIB} MiB wait in memory"
        assert taken < 64


async def test_publish_all_counts_what_became_of_each() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        for _ in range(3 * 4):
            await peer.frame()
        peer.say(number, oracle.ack(2, multiple=True))
        peer.say(number, oracle.method(60, 120, (4).to_bytes(8, "big"), b"\x00"))
        why = (312).to_bytes(2, "big") + oracle.short(b"NO_ROUTE") + oracle.short(b"") + oracle.short(b"q")
        peer.say(number, oracle.method(60, 50, why))
        peer.raw(oracle.content(number, b"\0\0", b"x"))
        peer.say(number, oracle.ack(3))

    async with talking(script) as connection:
        channel = await connection.channel()
        outcome = await asyncio.wait_for(
            publish_all(channel, "", "q", [RawMessage(b"\0\0", b"x") for _ in range(4)]), 5
        )
        assert (outcome.confirmed, outcome.refused, len(outcome.returned)) == (2, 1, 1)


# -- channels -----------------------------------------------------------------------------------------------
async def test_channel_numbers_run_out_and_come_back() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(channel_max=3)
        for _ in range(3):
            await peer.open_channel()
        number, _ = await peer.expect(20, 40)
        peer.say(number, oracle.CLOSE_CHANNEL_OK)
        await peer.open_channel()

    async with talking(script) as connection:
        channels = [await connection.channel() for _ in range(3)]
        assert [channel.number for channel in channels] == [1, 2, 3]
        with pytest.raises(ChannelsExhausted, match="all 3 channels"):
            await connection.channel()
        await channels[1].close()
        assert (await connection.channel()).number == 2


async def test_a_channel_that_is_refused_gives_its_number_back() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(channel_max=1)
        number, _ = await peer.expect(20, 10)
        peer.say(number, oracle.closing(20, 40, 403, b"no"))
        await peer.expect(20, 41)
        await peer.open_channel()

    async with talking(script) as connection:
        with pytest.raises(AccessRefused):
            await connection.channel()
        assert (await connection.channel()).number == 1


# -- answers ------------------------------------------------------------------------------------------------
async def test_an_answer_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "ANSWER_TIMEOUT_S", 0.2)

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()
        peer.say(0, oracle.blocked(b"low on memory"))
        await peer.expect(50, 10)
        await for_ever()

    async with talking(script) as connection:
        channel = await connection.channel()
        with pytest.raises(ConnectionLost, match=r"did not answer .*it blocks us: low on memory"):
            await asyncio.wait_for(channel.declare_queue("q"), 60)
        assert connection.closed.done(), "an answer that comes later would be taken for another's"


async def test_questions_at_once_get_each_its_own_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        for _ in range(20):
            _, arguments = await peer.expect(50, 10)
            name = arguments[3 : 3 + arguments[2]]
            peer.say(number, oracle.declare_ok(name, len(name), 0))

    async with talking(script) as connection:
        channel = await connection.channel()
        names = ["q" * size for size in range(1, 21)]
        answers = await asyncio.gather(*(channel.declare_queue(name) for name in names))
        assert [(answer.queue, answer.message_count) for answer in answers] == [(n, len(n)) for n in names]


async def ask_and_give_up(channel: Channel, asked: asyncio.Event) -> None:
    question = asyncio.create_task(channel.declare_queue("first"))
    await soon(asked)
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question


async def test_a_question_given_up_does_not_give_its_answer_to_the_next() -> None:
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(50, 10)
        asked.set()
        await given_up.wait()
        peer.say(number, oracle.declare_ok(b"first", 1, 1))
        await peer.expect(50, 10)
        peer.say(number, oracle.declare_ok(b"second", 2, 2))

    async with talking(script) as connection:
        channel = await connection.channel()
        await ask_and_give_up(channel, asked)
        following = asyncio.create_task(channel.declare_queue("second"))
        await asyncio.sleep(0)
        given_up.set()
        try:
            answer = await asyncio.wait_for(following, 60)
        except ConnectionLost:
            return  # the conversation is ended rather than confused
        assert answer == replies.DeclareQueueOk("second", 2, 2)


async def test_a_question_given_up_after_a_time_does_not_either() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(50, 10)
        await asyncio.sleep(0.2)
        peer.say(number, oracle.declare_ok(b"first", 1, 1))
        await peer.expect(50, 10)
        peer.say(number, oracle.declare_ok(b"second", 2, 2))

    async with talking(script) as connection:
        channel = await connection.channel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await channel.declare_queue("first")
        try:
            answer = await asyncio.wait_for(channel.declare_queue("second"), 60)
        except ConnectionLost:
            return
        assert answer == replies.DeclareQueueOk("second", 2, 2)


async def test_a_channel_given_up_while_it_opens_does_not_break_the_next() -> None:
    asked, opened = asyncio.Event(), set[int]()

    async def script(peer: Peer) -> None:
        await peer.greet()
        while True:
            _, number, payload = await peer.frame()
            if payload[:4] == oracle.method(20, 40):
                opened.remove(number)
                peer.say(number, oracle.CLOSE_CHANNEL_OK)
            elif payload[:4] == oracle.method(20, 10):
                assert number not in opened, "RabbitMQ closes the connection over this"
                opened.add(number)
                first = not asked.is_set()
                asked.set()
                if first:
                    await asyncio.sleep(0.1)
                peer.say(number, oracle.OPEN_CHANNEL_OK)

    async with talking(script) as connection:
        opening = asyncio.create_task(connection.channel())
        await soon(asked)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        with suppress(ConnectionLost):  # ended rather than confused would do as well
            channels = [await asyncio.wait_for(connection.channel(), 60) for _ in range(2)]
            assert opened == {channel.number for channel in channels} == set(connection._channels)


async def test_a_consumer_given_up_while_it_begins_is_cancelled_on_the_broker_too() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        _, arguments = await peer.expect(60, 20)
        tag = b"dlq-1-1"
        assert oracle.short(tag) in arguments
        asked.set()
        await asyncio.sleep(0.1)
        peer.say(number, oracle.consume_ok(tag))
        peer.say(number, oracle.deliver(tag, 1, b"", b""))
        peer.raw(oracle.content(number, b"\0\0", b"late"))
        assert oracle.short(tag) in (await peer.expect(60, 30))[1]
        peer.say(number, oracle.method(60, 31, oracle.short(tag)))
        await peer.expect(60, 10)
        peer.say(number, oracle.QOS_OK)
        cancelled.set()

    async with talking(script) as connection:
        channel = await connection.channel()
        deliveries: list[Delivery] = []
        consuming = asyncio.create_task(channel.consume("q", deliveries.append, lambda: None))
        await soon(asked)
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming
        if connection.closed.done():
            return  # ended rather than confused would do as well
        await asyncio.wait_for(channel.qos(1), 60)
        await soon(cancelled)
        assert deliveries == []


async def test_a_channel_closed_over_one_question_ends_all_that_wait() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(50, 10)
        peer.say(number, oracle.closing(20, 40, 404, b"NOT_FOUND"))

    async with talking(script) as connection:
        channel = await connection.channel()
        questions = (channel.declare_queue("q"), channel.qos(1), channel.get("q"))
        answers = await asyncio.wait_for(asyncio.gather(*questions, return_exceptions=True), 60)
        assert [type(answer) for answer in answers] == [NotFound, NotFound, NotFound]


@pytest.mark.parametrize(
    "answer",
    [oracle.QOS_OK, oracle.consume_ok(b"x"), oracle.method(60, 72, b"\0"), oracle.CLOSE_CHANNEL_OK],
    ids=["qos-ok", "consume-ok", "get-empty", "close-ok"],
)
async def test_the_wrong_answer_ends_the_conversation(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(50, 10)
        peer.say(number, answer)

    async with talking(script) as connection:
        channel = await connection.channel()
        with pytest.raises(FrameError, match="expected DeclareQueueOk"):
            await channel.declare_queue("q")
        assert connection.closed.done()


async def test_the_wrong_answer_to_get_ends_the_conversation_too() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(60, 70)
        peer.say(number, oracle.QOS_OK)

    async with talking(script) as connection:
        channel = await connection.channel()
        with pytest.raises(FrameError):
            await channel.get("q")
        assert connection.closed.done()


@pytest.mark.parametrize(
    "words",
    [
        oracle.frame(1, 1, oracle.QOS_OK),
        oracle.frame(1, 1, b"\x00\x3c\x00\x3c"),
        oracle.frame(2, 1, b"\0" * 14),
        oracle.frame(3, 1, b"body"),
        oracle.frame(8, 1, b""),
        oracle.frame(2, 0, b"\0" * 14),
        oracle.frame(1, 0, oracle.method(77, 77)),
        b"garbage that is no frame",
    ],
    ids=["unasked", "damaged", "header", "body", "heartbeat", "zero", "unknown", "garbage"],
)
async def test_words_out_of_place_end_the_conversation(words: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()
        peer.raw(words)

    async with talking(script) as connection:
        channel = await connection.channel()
        error = await asyncio.wait_for(connection.closed, 60)
        assert isinstance(error, FrameError)
        assert channel.error is error
        with pytest.raises(FrameError):
            await channel.qos(1)


async def test_the_last_words_on_a_channel_that_is_gone_are_passed_over() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        number = await peer.open_channel()
        await peer.expect(20, 40)
        peer.say(number, oracle.CLOSE_CHANNEL_OK)
        peer.say(number, oracle.ack(1))
        peer.say(99, oracle.deliver(b"t", 1, b"", b""))
        peer.raw(oracle.content(99, b"\0\0", b"late"))
        await peer.open_channel()

    async with talking(script) as connection:
        await (await connection.channel()).close()
        await connection.channel()
        assert not connection.closed.done()


async def test_words_on_channel_zero_that_nobody_asked_for_are_not_hoarded() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        for _ in range(1000):
            peer.say(0, oracle.OPEN_OK)
        await peer.open_channel()

    async with talking(script) as connection:
        try:
            await connection.channel()
        except FrameError:
            return
        assert connection._replies.qsize() < 10
