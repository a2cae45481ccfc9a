"""What a handler ends with, and what is then on the broker: each outcome, in every layout.

The consumer declares the queue and its layout itself; `external` finds a queue that dies into `orders.dlq`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.serving import served

from deadletter import Consumer, Message, Park, RetryLater, fixed, park
from deadletter.amqp.address import Address, parse_addresses
from deadletter.broker.plug import Plug
from deadletter.broker.private import PrivateBroker
from deadletter.consumer.desk import LayoutName
from deadletter.consumer.events import Event, Handled, Lost
from deadletter.core import names
from deadletter.errors import UsageError

ASIDE = {
    "return": names.PARKED,
    "ladder": "orders__dlq",
    "loop": "orders.dlq",
    "native": "orders.dlq",
    "external": "orders.dlq",
}
"""Where a letter is put aside."""
PUBLISHING: tuple[LayoutName, ...] = ("return", "ladder", "loop", "native")
"""Layouts in which we put letters aside ourselves, with what we know."""
ALL: tuple[LayoutName, ...] = (*PUBLISHING, "external")
DELAY_S = 0.5
CLOCKS_S = 0.005
"""RabbitMQ counts whole milliseconds on a clock of its own."""
HEADERS: dict[str, object] = {"tenant": "acme", "trace": "00-4bf92f-01"}


@pytest.fixture
def layout(request: pytest.FixtureRequest, broker: PrivateBroker) -> LayoutName:
    wanted: LayoutName = request.param
    if wanted == "native" and not has_native(broker):
        pytest.skip("this broker has no native retries; that the layout is refused there has its own test")
    return wanted


def has_native(broker: PrivateBroker) -> bool:
    return tuple(int(part) for part in broker.version.split(".")[:3]) >= (4, 3, 1)


each_publishing = pytest.mark.parametrize("layout", PUBLISHING, indirect=True)
each = pytest.mark.parametrize("layout", ALL, indirect=True)


def declare_orders(vhost: Vhost, layout: str) -> None:
    """As the application does it: with a dead-letter queue where the layout expects one, else plain."""
    if layout != "external":
        postbox.declare(vhost.url, "orders", kind="quorum")
        return
    postbox.declare(vhost.url, "orders.dlq", kind="quorum")
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "orders.dlq"}
    postbox.declare(vhost.url, "orders", kind="quorum", **dead)


def consumer(vhost: Vhost, layout: str, url: str | None = None) -> Consumer:
    if layout == "external":
        declare_orders(vhost, layout)
    return Consumer(url or vhost.url, api=vhost.api, service="shop", release="1.2.3")


class Heard:
    """What the consumer told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def handled(self) -> list[Handled]:
        return [event for event in self.events if isinstance(event, Handled)]

    @property
    def lost(self) -> list[Lost]:
        return [event for event in self.events if isinstance(event, Lost)]


@asynccontextmanager
async def serving(app: Consumer) -> AsyncIterator[Heard]:
    """The consumer runs within; whatever ended it is raised."""
    heard = Heard()
    app.listen(heard.events.append)
    task = asyncio.create_task(app.serve())
    await asyncio.sleep(0)
    assert app.ready is not None
    ready = asyncio.create_task(app.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    ready.cancel()
    if task.done():
        task.result()
    try:
        yield heard
    finally:
        app.stop()
        await asyncio.wait_for(task, 60)


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        await asyncio.sleep(0.02)


async def post(vhost: Vhost, *bodies: bytes) -> None:
    """Confirmed and mandatory; whoever consumes the queue may have them at once."""

    def work() -> None:
        properties = pika.BasicProperties(
            delivery_mode=2, content_type="application/json", message_id="m-1", headers=HEADERS
        )
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", "orders", body, properties, mandatory=True)

    await asyncio.to_thread(work)


async def depth(vhost: Vhost, queue: str) -> int:
    return await asyncio.to_thread(postbox.depth, vhost.url, queue)


async def taken(vhost: Vhost, queue: str, count: int) -> list[postbox.Post]:
    """Exactly so many are in a queue, and nothing waits for its turn behind them."""
    found = await asyncio.to_thread(postbox.drain, vhost.url, queue, expect=count)
    assert len(found) == count
    return found


async def nothing_left(vhost: Vhost, *but: str) -> None:
    """After the consumer has ended: every queue of the vhost but these is empty."""
    for queue in [found["name"] for found in await asyncio.to_thread(vhost.list, "queues")]:
        if queue not in but:
            assert await depth(vhost, queue) == 0, queue


def assert_intact(letter: postbox.Post, body: bytes) -> None:
    assert letter.body == body
    assert letter.properties.content_type == "application/json"
    assert letter.properties.message_id == "m-1"
    assert letter.properties.delivery_mode == 2
    assert HEADERS.items() <= letter.headers.items()


def assert_told(letter: postbox.Post, *, cause: str, attempt: int, error: str, said: str) -> None:
    """Why it failed is on the letter itself."""
    headers: dict[str, Any] = letter.headers
    assert headers[names.CAUSE] == cause
    assert said in headers[names.WHY]
    assert headers[names.ATTEMPT] == attempt
    assert headers[names.ORIGIN_QUEUE] == "orders"
    assert headers[names.ERROR_TYPE] == error
    assert said in headers[names.ERROR_MESSAGE]
    assert headers[names.ERROR_STACK]
    assert headers[names.ERROR_HOST]
    assert (headers[names.ERROR_SERVICE], headers[names.ERROR_RELEASE]) == ("shop", "1.2.3")
    assert 0 < headers[names.ERROR_FIRST_AT] <= headers[names.ERROR_AT]
    assert headers[names.ID]


def assert_rejected(letter: postbox.Post, times: int = 1) -> None:
    """In the layout external the broker alone tells of it."""
    death = letter.headers[names.X_DEATH][0]
    assert (death["queue"], death["reason"], death["count"]) == ("orders", "rejected", times)


# -- what a handler does -------------------------------------------------------------------------------------
@each
async def test_success(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    seen: Counter[int] = Counter()

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(order: dict[str, int], message: Message) -> None:
        assert message.attempt == 0
        seen[order["n"]] += 1

    async with serving(app) as heard:
        await post(vhost, *(b'{"n": %d}' % n for n in range(50)))
        await until(lambda: len(heard.handled) == 50, "all of them")
    assert seen == Counter(range(50))
    await nothing_left(vhost)


@each_publishing
async def test_transient_comes_back_when_it_was_asked_for(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    seen: list[tuple[int, float]] = []
    ids: set[str] = set()

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S))
    async def handle(order: dict[str, int], message: Message) -> None:
        assert order == {"n": 1}
        seen.append((message.attempt, time.monotonic()))
        ids.add(message.id)
        if message.attempt < 2:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        await post(vhost, b'{"n": 1}')
        await until(lambda: len(heard.handled) == 3, "the third try")
    assert [attempt for attempt, _ in seen] == [0, 1, 2]
    delays_s = [after - before for (_, before), (_, after) in pairwise(seen)]
    assert all(delay_s >= DELAY_S - CLOCKS_S for delay_s in delays_s)
    assert all(delay_s < 10 * DELAY_S for delay_s in delays_s)
    assert [event.delay_ms for event in heard.handled] == [500, 500, None]
    if layout in ("return", "ladder"):  # rejected, a letter stays as it was, and has no id of ours
        assert len(ids) == 1
    await nothing_left(vhost)


async def test_transient_goes_where_the_application_leads_it(vhost: Vhost) -> None:
    """`external`: here into a loop of the application's own."""
    postbox.declare(
        vhost.url,
        "orders.wait",
        kind="quorum",
        x_message_ttl=300,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="orders",
    )
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "orders.wait"}
    postbox.declare(vhost.url, "orders", kind="quorum", **dead)
    app = Consumer(vhost.url, api=vhost.api)
    rejected: list[int] = []

    @app.queue("orders", layout="external", deliveries=2)
    async def handle(message: Message) -> None:
        rejected.append(sum(death.count for death in message.deaths if death.reason == "rejected"))
        if len(rejected) < 4:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        await post(vhost, b"{}")
        await until(lambda: len(heard.handled) == 4, "the fourth try")
    assert rejected == [0, 1, 2, 3]
    await nothing_left(vhost)


@each
async def test_permanent_is_put_aside_at_once(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    seen: list[bytes] = []

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S), on={KeyError: park})
    async def handle(body: bytes) -> None:
        seen.append(body)
        if body == b"rule":
            raise KeyError("sku")
        raise Park("no such customer")

    async with serving(app) as heard:
        await post(vhost, b"rule", b"word")
        await until(lambda: len(heard.handled) == 2, "both")
        found = {letter.body: letter for letter in await taken(vhost, ASIDE[layout], 2)}
    assert sorted(seen) == [b"rule", b"word"]
    for body, letter in found.items():
        assert_intact(letter, body)
    if layout == "external":
        assert_rejected(found[b"rule"])
        assert_rejected(found[b"word"])
    else:
        assert_told(found[b"rule"], cause="permanent-error", attempt=0, error="KeyError", said="sku")
        parked_by = f"{Park.__module__}.Park"
        assert_told(found[b"word"], cause="handler", attempt=0, error=parked_by, said="no such customer")
    await nothing_left(vhost)


@each
async def test_exhausted_is_put_aside_after_so_many_retries(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    attempts: dict[bytes, list[int]] = {}
    bodies = [b"%d" % n for n in range(5)]

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(body: bytes, message: Message) -> None:
        attempts.setdefault(body, []).append(message.attempt)
        raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, *bodies)
        found = {letter.body: letter for letter in await taken(vhost, ASIDE[layout], 5)}
    assert sorted(found) == bodies
    for body, letter in found.items():
        assert_intact(letter, body)
        if layout == "external":  # who retries there, and how often, is not ours to say
            assert attempts[body] == [0]
            assert_rejected(letter)
            continue
        assert attempts[body] == [0, 1, 2]
        assert_told(
            letter,
            cause="retries-exhausted",
            attempt=2,
            error="ConnectionError",
            said="the warehouse does not answer",
        )
        if layout in (
            "return",
            "ladder",
        ):  # rejected, a letter stays as it was, and nobody knows the first time
            assert letter.headers[names.ERROR_AT] - letter.headers[names.ERROR_FIRST_AT] >= 2 * 495
    await nothing_left(vhost)


@each
async def test_undecodable_is_put_aside_intact(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    seen: list[dict[str, int]] = []
    body = b'{"n": \xff\x00 }' + bytes(range(256))

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(order: dict[str, int]) -> None:
        seen.append(order)

    async with serving(app):
        await post(vhost, body, b'{"n": 1}')
        letter = (await taken(vhost, ASIDE[layout], 1))[0]
        await until(lambda: seen == [{"n": 1}], "the one that can be read")
    assert_intact(letter, body)
    if layout == "external":
        assert_rejected(letter)
    else:
        assert letter.headers[names.CAUSE] == "undecodable"
        assert "cannot be decoded: " in letter.headers[names.WHY]
        assert letter.headers[names.ERROR_TYPE].endswith("Undecodable")
    await nothing_left(vhost)


@each
async def test_a_handler_that_takes_too_long_has_failed(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    ended: list[int] = []

    @app.queue("orders", layout=layout, retries=1, backoff=fixed(DELAY_S), timeout=0.2)
    async def handle(message: Message) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.append(message.attempt)
            raise

    async with serving(app):
        await post(vhost, b"slow")
        letter = (await taken(vhost, ASIDE[layout], 1))[0]
    assert_intact(letter, b"slow")
    if layout == "external":
        assert ended == [0]
        assert_rejected(letter)
    else:
        assert ended == [0, 1]
        error = "deadletter.consumer.outcomes.HandlerTimeout"
        said = "took longer than 0.2 s"
        assert_told(letter, cause="retries-exhausted", attempt=1, error=error, said=said)
    await nothing_left(vhost)


# -- what the world does -------------------------------------------------------------------------------------
class CutBefore(Plug):
    """Cuts the line once, when it is about to carry this method: nothing of it reaches the broker.

    `holding_s`: what it carries is kept back for so long before that, while other lines work on.
    """

    def __init__(self, address: Address, method: bytes, *, holding_s: float = 0.0) -> None:
        super().__init__(address)
        self._method: bytes | None = method
        self._holding_s = holding_s

    async def _pump(self, direction: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        if direction == "heard":
            await super()._pump(direction, source, sink)
            return
        try:
            while data := await source.read(65536):
                if self._method is not None and self._method in data:
                    self._method = None
                    await asyncio.sleep(self._holding_s)
                    self.cut()
                    return
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        self._lines.discard(sink)
        sink.close()


PUBLISH = b"\x00\x3c\x00\x28"
ACK = b"\x00\x3c\x00\x50"
REJECT = b"\x00\x3c\x00\x5a"


@pytest.mark.parametrize("layout", ["return", "ladder"], indirect=True)
async def test_the_line_is_lost_between_a_retry_and_its_ack(vhost: Vhost, layout: LayoutName) -> None:
    async with CutBefore(parse_addresses(vhost.url)[0], ACK) as plug:
        app = consumer(vhost, layout, through(vhost, plug))
        seen: list[tuple[int, str]] = []

        @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S))
        async def handle(message: Message) -> None:
            seen.append((message.attempt, message.id))
            if message.attempt == 0:
                raise ConnectionError("the warehouse does not answer")

        async with serving(app):
            await post(vhost, b"{}")
            await until(lambda: len(seen) == 4, "both copies")
            await asyncio.sleep(0.2)
    assert plug.cuts == 1
    # the publish had arrived, the ack had not: a copy more, and both say that they are the same letter
    assert sorted(attempt for attempt, _ in seen) == [0, 0, 1, 1]
    assert len({of for _, of in seen}) == 1
    await nothing_left(vhost)


@each_publishing
async def test_the_line_is_lost_between_putting_aside_and_its_ack(vhost: Vhost, layout: LayoutName) -> None:
    async with CutBefore(parse_addresses(vhost.url)[0], ACK) as plug:
        app = consumer(vhost, layout, through(vhost, plug))
        seen: list[str] = []

        @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S))
        async def handle(message: Message) -> None:
            seen.append(message.id)
            raise Park("no such customer")

        async with serving(app):
            await post(vhost, b"{}")
            found = await taken(vhost, ASIDE[layout], 2)
    assert plug.cuts == 1
    assert len(seen) == 2
    assert {letter.headers[names.ID] for letter in found} == set(seen)
    assert len(set(seen)) == 1
    await nothing_left(vhost)


@each_publishing
async def test_the_line_is_lost_before_a_letter_arrives(vhost: Vhost, layout: LayoutName) -> None:
    async with CutBefore(parse_addresses(vhost.url)[0], PUBLISH, holding_s=0.5) as plug:
        app = consumer(vhost, layout, through(vhost, plug))
        seen: list[str] = []

        @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S))
        async def handle(message: Message) -> None:
            seen.append(message.id)
            raise Park("no such customer")

        async with serving(app):
            await post(vhost, b"{}")
            letter = (await taken(vhost, ASIDE[layout], 1))[0]
    assert plug.cuts == 1
    assert len(seen) == 2  # it was not acked while nobody had confirmed its copy
    assert {letter.headers[names.ID]} == set(seen)
    await nothing_left(vhost)


@pytest.mark.parametrize("layout", ["loop", "native", "external"], indirect=True)
async def test_the_line_is_lost_before_a_rejection(vhost: Vhost, layout: LayoutName) -> None:
    async with CutBefore(parse_addresses(vhost.url)[0], REJECT) as plug:
        app = consumer(vhost, layout, through(vhost, plug))
        seen: list[str] = []

        @app.queue("orders", layout=layout, retries=5, backoff=fixed(DELAY_S))
        async def handle(message: Message) -> None:
            seen.append(message.id)
            if len(seen) < 3:
                raise ConnectionError("the warehouse does not answer")

        async with serving(app):
            await post(vhost, b"{}")
            await until(lambda: len(seen) == (2 if layout == "external" else 3), "the last try")
            if layout == "external":
                assert_rejected((await taken(vhost, "orders.dlq", 1))[0])
    assert plug.cuts == 1
    await nothing_left(vhost)


def through(vhost: Vhost, plug: Plug) -> str:
    """The vhost's URL by way of the plug."""
    target = parse_addresses(vhost.url)[0]
    return vhost.url.replace(f"{target.host}:{target.port}", f"127.0.0.1:{plug.address.port}")


@each
async def test_a_queue_that_was_deleted_is_waited_for(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    attempts: list[int] = []

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        if message.body == b"bad" and message.attempt == 0:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        await post(vhost, b"good")
        await until(lambda: attempts == [0], "the first")
        await asyncio.sleep(0.2)
        await asyncio.to_thread(vhost.delete, "queues", "orders")
        await until(lambda: any(event.what == "queue orders" for event in heard.lost), "the news")
        assert vhost.get("queues", "orders") is None  # deleted is deleted
        await asyncio.to_thread(declare_orders, vhost, layout)
        await post(vhost, b"bad")
        if layout == "external":
            assert_rejected((await taken(vhost, "orders.dlq", 1))[0])
        else:  # and what leads back to it is there again too
            await until(lambda: attempts == [0, 0, 1], "the retry")
            await asyncio.sleep(0.2)
    await nothing_left(vhost)


@pytest.mark.parametrize(
    ("layout", "kind", "gone"),
    [
        ("return", "queues", "deadletter.delay.500"),
        ("return", "exchanges", "deadletter.return.orders"),
        ("ladder", "queues", "orders__retry.2"),
        ("ladder", "exchanges", "orders__retry_exchange"),
    ],
    indirect=["layout"],
)
async def test_a_way_to_retry_that_was_deleted_is_mended(
    vhost: Vhost, layout: LayoutName, kind: str, gone: str
) -> None:
    app = consumer(vhost, layout)
    attempts: list[int] = []

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        if attempts == [0, 1]:  # once it has been used
            assert vhost.get(kind, gone) is not None
            await asyncio.to_thread(vhost.delete, kind, gone)
        if message.attempt < 2:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, b"{}")
        await until(lambda: attempts[-1:] == [2], "the third try")
        await asyncio.sleep(0.2)
    # a channel that the broker closed gives back what was in hand: such a try may be made twice
    assert sorted(set(attempts)) == [0, 1, 2]
    assert kind == "exchanges" or attempts == [0, 1, 2]
    assert vhost.get(kind, gone) is not None
    await nothing_left(vhost)


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        ("return", "queues"),
        ("ladder", "queues"),
        ("loop", "queues"),
        ("loop", "exchanges"),
        ("native", "queues"),
    ],
    indirect=["layout"],
)
async def test_a_place_to_put_aside_that_was_deleted_is_mended(
    vhost: Vhost, layout: LayoutName, kind: str
) -> None:
    app = consumer(vhost, layout)

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(_: bytes) -> None:
        raise Park("no such customer")

    async with serving(app) as heard:
        await asyncio.to_thread(vhost.delete, kind, ASIDE[layout])
        await post(vhost, b"{}")
        await until(lambda: bool(heard.handled), "the handler")
        await until(lambda: vhost.get("queues", ASIDE[layout]) is not None, "the queue")
        letter = (await taken(vhost, ASIDE[layout], 1))[0]
    assert letter.headers[names.CAUSE] == "handler"
    await nothing_left(vhost)


@pytest.mark.parametrize("layout", ["return", "ladder"], indirect=True)
async def test_acks_behind_a_retry_go_when_it_is_confirmed(
    vhost: Vhost, layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.consumer.settling.SETTLE_S", 600.0)  # not when a timer says so
    app = consumer(vhost, layout)

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(600), prefetch=4)
    async def handle(body: bytes) -> None:
        if int(body) % 4 == 0:
            raise ConnectionError("the warehouse does not answer")

    declare_orders(vhost, layout)
    await post(vhost, *(b"%d" % n for n in range(40)))
    async with serving(app) as heard:
        await until(lambda: len(heard.handled) == 40, "all of them")
    waiting = "deadletter.delay.600000" if layout == "return" else "orders__retry.1"
    assert await depth(vhost, waiting) == 10
    await nothing_left(vhost, waiting)


# -- delays --------------------------------------------------------------------------------------------------
class Overloaded(Exception): ...


@pytest.mark.parametrize("layout", ["return", "ladder"], indirect=True)
async def test_a_short_delay_does_not_wait_behind_a_long_one(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    failed: dict[bytes, float] = {}
    back: dict[bytes, float] = {}
    asked_s = {b"long": 5.0, b"short": 1.0, b"said": 2.0}

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(1), on={Overloaded: fixed(5)})
    async def handle(body: bytes, message: Message) -> None:
        if message.attempt:
            back[body] = time.monotonic()
            return
        failed[body] = time.monotonic()
        kind = body.rstrip(b"0123456789")
        if kind == b"long":
            raise Overloaded("come back later")
        if kind == b"said":
            raise RetryLater(after=2)
        raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, *(b"%s%d" % (kind, n) for kind in asked_s for n in range(5)))
        await until(lambda: len(back) == 15, "all of them")
    order = [body.rstrip(b"0123456789") for body in sorted(back, key=lambda body: back[body])]
    assert order == [b"short"] * 5 + [b"said"] * 5 + [b"long"] * 5
    for body, at in back.items():
        assert at - failed[body] >= asked_s[body.rstrip(b"0123456789")] - CLOCKS_S
    await nothing_left(vhost)


# -- refusals, and company -----------------------------------------------------------------------------------
async def test_native_is_refused_where_the_broker_would_ignore_it(
    vhost: Vhost, broker: PrivateBroker
) -> None:
    if has_native(broker):
        pytest.skip("this broker has native retries")
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders", layout="native", retries=2, backoff=fixed(DELAY_S))
    async def handle(_: bytes) -> None: ...

    with pytest.raises(UsageError, match=rf"expected RabbitMQ 4\.3\.1 or later, got {broker.version}"):
        await app.serve()
    assert await asyncio.to_thread(vhost.list, "queues") == []
    assert await asyncio.to_thread(vhost.list, "policies") == []


async def test_a_letter_between_the_library_and_the_service(vhost: Vhost, tmp_path: Path) -> None:
    """`external`: the application rejects, `dlq serve` delays and sends back, and parks what is exhausted."""
    declare_orders(vhost, "external")
    settings = """
[[watches]]
dlq = "orders.dlq"
[default_policy]
retries = 2
backoff = { kind = "fixed", delays = ["300ms"] }
[guards.breaker]
enabled = false
"""
    app = Consumer(vhost.url, api=vhost.api)
    seen: dict[bytes, list[int]] = {b"later": [], b"never": []}
    headers: dict[bytes, list[dict[str, Any]]] = {b"later": [], b"never": []}
    ids: dict[bytes, set[str]] = {b"later": set(), b"never": set()}

    @app.queue("orders", layout="external", retries=2)
    async def handle(body: bytes, message: Message) -> None:
        seen[body].append(message.attempt)
        headers[body].append(dict(message.headers))
        if message.attempt:
            ids[body].add(message.id)
        if body == b"never" or message.attempt < 2:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        with await asyncio.to_thread(lambda: served(vhost, tmp_path, settings, start=False)) as instances:
            await asyncio.to_thread(instances[0].start)
            await post(vhost, b"later", b"never")
            await until(lambda: seen == {b"later": [0, 1, 2], b"never": [0, 1, 2]}, "all tries")
            parked = (await taken(vhost, names.PARKED, 1))[0]
    for body, each_time in headers.items():
        assert names.ATTEMPT not in each_time[0]
        assert [found[names.ATTEMPT] for found in each_time[1:]] == [1, 2]
        assert {found[names.ORIGIN_QUEUE] for found in each_time[1:]} == {"orders"}
        assert {found[names.ID] for found in each_time[1:]} == ids[body]
        assert len(ids[body]) == 1
        assert all(HEADERS.items() <= found.items() for found in each_time)
    assert_intact(parked, b"never")
    assert {parked.headers[names.ID]} == ids[b"never"]
    assert (parked.headers[names.ATTEMPT], parked.headers[names.ORIGIN_QUEUE]) == (2, "orders")
    await nothing_left(vhost)
