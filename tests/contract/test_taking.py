"""Consuming: who gets what, in which order, and what acks, nacks and losses do.

About `testing.memory.connections.consuming`, `testing.memory.connections.server_channel`,
`testing.memory.contents.subscribers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.contract.ground import Ground, counts, seen

from deadletter.amqp.channel import Channel, Delivery
from deadletter.errors import PreconditionFailed

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


def nobody() -> None:
    raise AssertionError("the consumer was cancelled by the broker")


async def bodies(ground: Ground, queue: str) -> bytes:
    return b"".join(d.message.body for d in await ground.drain(queue))


@KINDS
async def test_get_takes_one_and_says_nothing_is_there(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    channel = await ground.channel()
    assert await channel.get("q") is None
    await ground.put("q", b"1", b"2")
    first, second = await ground.take(channel, "q"), await ground.take(channel, "q")
    assert [seen(first).body, seen(second).body] == [b"1", b"2"]
    assert (first.tag, second.tag) == (1, 2)
    assert (seen(first).exchange, seen(first).key) == ("", "q")
    assert await channel.get("q") is None
    channel.ack(2, multiple=True)
    await channel.close()
    await ground.calm()
    assert await ground.depth("q") == 0


@KINDS
async def test_prefetch_is_each_consumers_own(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    channel = await ground.channel()
    got: list[tuple[str, bytes]] = []
    await channel.qos(2)
    await channel.consume("q", lambda d: got.append(("A", d.message.body)), nobody)
    await channel.consume("q", lambda d: got.append(("B", d.message.body)), nobody)
    giving = await ground.channel()
    for number in range(6):
        await ground.put("q", b"%d" % number, channel=giving)
    await ground.calm()
    assert got == [("A", b"0"), ("B", b"1"), ("A", b"2"), ("B", b"3")]
    channel.ack(1)
    await ground.calm()
    assert got[4:] == [("A", b"4")]
    channel.ack(0, multiple=True)
    await ground.calm()
    assert got[5:] == [("A", b"5")]


@KINDS
async def test_a_consumer_takes_its_fill_before_the_next_one_comes(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    await ground.put("q", *[b"%d" % n for n in range(8)])
    channel = await ground.channel()
    await channel.qos(2)
    got: list[tuple[str, bytes]] = []
    await channel.consume("q", lambda d: got.append(("A", d.message.body)), nobody)
    await ground.until(lambda: len(got) == 2)
    await channel.consume("q", lambda d: got.append(("B", d.message.body)), nobody)
    await ground.until(lambda: len(got) == 4)
    channel.ack(0, multiple=True)
    await ground.until(lambda: len(got) == 8)
    assert got == [(who, b"%d" % n) for n, who in enumerate("AABBAABB")]


@KINDS
async def test_a_consumer_of_higher_priority_goes_first(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    channel = await ground.channel()
    await channel.qos(2)
    got: list[tuple[str, bytes]] = []
    await channel.consume("q", lambda d: got.append(("low", d.message.body)), nobody)
    await channel.consume(
        "q", lambda d: got.append(("high", d.message.body)), nobody, arguments={"x-priority": 5}
    )
    giving = await ground.channel()
    for number in range(3):
        await ground.put("q", b"%d" % number, channel=giving)
    await ground.until(lambda: len(got) == 3)
    assert got == [("high", b"0"), ("high", b"1"), ("low", b"2")]


@KINDS
async def test_a_new_prefetch_is_for_consumers_that_come_after(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    await ground.put("q", *[b"%d" % n for n in range(10)])
    channel = await ground.channel()
    got: list[str] = []
    await channel.qos(1)
    await channel.consume("q", lambda _d: got.append("A"), nobody)
    await ground.until(lambda: got)
    await channel.qos(3)
    await channel.consume("q", lambda _d: got.append("B"), nobody)
    await ground.until(lambda: len(got) == 4)
    await ground.calm()
    assert "".join(got) == "ABBB"


@KINDS
async def test_an_abandoned_channel_gives_back_what_it_held(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    await ground.put("q", b"1", b"2")
    channel = await ground.channel()
    got: list[Delivery] = []
    await channel.consume("q", got.append, nobody)
    await ground.until(lambda: len(got) == 2)
    channel.ack(got[0].tag)
    channel.abandon()
    await ground.depth_becomes("q", 1)
    assert await bodies(ground, "q") == b"2"


async def test_a_quorum_consumer_without_a_limit_gets_two_thousand(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    await ground.put("q", *[b""] * 2_100)
    channel = await ground.channel()
    got: list[Delivery] = []
    await channel.consume("q", got.append, nobody)
    await ground.until(lambda: len(got) >= 2_000)
    await ground.calm()
    assert len(got) == 2_000


async def test_messages_of_higher_priority_go_first(ground: Ground) -> None:
    await ground.declare("q", "classic", {"x-max-priority": 3})
    for priority, body in ((None, b"a"), (2, b"b"), (9, b"c"), (3, b"d"), (2, b"e"), (0, b"f")):
        await ground.put("q", body, priority=priority)
    assert await bodies(ground, "q") == b"cdbeaf"


@KINDS
async def test_a_cancelled_consumer_keeps_what_it_has(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    channel = await ground.channel()
    got: list[Delivery] = []
    tag = await channel.consume("q", got.append, nobody)
    await ground.put("q", b"1")
    await ground.until(lambda: got)
    await channel.cancel(tag)
    await ground.put("q", b"2")
    await ground.calm()
    assert len(got) == 1
    channel.ack(got[0].tag)
    await ground.calm()
    assert await bodies(ground, "q") == b"2"


@KINDS
async def test_deleting_a_queue_cancels_its_consumers(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    channel = await ground.channel()
    got: list[Delivery] = []
    cancelled: list[str] = []
    await channel.consume("q", got.append, lambda: cancelled.append("A"))
    await channel.consume("q", got.append, lambda: cancelled.append("B"))
    await ground.put("q", b"1", b"2")
    await ground.until(lambda: len(got) == 2)
    await (await ground.channel()).delete_queue("q")
    await ground.until(lambda: len(cancelled) == 2)
    channel.ack(0, multiple=True)  # of what is no more: nothing happens
    await ground.calm()
    assert channel.error is None


# -- coming back --------------------------------------------------------------------------------------------
async def taken(ground: Ground, kind: str, limit: int | None = None) -> tuple[Channel, list[Delivery]]:
    """Five messages, three of them with a consumer that has been cancelled."""
    await ground.declare("q", kind, {} if limit is None else {"x-delivery-limit": limit})
    await ground.put("q", b"a", b"b", b"c", b"d", b"e")
    await ground.depth_becomes("q", 5)
    channel = await ground.channel(await ground.connect())
    await channel.qos(3)
    got: list[Delivery] = []
    tag = await channel.consume("q", got.append, nobody)
    await ground.until(lambda: len(got) == 3)
    await channel.cancel(tag)
    return channel, got


WAYS = ("close", "vanish", "nack all", "nack b a c", "reject a b c")


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("kind", "limit"), [("classic", None), ("quorum", None), ("quorum", 5)])
async def test_where_messages_go_that_come_back(
    ground: Ground, kind: str, limit: int | None, how: str
) -> None:
    channel, got = await taken(ground, kind, limit)
    match how:
        case "close":
            await channel.close()
        case "vanish":
            await ground.vanish(channel.connection)
        case "nack all":
            channel.nack(0, multiple=True, requeue=True)
        case "nack b a c":
            for number in (1, 0, 2):
                channel.nack(got[number].tag, requeue=True)
        case _:
            for number in (0, 1, 2):
                channel.reject(got[number].tag, requeue=True)
    await ground.calm()
    back = await ground.drain("q")
    order = b"".join(d.message.body for d in back)
    first = b"bac" if kind == "quorum" and how == "nack b a c" else b"abc"
    last = kind == "quorum" and limit is None and ground.traits.returns_go_last
    if last and how not in ("close", "vanish"):
        assert order == b"de" + first
    else:
        assert order == first + b"de"
    assert {d.message.body for d in back if d.redelivered} == {b"a", b"b", b"c"}


@KINDS
async def test_what_a_message_says_about_earlier_deliveries(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    await ground.put("q", b"1")
    told: list[tuple[bool, object, object]] = []
    for how in ("nack", "reject", "close", "nack", "end"):
        channel = await ground.channel()
        delivery = await ground.take(channel, "q")
        told.append(counts(delivery))
        if how == "nack":
            channel.nack(delivery.tag, requeue=True)
        elif how == "reject":
            channel.reject(delivery.tag, requeue=True)
        await channel.close()
        await ground.calm()
    traits = ground.traits
    if kind == "classic":
        assert told == [(False, None, None)] + [(True, None, None)] * 4
    elif traits.acquired_count:
        assert told == [(False, None, None), (True, None, 1), (True, 1, 2), (True, 2, 3), (True, 2, 4)]
    else:
        first = 0 if traits.first_count_shown else None
        assert told == [(False, first, None), *((True, n, None) for n in (1, 2, 3, 4))]


async def test_a_consumer_is_not_told_the_count_zero(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    channel = await ground.channel()
    got: list[Delivery] = []
    await channel.consume("q", got.append, nobody)
    await ground.put("q", b"1")
    await ground.until(lambda: got)
    assert counts(got[0]) == (False, None, None)


# -- words nobody understands -------------------------------------------------------------------------------
def twice(channel: Channel, tag: int, *, multiple: bool) -> None:
    channel.ack(tag)
    channel.ack(tag, multiple=multiple)


WRONG: dict[str, Callable[[Channel], None]] = {
    "ack": lambda c: c.ack(9),
    "ack multiple": lambda c: c.ack(9, multiple=True),
    "ack 0": lambda c: c.ack(0),
    "nack": lambda c: c.nack(9, requeue=True),
    "nack multiple": lambda c: c.nack(9, multiple=True, requeue=False),
    "reject": lambda c: c.reject(9, requeue=True),
    "reject 0": lambda c: c.reject(0, requeue=True),
    "twice": lambda c: twice(c, 1, multiple=False),
    "twice multiple": lambda c: twice(c, 1, multiple=True),
    "twice multiple above": lambda c: twice(c, 2, multiple=True),
}


@pytest.mark.parametrize("what", WRONG)
async def test_an_unknown_tag_closes_the_channel_and_all_goes_back(ground: Ground, what: str) -> None:
    await ground.declare("q")
    await ground.put("q", b"1", b"2", b"3")
    channel = await ground.channel()
    for _ in range(3):
        await ground.take(channel, "q")
    WRONG[what](channel)
    with pytest.raises(PreconditionFailed, match="unknown delivery tag"):
        await channel.declare_queue("q", passive=True)
    await ground.depth_becomes("q", 2 if what.startswith("twice") else 3)


async def test_all_of_nothing_is_nothing(ground: Ground) -> None:
    channel = await ground.channel()
    channel.ack(0, multiple=True)
    channel.nack(0, multiple=True, requeue=True)
    await ground.declare("q")
    assert channel.error is None


async def test_transactions_settle_all_at_once(ground: Ground) -> None:
    await ground.declare("q")
    await ground.put("q", b"1", b"2", b"3")
    connection = await ground.connect()
    channel = await connection.channel()
    await channel.select_transactions()
    tags = [(await ground.take(channel, "q")).tag for _ in range(3)]
    channel.ack(tags[0])
    channel.nack(tags[1], requeue=True)
    await ground.calm()
    assert await ground.depth("q") == 0
    channel.commit()
    await ground.calm()
    assert await ground.depth("q") == 1
    channel.ack(tags[2])  # never committed
    await channel.close()
    await ground.depth_becomes("q", 2)


async def test_confirms_and_transactions_exclude_each_other(ground: Ground) -> None:
    channel = await ground.channel()
    with pytest.raises(PreconditionFailed):
        await channel.select_transactions()


async def test_a_client_that_does_not_listen_gets_it_all_later(ground: Ground) -> None:
    await ground.declare("q")
    connection = await ground.connect()
    channel = await ground.channel(connection)
    got: list[Delivery] = []
    await channel.consume("q", got.append, nobody)
    connection.pause_reading()
    await ground.put("q", b"1", b"2", channel=await ground.channel(await ground.connect()))
    await asyncio.sleep(0.2)
    assert got == []
    connection.resume_reading()
    await ground.until(lambda: len(got) == 2)


@KINDS
async def test_who_asks_for_a_streams_offset_is_refused_and_gets_nothing(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    await ground.put("q", b"1")
    channel = await ground.channel()
    got: list[Delivery] = []
    await channel.qos(1)
    with pytest.raises(PreconditionFailed):
        await channel.consume("q", got.append, nobody, arguments={"x-stream-offset": "next"})
    await ground.calm()
    assert not got
    (kept,) = await ground.drain("q")
    assert not kept.redelivered
