"""Publishing: confirms, returns, refusals, and bytes that stay what they are.

About `testing.memory.connections.publishing`, `testing.memory.contents.items`,
`testing.memory.contents.queues`.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.ground import Ground, names_of, seen

from deadletter.amqp.channel import Channel, ReturnedMessage
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View, encode, header_table
from deadletter.errors import FrameRefused, NotFound, PreconditionFailed
from deadletter.testing.memory.contents.items import in_order

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@KINDS
async def test_every_publish_gets_its_one_confirm(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    channel = await ground.channel()
    confirmed: list[int] = []

    def on_confirm(tag: int, multiple: bool, ok: bool) -> None:
        assert ok
        before = set(confirmed)
        assert tag not in before
        confirmed.extend(t for t in range(1, tag) if multiple and t not in before)
        confirmed.append(tag)

    channel.on_confirm = on_confirm
    publishing = channel.publishing("", "q", mandatory=True)
    tags = [channel.publish(publishing, b"\0\0", b"%d" % n) for n in range(200)]
    assert tags == list(range(1, 201))
    assert channel.published == 200
    await ground.until(lambda: len(confirmed) == 200)
    assert sorted(confirmed) == tags
    await ground.depth_becomes("q", 200)


async def test_a_return_comes_before_its_confirm(ground: Ground) -> None:
    await ground.declare("q")
    channel = await ground.channel()
    events: list[tuple[str, int]] = []
    told: set[int] = set()

    def on_return(returned: ReturnedMessage) -> None:
        assert (returned.code, returned.text) == (312, "NO_ROUTE")
        assert (returned.exchange, returned.routing_key) == (b"", b"none")
        events.append(("return", int(returned.message.body)))

    def on_confirm(tag: int, multiple: bool, ok: bool) -> None:
        assert ok  # a return is not a nack
        assert tag not in told
        for each in (t for t in range(1, tag + 1) if (multiple or t == tag) and t not in told):
            told.add(each)
            events.append(("confirm", each))

    channel.on_return, channel.on_confirm = on_return, on_confirm
    to_none = channel.publishing("", "none", mandatory=True)
    to_queue = channel.publishing("", "q", mandatory=True)
    for number in range(1, 101):
        channel.publish(to_none if number % 3 == 0 else to_queue, b"\0\0", b"%d" % number)
    await ground.until(lambda: len(told) == 100)
    returned = [number for what, number in events if what == "return"]
    assert returned == [number for number in range(1, 101) if number % 3 == 0]
    for number in returned:
        assert events.index(("return", number)) < events.index(("confirm", number))


async def test_what_is_not_mandatory_is_confirmed_and_gone(ground: Ground) -> None:
    outcome = await ground.put("none", b"1", mandatory=False)
    assert (outcome.confirmed, outcome.returned) == (1, ())


async def test_a_missing_exchange_closes_the_channel(ground: Ground) -> None:
    channel = await ground.channel()
    closed: list[Exception] = []
    channel.on_closed = closed.append
    channel.publish(channel.publishing("none", "k", mandatory=False), b"\0\0", b"1")
    await ground.until(lambda: closed)
    assert isinstance(closed[0], NotFound)
    assert "no exchange 'none'" in str(closed[0])
    with pytest.raises(NotFound):
        channel.publish(channel.publishing("", "k", mandatory=False), b"\0\0", b"1")
    with pytest.raises(NotFound):
        channel.ack(1)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (View(expiration="soon"), "invalid expiration 'soon'"),
        (View(expiration="-1"), "value_negative"),
        (View(expiration="99999999999999"), "value_too_large"),
        (View(user_id="somebody"), "user_id property set to 'somebody'"),
        (View(headers={"CC": "a"}), "unacceptable_type_in_header"),
        (View(headers={"BCC": 1}), "unacceptable_type_in_header"),
    ],
)
async def test_messages_a_broker_does_not_take(ground: Ground, view: View, words: str) -> None:
    await ground.declare("q")
    channel = await ground.channel()
    channel.publish(channel.publishing("", "q", mandatory=True), encode(view), b"1")
    with pytest.raises(PreconditionFailed, match=words):
        await channel.get("q")
    assert await ground.depth("q") == 0


async def test_the_users_own_name_is_taken(ground: Ground) -> None:
    await ground.declare("q")
    user = (await ground.connect()).address.user
    assert (await ground.put("q", b"1", user_id=user)).confirmed == 1


async def test_a_body_larger_than_allowed(ground: Ground) -> None:
    await ground.declare("q")
    channel = await ground.channel()
    body = b"x" * (17 * 1024 * 1024)
    if ground.traits.body_max_bytes > len(body):
        assert (await ground.put("q", body, channel=channel)).confirmed == 1
        assert (await ground.take(channel, "q")).message.body == body
    else:
        with pytest.raises(PreconditionFailed, match="larger than configured max size"):
            await ground.put("q", body, channel=channel)


async def test_a_header_table_above_the_frame_limit_ends_the_connection(ground: Ground) -> None:
    await ground.declare("q")
    connection = await ground.connect()
    channel = await ground.channel(connection)
    with pytest.raises(FrameRefused):
        await ground.put("q", b"1", headers={"h": "x" * connection.frame_max_bytes}, channel=channel)
    assert connection.closed.done()


async def test_a_letter_may_outgrow_the_frame_limit_by_dying(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare(
        "q",
        arguments={
            "x-message-ttl": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dlq",
        },
    )
    limit = (await ground.connect()).frame_max_bytes
    assert (await ground.put("q", b"1", headers={"h": "x" * (limit - 100)})).confirmed == 1
    found = await ground.take(await ground.channel(), "dlq")
    assert len(found.message.properties) > limit


@KINDS
@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 400_000])
async def test_a_body_arrives_as_it_was(ground: Ground, kind: str, size: int) -> None:
    await ground.declare("q", kind)
    body = bytes(n % 251 for n in range(size))
    await ground.put("q", body)
    assert (await ground.take(await ground.channel(), "q")).message.body == body


async def test_properties_arrive_byte_for_byte(ground: Ground) -> None:
    """But for the order of headers, which 4.x sorts."""
    await ground.declare("q")
    full = View(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"z": 1, "a": [1, {"q": None, "b": 2.5}], "m": b"\xff\x00", "é": True},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=2**40,
        type="t",
        app_id="p",
        cluster_id="l",
    )
    properties = encode(full)
    channel = await ground.channel()
    tag = channel.publish(channel.publishing("", "q", mandatory=True), properties, b"1")
    assert tag == 1
    found = (await ground.take(channel, "q")).message
    headers = header_table(properties)
    shown = in_order(headers) if ground.traits.sorts_headers else headers
    assert found == RawMessage(properties.replace(headers, shown), b"1")
    bare = await ground.put("q", b"2")
    assert bare.confirmed == 1
    assert (await ground.take(channel, "q")).message.properties == b"\0\0"


async def test_headers_a_quorum_queue_adds_stand_in_order(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    await ground.put("q", b"1", headers={"z": 1, "a": 2})
    channel = await ground.channel()
    first = await ground.take(channel, "q")
    channel.reject(first.tag, requeue=True)
    again = await ground.take(channel, "q")
    assert names_of(again) == sorted(names_of(again))
    assert {b"a", b"z", b"x-delivery-count"} <= set(names_of(again))


# -- full queues --------------------------------------------------------------------------------------------
async def outcomes(ground: Ground, queue: str, count: int, channel: Channel | None = None) -> str:
    own = channel or await ground.channel()
    found = [await ground.put(queue, b"%d" % n, channel=own) for n in range(count)]
    if channel is None:
        await own.close()
    return "".join("y" if outcome.confirmed else "n" for outcome in found)


@pytest.mark.parametrize(
    ("kind", "most", "expected"),
    [
        ("classic", 0, "nnnnnn"),
        ("classic", 3, "yyynnn"),
        ("quorum", 0, "ynnnnn"),  # its limit is soft: it notices when it is past it
        ("quorum", 3, "yyyynn"),
    ],
)
async def test_a_full_queue_refuses(ground: Ground, kind: str, most: int, expected: str) -> None:
    await ground.declare("q", kind, {"x-max-length": most, "x-overflow": "reject-publish"})
    assert await outcomes(ground, "q", 6) == expected
    await ground.depth_becomes("q", expected.count("y"))


async def test_a_full_classic_queue_takes_again_when_one_is_taken(ground: Ground) -> None:
    await ground.declare("q", "classic", {"x-max-length": 2, "x-overflow": "reject-publish"})
    assert await outcomes(ground, "q", 3) == "yyn"
    channel = await ground.channel()
    await ground.take(channel, "q")  # with a consumer it does not count
    assert await outcomes(ground, "q", 2) == "yn"


async def test_a_full_quorum_queue_takes_again_at_four_fifths(ground: Ground) -> None:
    await ground.declare("q", "quorum", {"x-max-length": 5, "x-overflow": "reject-publish"})
    giving, channel = await ground.channel(), await ground.channel()
    assert await outcomes(ground, "q", 7, giving) == "yyyyyyn"
    assert await outcomes(ground, "q", 1) == "n"
    await ground.take(channel, "q")
    await ground.calm()
    assert await outcomes(ground, "q", 1, giving) == "n"
    await ground.take(channel, "q")
    await ground.calm()
    assert await outcomes(ground, "q", 1, giving) == "y"


async def test_a_full_quorum_queue_takes_one_from_a_publisher_it_does_not_know(ground: Ground) -> None:
    await ground.declare("q", "quorum", {"x-max-length": 5, "x-overflow": "reject-publish"})
    giving = await ground.channel()
    assert await outcomes(ground, "q", 7, giving) == "yyyyyyn"
    await ground.take(await ground.channel(), "q")
    await ground.calm()
    assert await outcomes(ground, "q", 2) == "yn"


@KINDS
async def test_letters_that_die_into_a_full_queue(ground: Ground, kind: str) -> None:
    """A classic queue drops them; a quorum queue takes whatever it is sent without asking."""
    await ground.declare("dlq", kind, {"x-max-length": 1, "x-overflow": "reject-publish"})
    arguments: dict[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
    await ground.declare("q", "classic", {**arguments, "x-message-ttl": 0})
    for _ in range(5):
        await ground.put("q", b"1")
        await asyncio.sleep(0.1)
    await ground.depth_becomes("dlq", 1 if kind == "classic" else 5)


@KINDS
async def test_a_full_queue_drops_its_head_unless_told(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, {"x-max-length": 2})
    assert await outcomes(ground, "q", 5) == "yyyyy"
    await ground.depth_becomes("q", 2)
    assert [d.message.body for d in await ground.drain("q")] == [b"3", b"4"]


async def test_a_copy_that_is_refused_makes_the_publish_refused(ground: Ground) -> None:
    channel = await ground.channel()
    await ground.declare("open")
    await ground.declare("full", "classic", {"x-max-length": 0, "x-overflow": "reject-publish"})
    for queue in ("open", "full"):
        await channel.bind_queue(queue, "amq.fanout")
    assert (await ground.put("k", b"1", exchange="amq.fanout")).refused == 1
    assert [seen(d).body for d in await ground.drain("open")] == [b"1"]


@pytest.mark.timeout(120)
async def test_who_publishes_to_a_blocked_broker_is_told_and_not_read(ground: Ground) -> None:
    await ground.declare("q")
    await ground.declare("source")
    await ground.put("source", b"1")
    publisher, consumer = await ground.connect(), await ground.connect()
    giving, taking = await ground.channel(publisher), await ground.channel(consumer)
    pressure: list[bool] = []
    publisher.on_pressure.append(lambda: pressure.append(publisher.congested))
    await ground.site.block(on=True)
    try:
        await ground.calm()
        publishing = giving.publishing("", "q", mandatory=True)
        giving.publish(publishing, b"\0\0", b"1")
        await ground.until(lambda: publisher.blocked_reason)
        giving.publish(publishing, b"\0\0", b"2")
        held = await ground.take(taking, "source")
        taking.ack(held.tag)  # on another connection everything goes on
        assert consumer.blocked_reason is None
        assert (publisher.congested, pressure[-1]) == (True, True)
        waiting = asyncio.create_task(publisher.ready())
        await ground.calm()
        assert not waiting.done()
        before = (await taking.declare_queue("q", passive=True)).message_count
    finally:
        await ground.site.block(on=False)
    await waiting
    assert publisher.blocked_reason is None
    await ground.depth_becomes("q", 2)
    assert before <= 1
