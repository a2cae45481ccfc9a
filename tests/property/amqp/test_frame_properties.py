"""The byte stream: any cut of it gives the same frames, and no bytes do worse than a FrameError.

`pamqp` reads what we write and writes what we read: an independent codec, in the names it accepts.

About `amqp.frames`, `amqp.replies`, `amqp.requests`, `amqp.connection`.
"""

from __future__ import annotations

import asyncio
import string
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pamqp.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import base, commands
from pamqp.heartbeat import Heartbeat
from tests import amqp_oracle as oracle
from tests.amqp_strategies import damaged

from deadletter.amqp import replies, requests
from deadletter.amqp.address import Address
from deadletter.amqp.channel import BODY_MAX_BYTES, Channel, ChannelConsumer, Delivery
from deadletter.amqp.connection import Connection
from deadletter.amqp.frames import (
    HEARTBEAT_FRAME,
    INCOMING_FRAME_MAX_BYTES,
    FrameReader,
    content_frames,
    content_header,
    method_frame,
)
from deadletter.core.letter.field_table import Value
from deadletter.errors import FrameError, UsageError

KINDS = st.sampled_from((1, 2, 3, 8))
FRAMES = st.lists(st.tuples(KINDS, st.integers(0, 65535), st.binary(max_size=40)), max_size=8)
# What every codec accepts as a name.
NAMES = st.text(string.ascii_letters + string.digits + "-_.:@#,/+ ", max_size=127)
SHORT = st.text(st.characters(codec="utf-8"), max_size=60)
TAGS = st.integers(0, 2**63 - 1)
U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
ARGUMENTS: st.SearchStrategy[dict[str, Value]] = st.dictionaries(
    NAMES, st.one_of(st.booleans(), st.text(max_size=5), st.integers(2**32, 2**63 - 1)), max_size=3
)


def joined(frames: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(oracle.frame(*frame) for frame in frames)


# -- cutting the stream -------------------------------------------------------------------------------------
@given(FRAMES, st.data())
def test_frames_are_the_same_at_any_cut(frames: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    stream = joined(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += list(reader.feed(stream[start:end]))
    assert found == frames
    assert reader.held_bytes == 0


@given(FRAMES)
def test_frames_are_the_same_byte_by_byte(frames: list[tuple[int, int, bytes]]) -> None:
    reader = FrameReader()
    stream = joined(frames)
    assert [frame for at in range(len(stream)) for frame in reader.feed(stream[at : at + 1])] == frames


def test_a_frame_of_exactly_the_limit_is_accepted_and_one_more_byte_is_not() -> None:
    reader = FrameReader(limit_bytes=100)
    assert list(reader.feed(oracle.frame(3, 1, b"x" * 100))) == [(3, 1, b"x" * 100)]
    with pytest.raises(FrameError, match="101 bytes was announced; at most 100"):
        list(reader.feed(oracle.frame(3, 1, b"x" * 101)[:7]))


STREAMS = st.one_of(
    st.binary(max_size=64),
    FRAMES.map(joined),
    damaged(FRAMES.map(joined)),
    st.sampled_from(
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"\x15\x03\x03\x00\x02\x02\x46")
    ),
)


@given(st.lists(STREAMS, max_size=5), st.integers(0, 64))
@example([b"\x01\x00\x00\xff\xff\xff\xff"], 64)
@example([b"H"], 64)
def test_no_stream_makes_the_reader_hoard_or_raise_anything_else(chunks: list[bytes], limit: int) -> None:
    reader = FrameReader(limit_bytes=limit)
    try:
        for chunk in chunks:
            for kind, channel, payload in reader.feed(chunk):
                assert kind in (1, 2, 3, 8)
                assert 0 <= channel < 65536
                assert len(payload) <= limit
            assert reader.held_bytes <= limit + 8
    except FrameError:
        pass


def test_something_that_is_not_amqp_is_seen_at_its_first_byte() -> None:
    for first in set(range(256)) - {1, 2, 3, 8}:
        with pytest.raises(FrameError, match="not AMQP"):
            list(FrameReader().feed(bytes((first,))))


def test_a_frame_must_end_as_frames_do() -> None:
    with pytest.raises(FrameError, match="0xcd"):
        list(FrameReader().feed(oracle.frame(1, 1, b"abc")[:-1] + b"\xcd"))


# -- methods in ---------------------------------------------------------------------------------------------
SERVER_METHODS: dict[str, st.SearchStrategy[tuple[base.Frame, replies.Reply]]] = {
    "tune": st.builds(
        lambda a, b, c: (commands.Connection.Tune(a, b, c), replies.Tune(a, b, c)), U16, U32, U16
    ),
    "open-ok": st.just((commands.Connection.OpenOk(), replies.OpenOk())),
    "close": st.builds(
        lambda code, text: (
            commands.Connection.Close(code, text, 60, 40),
            replies.CloseConnection(code, text),
        ),
        U16,
        SHORT,
    ),
    "close-ok": st.just((commands.Connection.CloseOk(), replies.CloseConnectionOk())),
    "blocked": st.builds(lambda why: (commands.Connection.Blocked(why), replies.Blocked(why)), SHORT),
    "unblocked": st.just((commands.Connection.Unblocked(), replies.Unblocked())),
    "channel-open-ok": st.just((commands.Channel.OpenOk(), replies.OpenChannelOk())),
    "flow": st.builds(lambda on: (commands.Channel.Flow(on), replies.ChannelFlow(on)), st.booleans()),
    "channel-close": st.builds(
        lambda code, text: (commands.Channel.Close(code, text, 60, 40), replies.CloseChannel(code, text)),
        U16,
        SHORT,
    ),
    "channel-close-ok": st.just((commands.Channel.CloseOk(), replies.CloseChannelOk())),
    "exchange-declare-ok": st.just((commands.Exchange.DeclareOk(), replies.MethodOk())),
    "exchange-delete-ok": st.just((commands.Exchange.DeleteOk(), replies.MethodOk())),
    "queue-declare-ok": st.builds(
        lambda q, m, c: (commands.Queue.DeclareOk(q, m, c), replies.DeclareQueueOk(q, m, c)), NAMES, U32, U32
    ),
    "bind-ok": st.just((commands.Queue.BindOk(), replies.MethodOk())),
    "unbind-ok": st.just((commands.Queue.UnbindOk(), replies.MethodOk())),
    "exchange-bind-ok": st.just((commands.Exchange.BindOk(), replies.MethodOk())),
    "exchange-unbind-ok": st.just((commands.Exchange.UnbindOk(), replies.MethodOk())),
    "purge-ok": st.builds(lambda n: (commands.Queue.PurgeOk(n), replies.Counted(n)), U32),
    "delete-ok": st.builds(lambda n: (commands.Queue.DeleteOk(n), replies.Counted(n)), U32),
    "qos-ok": st.just((commands.Basic.QosOk(), replies.MethodOk())),
    "consume-ok": st.builds(lambda tag: (commands.Basic.ConsumeOk(tag), replies.ConsumeOk(tag)), SHORT),
    "cancel": st.builds(lambda tag: (commands.Basic.Cancel(tag, True), replies.Cancel(tag)), SHORT),
    "cancel-ok": st.builds(lambda tag: (commands.Basic.CancelOk(tag), replies.CancelOk(tag)), SHORT),
    "return": st.builds(
        lambda code, text, exchange, key: (
            commands.Basic.Return(code, text, exchange, key),
            replies.Return(code, text, exchange.encode(), key.encode()),
        ),
        U16,
        SHORT,
        NAMES,
        SHORT,
    ),
    "deliver": st.builds(
        lambda consumer, tag, again, exchange, key: (
            commands.Basic.Deliver(consumer, tag, again, exchange, key),
            replies.Deliver(consumer.encode(), tag, again, exchange.encode(), key.encode()),
        ),
        SHORT,
        TAGS,
        st.booleans(),
        NAMES,
        SHORT,
    ),
    "get-ok": st.builds(
        lambda tag, again, exchange, key, count: (
            commands.Basic.GetOk(tag, again, exchange, key, count),
            replies.GetOk(tag, again, exchange.encode(), key.encode(), count),
        ),
        TAGS,
        st.booleans(),
        NAMES,
        SHORT,
        U32,
    ),
    "get-empty": st.just((commands.Basic.GetEmpty(), replies.GetEmpty())),
    "ack": st.builds(
        lambda tag, many: (commands.Basic.Ack(tag, many), replies.Confirm(tag, many, True)),
        TAGS,
        st.booleans(),
    ),
    "nack": st.builds(
        lambda tag, many, requeue: (
            commands.Basic.Nack(tag, many, requeue),
            replies.Confirm(tag, many, False),
        ),
        TAGS,
        st.booleans(),
        st.booleans(),
    ),
    "confirm-ok": st.just((commands.Confirm.SelectOk(), replies.MethodOk())),
    "tx-ok": st.just((commands.Tx.SelectOk(), replies.MethodOk())),
    "commit-ok": st.just((commands.Tx.CommitOk(), replies.MethodOk())),
}
ANY_SERVER_METHOD = st.one_of(*SERVER_METHODS.values())


def payload_of(method: base.Frame) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pamqp calls some methods deprecated that every broker sends
        return pamqp.frame.marshal(method, 1)[7:-1]


@given(st.data())
def test_every_method_of_a_broker_is_read_as_pamqp_wrote_it(data: st.DataObject) -> None:
    compared = {oracle.start()[:4]}  # the greeting has its own test
    for strategy in SERVER_METHODS.values():
        method, expected = data.draw(strategy)
        payload = payload_of(method)
        compared.add(payload[:4])
        assert replies.parse(payload) == expected
        if isinstance(expected, replies.Deliver):
            assert payload.startswith(replies.DELIVER)
            assert replies.deliver(payload) == expected
    assert compared == set(replies._PARSERS), "a method was added: compare it with pamqp too"


def test_the_greeting_is_read_as_pamqp_wrote_it() -> None:
    about: dict[str, Any] = {"product": "RabbitMQ", "version": "4.0.5", "capabilities": {"basic.nack": True}}
    greeting = payload_of(commands.Connection.Start(0, 9, about, "PLAIN AMQPLAIN", "en_US"))
    assert replies.parse(greeting) == replies.Start(about, "PLAIN AMQPLAIN")


PAYLOADS = st.one_of(
    st.binary(max_size=40),
    ANY_SERVER_METHOD.map(lambda pair: payload_of(pair[0])),
    damaged(ANY_SERVER_METHOD.map(lambda pair: payload_of(pair[0]))),
    st.builds(lambda key, rest: key + rest, st.sampled_from(list(replies._PARSERS)), st.binary(max_size=40)),
    damaged(st.just(oracle.start())),
)


@given(PAYLOADS)
def test_no_payload_makes_the_parser_raise_anything_but_a_frame_error(payload: bytes) -> None:
    for parse in (replies.parse, replies.deliver):
        with suppress(FrameError):
            parse(payload)


@given(ANY_SERVER_METHOD)
def test_a_method_cut_short_is_damaged_or_says_nothing_we_read(
    pair: tuple[base.Frame, replies.Reply],
) -> None:
    whole = payload_of(pair[0])
    for length in range(len(whole)):
        try:
            found = replies.parse(whole[:length])
        except FrameError:
            continue
        # Reserved fields at the end are not read, so a method without them still says the same.
        assert found == pair[1]


# -- the channel --------------------------------------------------------------------------------------------
@contextmanager
def a_channel(*, asking: bool) -> Iterator[tuple[Channel, asyncio.AbstractEventLoop]]:
    """A channel whose connection has no socket, with or without a question under way."""
    loop = asyncio.new_event_loop()
    try:
        connection = Connection(Address(), loop)
        channel = Channel(connection, 1)
        channel._consumers[b"tag"] = _consumer()
        question = loop.create_task(channel.qos(1)) if asking else None
        loop.run_until_complete(asyncio.sleep(0))
        yield channel, loop
        if question is not None:
            question.cancel()
            loop.run_until_complete(asyncio.gather(question, return_exceptions=True))
    finally:
        loop.close()


def _consumer() -> ChannelConsumer:
    def on_delivery(_delivery: Delivery) -> None:
        return

    def on_cancel() -> None:
        return

    return ChannelConsumer("queue", on_delivery, on_cancel)


CONTENT_HEADERS = st.builds(
    lambda size, rest: b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + rest,
    st.one_of(st.integers(0, 40), st.sampled_from((BODY_MAX_BYTES, BODY_MAX_BYTES + 1, 2**64 - 1))),
    st.binary(max_size=20),
)
DELIVERS = st.just(oracle.deliver(b"tag", 1, b"", b"key"))
CHANNEL_FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just(1), PAYLOADS),
        st.tuples(st.just(1), DELIVERS),
        st.tuples(st.just(2), CONTENT_HEADERS),
        st.tuples(st.just(2), st.binary(max_size=20)),
        st.tuples(st.just(3), st.binary(max_size=20)),
        st.tuples(st.integers(0, 255), st.binary(max_size=20)),
    ),
    max_size=12,
)


@given(CHANNEL_FRAMES, st.booleans())
def test_no_frames_make_a_channel_raise_anything_but_a_frame_error(
    frames: list[tuple[int, bytes]], asking: bool
) -> None:
    with a_channel(asking=asking) as (channel, _):
        try:
            for kind, payload in frames:
                channel.on_frame(kind, payload)
                assert sum(map(len, channel._parts)) + channel._missing_bytes <= BODY_MAX_BYTES
        except FrameError:
            pass


LETTERS = st.builds(
    lambda channel, tag, key, properties, body, parts: (
        oracle.frame(1, channel, oracle.deliver(b"tag", tag, b"e", key))
        + oracle.content(channel, properties, body, parts=parts)
    ),
    st.sampled_from((1, 1, 1, 2, 0)),
    TAGS,
    st.binary(max_size=5),
    st.binary(min_size=2, max_size=9),
    st.binary(max_size=9),
    st.none() | st.none() | st.lists(st.binary(max_size=9), max_size=2),
)
STREAMS = st.lists(st.one_of(LETTERS, LETTERS, FRAMES.map(joined)), max_size=5).map(b"".join)


def heard(stream: bytes, cuts: list[int], *, whole: bool) -> tuple[list[Delivery], str | None]:
    """What a consumer is handed of this stream, and what is wrong with it."""
    found: list[Delivery] = []
    with a_channel(asking=False) as (channel, _):
        channel._consumers[b"tag"] = channel._consumers[b"tag"]._replace(on_delivery=found.append)
        reader = FrameReader()
        try:
            for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
                some = stream[start:end]
                for kind, number, payload in reader.feed_client(some) if whole else reader.feed(some):
                    if not number:
                        raise FrameError("on channel 0")
                    if number != 1:
                        continue
                    if isinstance(payload, bytes):
                        channel.on_frame(kind, payload)
                    else:
                        channel.on_delivery(*payload)
        except FrameError as error:
            return found, str(error)
    return found, None


@given(STREAMS | damaged(STREAMS), st.data())
def test_deliveries_that_are_whole_are_those_of_their_frames(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    assert heard(stream, cuts, whole=True) == heard(stream, cuts, whole=False)


def test_a_delivery_that_is_whole_is_one_thing() -> None:
    """Else the test above would compare frames with frames."""
    stream = oracle.frame(1, 1, oracle.deliver(b"tag", 9, b"e", b"k")) + oracle.content(1, b"\0\0", b"body")
    expected = (b"tag", (9, False, b"e", b"k", (b"\0\0", b"body")))
    assert list(FrameReader().feed_client(stream)) == [(0, 1, expected)]


@given(st.binary(max_size=60), st.data())
def test_a_body_comes_out_whole_however_it_was_cut(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    found: list[Delivery] = []
    with a_channel(asking=False) as (channel, _):
        channel._consumers[b"tag"] = channel._consumers[b"tag"]._replace(on_delivery=found.append)
        parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True) if b > a]
        stream = oracle.frame(1, 1, oracle.deliver(b"tag", 9, b"e", b"k", redelivered=True))
        stream += oracle.content(1, b"\0\0", body, parts=parts)
        for kind, _, payload in FrameReader().feed(stream):
            channel.on_frame(kind, payload)
    [delivery] = found
    assert delivery == (9, True, b"e", b"k", (b"\0\0", body))


def announcing(size: int) -> bytes:
    return b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\0\0"


DELIVER = oracle.deliver(b"tag", 1, b"", b"")


@pytest.mark.parametrize(
    "frames",
    [
        [(2, announcing(5))],
        [(3, b"body")],
        [(1, DELIVER), (3, b"body")],
        [(1, DELIVER), (1, DELIVER)],
        [(1, DELIVER), (1, oracle.ack(1))],
        [(1, DELIVER), (2, announcing(5)), (2, announcing(5))],
        [(1, DELIVER), (2, announcing(5)), (1, DELIVER)],
        [(1, DELIVER), (2, announcing(5)), (3, b"123456")],
        [(1, DELIVER), (2, announcing(5)), (3, b"123"), (3, b"456")],
        [(1, DELIVER), (2, announcing(0)), (3, b"")],
        [(1, DELIVER), (2, announcing(5)), (3, b"12345"), (3, b"")],
        [(1, DELIVER), (2, announcing(BODY_MAX_BYTES + 1))],
    ],
)
def test_content_out_of_its_order_is_damage_at_the_frame_that_breaks_it(
    frames: list[tuple[int, bytes]],
) -> None:
    with a_channel(asking=False) as (channel, _):
        for kind, payload in frames[:-1]:
            channel.on_frame(kind, payload)
        with pytest.raises(FrameError):
            channel.on_frame(*frames[-1])


def test_frames_that_carry_nothing_are_not_kept() -> None:
    with a_channel(asking=False) as (channel, _):
        channel.on_frame(1, oracle.deliver(b"tag", 1, b"", b""))
        channel.on_frame(2, b"\x00\x3c\x00\x00" + (5).to_bytes(8, "big") + b"\0\0")
        for _ in range(1000):
            channel.on_frame(3, b"")
        assert len(channel._parts) < 10


# -- what we say --------------------------------------------------------------------------------------------
def read(payload: bytes) -> Any:
    """The payload as pamqp reads it."""
    raw = method_frame(7, payload)
    size, channel, found = pamqp.frame.unmarshal(raw)
    assert (size, channel) == (len(raw), 7)
    return found


def says(payload: bytes, kind: type[base.Frame], **expected: object) -> None:
    found = read(payload)
    assert type(found) is kind
    shown = dict(found)
    for name, value in expected.items():
        assert shown[name] == value, (name, shown[name], value)
    rest = {name: value for name, value in shown.items() if name not in expected}
    # What we do not say is zero: no `nowait`, no `no_ack`, no `global`.
    assert not any(value for name, value in rest.items() if value not in ("0", "")), rest


@given(NAMES, NAMES, SHORT, ARGUMENTS, *([st.booleans()] * 4))
def test_shapes_are_said_as_pamqp_reads_them(
    queue: str, exchange: str, key: str, arguments: dict[str, Value], a: bool, b: bool, c: bool, d: bool
) -> None:
    says(
        requests.declare_queue(queue, passive=a, durable=b, exclusive=c, auto_delete=d, arguments=arguments),
        commands.Queue.Declare,
        queue=queue, passive=a, durable=b, exclusive=c, auto_delete=d, arguments=arguments,
    )  # fmt: skip
    says(
        requests.declare_exchange(
            exchange, "fanout", passive=a, durable=b, auto_delete=c, internal=d, arguments=arguments
        ),
        commands.Exchange.Declare,
        exchange=exchange, exchange_type="fanout", passive=a, durable=b, auto_delete=c, internal=d,
        arguments=arguments,
    )  # fmt: skip
    bound = {"queue": queue, "exchange": exchange, "routing_key": key, "arguments": arguments}
    says(requests.bind_queue(queue, exchange, key, arguments), commands.Queue.Bind, **bound)
    says(requests.unbind_queue(queue, exchange, key, arguments), commands.Queue.Unbind, **bound)
    between = {"destination": queue, "source": exchange, "routing_key": key, "arguments": arguments}
    says(requests.bind_exchange(queue, exchange, key, arguments), commands.Exchange.Bind, **between)
    says(requests.unbind_exchange(queue, exchange, key, arguments), commands.Exchange.Unbind, **between)
    says(requests.purge_queue(queue), commands.Queue.Purge, queue=queue)
    says(
        requests.delete_queue(queue, if_unused=a, if_empty=b),
        commands.Queue.Delete, queue=queue, if_unused=a, if_empty=b,
    )  # fmt: skip
    says(
        requests.delete_exchange(exchange, if_unused=a),
        commands.Exchange.Delete, exchange=exchange, if_unused=a,
    )  # fmt: skip


@given(NAMES, NAMES, SHORT, ARGUMENTS, TAGS, U16, st.booleans(), st.booleans())
def test_messages_are_said_as_pamqp_reads_them(
    queue: str, exchange: str, key: str, arguments: dict[str, Value], tag: int, count: int, a: bool, b: bool
) -> None:
    basic = commands.Basic
    says(requests.qos(count), basic.Qos, prefetch_count=count)
    says(
        requests.consume(queue, key, exclusive=a, arguments=arguments),
        basic.Consume, queue=queue, consumer_tag=key, exclusive=a, arguments=arguments,
    )  # fmt: skip
    says(requests.cancel(key), basic.Cancel, consumer_tag=key)
    says(
        requests.publish(exchange, key, mandatory=a),
        basic.Publish, exchange=exchange, routing_key=key, mandatory=a,
    )  # fmt: skip
    says(requests.get(queue), basic.Get, queue=queue)
    says(requests.ack(tag, multiple=a), basic.Ack, delivery_tag=tag, multiple=a)
    says(requests.reject(tag, requeue=a), basic.Reject, delivery_tag=tag, requeue=a)
    says(requests.nack(tag, multiple=a, requeue=b), basic.Nack, delivery_tag=tag, multiple=a, requeue=b)


@given(NAMES, SHORT, U16, U16, U32)
def test_the_conversation_is_said_as_pamqp_reads_it(vhost: str, text: str, code: int, a: int, b: int) -> None:
    connection = commands.Connection
    about: dict[str, Value] = {"product": "Deadletter", "capabilities": {"basic.nack": True}}
    says(
        requests.start_ok(about, "PLAIN", b"\0guest\0guest"),
        connection.StartOk,
        client_properties=about, mechanism="PLAIN", response="\0guest\0guest", locale="en_US",
    )  # fmt: skip
    says(requests.tune_ok(a, b, code), connection.TuneOk, channel_max=a, frame_max=b, heartbeat=code)
    says(requests.open_connection(vhost), connection.Open, virtual_host=vhost)
    says(requests.close_connection(code, text), connection.Close, reply_code=code, reply_text=text)
    says(requests.close_channel(code, text), commands.Channel.Close, reply_code=code, reply_text=text)
    says(requests.CLOSE_CONNECTION_OK, connection.CloseOk)
    says(requests.OPEN_CHANNEL, commands.Channel.Open)
    says(requests.CLOSE_CHANNEL_OK, commands.Channel.CloseOk)
    says(requests.SELECT_CONFIRMS, commands.Confirm.Select)
    for active in (True, False):
        says(requests.flow_ok(active=active), commands.Channel.FlowOk, active=active)
    assert isinstance(pamqp.frame.unmarshal(HEARTBEAT_FRAME)[2], Heartbeat)


@given(st.text(min_size=1, max_size=300))
def test_a_name_of_any_letters_is_said_as_its_bytes_up_to_255(name: str) -> None:
    calls: list[Callable[[], bytes]] = [
        lambda: requests.get(name),
        lambda: requests.publish("", name, mandatory=True),
        lambda: requests.declare_queue(name),
    ]
    for call in calls:
        if len(name.encode()) > 255:
            with pytest.raises(UsageError, match="at most 255 bytes"):
                call()
        else:
            assert oracle.short(name.encode()) in call()


# -- content out --------------------------------------------------------------------------------------------
@given(st.binary(max_size=300), st.integers(9, 80), st.integers(1, 65535))
@example(b"", 4096, 1)
@example(b"x" * 4088, 4096, 1)
@example(b"x" * 4089, 4096, 1)
def test_a_body_is_cut_into_frames_that_fit(body: bytes, frame_max: int, channel: int) -> None:
    properties = oracle.properties(message_id=b"m")
    stream = b"".join(content_frames(channel, properties, body, frame_max))
    (kind, number, header), *bodies = list(FrameReader().feed(stream))
    assert (kind, number) == (oracle.HEADER, channel)
    assert content_header(header) == (len(body), properties)
    assert header[:4] == b"\x00\x3c\x00\x00"
    assert all((kind, number) == (oracle.BODY, channel) for kind, number, _ in bodies)
    assert b"".join(part for _, _, part in bodies) == body
    assert all(0 < len(part) + 8 <= frame_max for _, _, part in bodies)
    assert len(bodies) == -(-len(body) // (frame_max - 8)), "no more frames than it takes"


def test_content_headers_that_are_too_short_are_damage() -> None:
    for length in range(14):
        with pytest.raises(FrameError):
            content_header(b"\0" * length)


def test_the_limit_for_incoming_frames_is_above_anything_negotiated() -> None:
    assert INCOMING_FRAME_MAX_BYTES > 131072
