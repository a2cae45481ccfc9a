"""Queues and exchanges that somebody deletes under a running consumer.

What leads to a retry or aside is declared anew when a publish does not find it. The application's own queue
is not: deleted is deleted, and the messages that were in it are gone with it, those in hand too. What waited
elsewhere for its retry is not.

About `consumer.queues.queue_consumer`, `consumer.queues.settling`, `consumer.queues.declared_layouts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.consuming import (
    ASIDE,
    DELAY_S,
    assert_intact,
    assert_rejected,
    consumer,
    declare_orders,
    each,
    nothing_left,
    on_this_broker,
    post,
    serving,
    taken,
    until,
    until_depth,
)

from deadletter import Consumer, Message, Park, fixed
from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName
from deadletter.testing.node.private import PrivateBroker


@pytest.fixture
def layout(request: pytest.FixtureRequest, broker: PrivateBroker) -> LayoutName:
    return on_this_broker(request.param, broker)


@pytest.fixture
def impatient(broker: PrivateBroker) -> Iterator[None]:
    """A queue that could not dead-letter at least once tries again after two seconds, not three minutes."""
    key = "dead_letter_worker_publisher_confirm_timeout"
    usual = broker.rabbitmqctl("eval", f"application:get_env(rabbit, {key}).").strip()
    broker.rabbitmqctl("eval", f"application:set_env(rabbit, {key}, 2000).")
    yield
    _, milliseconds = usual.strip("{}").split(",")
    broker.rabbitmqctl("eval", f"application:set_env(rabbit, {key}, {milliseconds}).")


async def holds(vhost: Vhost, queue: str, count: int) -> None:
    """So many are in a queue, those included that it could not dead-letter: ready they are not."""

    def found() -> int | None:
        return vhost.depth(queue)

    async with asyncio.timeout(60):
        while await asyncio.to_thread(found) != count:  # noqa: ASYNC110 -- the broker tells of no event
            await asyncio.sleep(0.2)


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


@each
async def test_a_queue_is_deleted_while_its_message_is_in_hand(vhost: Vhost, layout: LayoutName) -> None:
    app = consumer(vhost, layout)
    begun: list[bytes] = []
    cancelled: list[bytes] = []

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(body: bytes) -> None:
        begun.append(body)
        try:
            await asyncio.sleep(600 if body == b"doomed" else 0)
        except asyncio.CancelledError:
            cancelled.append(body)
            raise

    async with serving(app) as heard:
        await post(vhost, b"doomed")
        await until(lambda: begun == [b"doomed"], "the handler")
        await asyncio.to_thread(vhost.delete, "queues", "orders")
        await until(lambda: any(event.what == "queue orders" for event in heard.lost), "the news")
        await asyncio.to_thread(declare_orders, vhost, layout)
        await post(vhost, b"next")
        await until(lambda: b"next" in begun, "the next one")
        await until(lambda: len(heard.handled) == 1, "its end")
    assert begun == [b"doomed", b"next"]
    assert cancelled == [b"doomed"]
    await nothing_left(vhost)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["ladder", "loop"], indirect=True)
async def test_what_waits_for_its_retry_when_the_queue_is_deleted_comes_back_to_the_new_one(
    vhost: Vhost, layout: LayoutName, impatient: None
) -> None:
    """In `native` it waits in the queue itself and is gone with it; `external`: it is in the application's
    own dead-letter queue, and stays there; `return`: see below."""
    app = consumer(vhost, layout)
    attempts: list[int] = []

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(3))
    async def handle(message: Message) -> None:
        assert message.body == b"waits"
        attempts.append(message.attempt)
        if message.attempt == 0:
            raise ConnectionError("the warehouse does not answer")

    waiting = "orders__retry.1" if layout == "ladder" else "orders.retry"
    async with serving(app) as heard:
        await post(vhost, b"waits")
        await until(lambda: len(heard.handled) == 1, "the handler")
        await until_depth(vhost, waiting, 1)
        await asyncio.to_thread(vhost.delete, "queues", "orders")
        await until(lambda: any(event.what == "queue orders" for event in heard.lost), "the news")
        await until_depth(vhost, waiting, 0)
        await holds(vhost, waiting, 1)  # its time is over, and it has nowhere to go
        await asyncio.to_thread(declare_orders, vhost, layout)
        await until(lambda: attempts == [0, 1], "the retry")
        await asyncio.sleep(0.2)
    await holds(vhost, waiting, 0)
    await nothing_left(vhost)


async def test_what_waits_for_its_retry_when_the_queue_is_deleted_is_parked_with_layout_return(
    vhost: Vhost,
) -> None:
    app = consumer(vhost, "return")

    @app.queue("orders", layout="return", retries=2, backoff=fixed(1))
    async def handle(_: bytes) -> None:
        raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        await post(vhost, b"waits")
        await until(lambda: len(heard.handled) == 1, "the handler")
        await asyncio.sleep(0.2)
        await asyncio.to_thread(vhost.delete, "queues", "orders")
        letter = (await taken(vhost, names.PARKED, 1))[0]
    assert_intact(letter, b"waits")
    assert letter.headers[names.CAUSE] == "origin-missing"
    assert (letter.headers[names.ATTEMPT], letter.headers[names.ORIGIN_QUEUE]) == (1, "orders")
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


@pytest.mark.slow
async def test_a_loop_whose_retry_queue_was_deleted_holds_what_is_rejected_until_it_is_there_again(
    vhost: Vhost, impatient: None
) -> None:
    """We reject and the broker passes on: it tells nobody that it cannot, and loses nothing. In `native`
    there is no way to a retry that could be deleted."""
    app = consumer(vhost, "loop")
    attempts: list[int] = []

    @app.queue("orders", layout="loop", retries=2, backoff=fixed(DELAY_S))
    async def handle(message: Message) -> None:
        assert message.body == b"held"
        attempts.append(message.attempt)
        if message.attempt == 0:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        await asyncio.to_thread(vhost.delete, "queues", "orders.retry")
        await post(vhost, b"held")
        await until(lambda: len(heard.handled) == 1, "the handler")
        await until(lambda: attempts == [0, 1], "the retry")
        await asyncio.sleep(0.2)
    await holds(vhost, "orders", 0)
    await nothing_left(vhost)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["at-least-once", "at-most-once"])
async def test_external_cannot_see_that_the_dead_letter_queue_was_deleted(
    vhost: Vhost, impatient: None, strategy: str
) -> None:
    """What is rejected there is the broker's to place. It drops it, as is its default, unless the application
    asked for at-least-once; a consumer that rejects hears nothing of either."""
    arguments: dict[str, object] = {
        "x_dead_letter_exchange": "",
        "x_dead_letter_routing_key": "orders.dlq",
        "x_dead_letter_strategy": strategy,
        "x_overflow": "reject-publish",
    }
    postbox.declare(vhost.url, "orders.dlq", kind="quorum")
    postbox.declare(vhost.url, "orders", kind="quorum", **arguments)
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders", layout="external")
    async def handle(_: bytes) -> None:
        raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        await asyncio.to_thread(vhost.delete, "queues", "orders.dlq")
        await post(vhost, b"rejected")
        await until(lambda: len(heard.handled) == 1, "the handler")
        await holds(vhost, "orders", 1 if strategy == "at-least-once" else 0)
    await asyncio.to_thread(postbox.declare, vhost.url, "orders.dlq", kind="quorum")
    if strategy == "at-least-once":
        assert_rejected((await taken(vhost, "orders.dlq", 1))[0])
    await nothing_left(vhost)
