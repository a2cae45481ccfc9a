"""An application's own shapes: queues bound to exchanges, declared as it says, with several handlers.

About `consumer.queues.own_queue`, `consumer.registering`, `consumer.handlers.routing`.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.ground import Ground

from deadletter import Consumer, Message, fixed
from deadletter.consumer.events import Ready
from deadletter.core.letter import names
from deadletter.core.letter.message import view
from deadletter.core.topology.layout_names import LayoutName
from deadletter.errors import PreconditionFailed, ServiceRefused, Unroutable, UsageError

LAYOUTS: tuple[LayoutName, ...] = ("return", "ladder", "loop")


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_bound_queue_takes_what_its_keys_say(ground: Ground, layout: LayoutName) -> None:
    app, seen = ground.application(), list[str]()
    app.exchange("shop", type="topic")
    app.exchange("all", type="fanout")

    @app.queue(
        "orders",
        layout=layout,
        backoff=fixed(0.1),
        bind=[("shop", "order.*"), ("shop", "#.urgent"), ("all", "")],
    )
    async def handle(body: str, message: Message) -> None:
        seen.append(f"{body} {message.exchange} {message.routing_key}")
        if body == "again" and not message.attempt:
            raise ValueError(body)

    async with ground.serving(app):
        await app.publish("a", exchange="shop", key="order.made")
        await app.publish("b", exchange="shop", key="x.y.urgent")
        await app.publish("c", exchange="all", key="whatever")
        with pytest.raises(Unroutable):
            await app.publish("d", exchange="shop", key="invoice.made")
        await ground.until(lambda: len(seen) == 3)
        await app.publish("again", exchange="shop", key="order.made")
        await ground.until(lambda: len(seen) == 5)
    assert sorted(seen[:3]) == ["a shop order.made", "b shop x.y.urgent", "c all whatever"]
    assert seen[3:] == ["again shop order.made"] * 2, "a retry comes back by the key it first came by"


async def test_a_headers_exchange(ground: Ground) -> None:
    app, seen = ground.application(), list[str]()
    app.exchange("by-header", type="headers")

    @app.queue("orders", bind=[("by-header", "", {"x-match": "all", "tenant": "acme"})])
    async def handle(body: str) -> None:
        seen.append(body)

    async with ground.serving(app):
        await app.publish("a", exchange="by-header", headers={"tenant": "acme"})
        with pytest.raises(Unroutable):
            await app.publish("b", exchange="by-header", headers={"tenant": "other"})
        await ground.until(lambda: seen == ["a"])


async def test_an_exchange_that_is_expected_and_not_there_is_named(ground: Ground) -> None:
    app = ground.application()

    @app.queue("orders", bind=[("shop", "order.*")])
    async def handle(body: bytes) -> None: ...

    with pytest.raises(ServiceRefused, match=r"orders cannot be bound to exchange 'shop'.*app\.exchange"):
        async with ground.serving(app):
            pass
    channel = await ground.channel()
    await channel.declare_exchange("shop", "topic")
    async with ground.serving(app):
        await app.publish(b"1", exchange="shop", key="order.made")


async def test_an_exchange_of_another_type_is_refused(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("shop", "direct")
    app = ground.application()
    app.exchange("shop", type="topic")

    @app.queue("orders", bind=[("shop", "order.*")])
    async def handle(body: bytes) -> None: ...

    with pytest.raises(ServiceRefused, match="exchange 'shop' is there and is not what"):
        async with ground.serving(app):
            pass


async def test_an_exchange_is_declared_before_something_is_published_to_it(ground: Ground) -> None:
    app = ground.application()
    app.exchange("news", type="fanout")
    async with app.publishing(ground.site.memory):
        await app.publish(b"1", exchange="news", mandatory=False)
        with pytest.raises(Unroutable):
            await app.publish(b"1", exchange="news")


async def test_type_and_arguments_are_what_it_is_declared_with(ground: Ground) -> None:
    app = ground.application()

    @app.queue("small", queue_type="classic", arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    async def small(body: bytes) -> None: ...

    @app.queue("usual")
    async def usual(body: bytes) -> None: ...

    async with ground.serving(app):
        channel = await ground.channel()
        await channel.declare_queue(
            "small", arguments={"x-queue-type": "classic", "x-max-length": 5, "x-overflow": "reject-publish"}
        )
        await channel.declare_queue("usual", arguments={"x-queue-type": "quorum"})
        with pytest.raises(PreconditionFailed):
            await channel.declare_queue("small", arguments={"x-queue-type": "classic"})


async def test_what_is_there_stays_and_is_told(ground: Ground) -> None:
    await ground.declare("orders", "classic")
    app, told = ground.application(), list[str]()

    @app.queue("orders", queue_type="quorum", arguments={"x-max-length": 5})
    async def handle(body: bytes) -> None: ...

    app.listen(lambda event: told.extend(event.notes) if isinstance(event, Ready) else None)
    async with ground.serving(app):
        await app.publish(b"1", key="orders")
    assert any("it is a classic queue, not quorum" in note for note in told)
    assert any("x-max-length is 'not set', not 5" in note for note in told)


@pytest.mark.parametrize("layout", ["return", "ladder"])
@pytest.mark.parametrize("limit", [2, -1])
async def test_a_delivery_limit_of_its_own(ground: Ground, layout: LayoutName, limit: int) -> None:
    """2: the third return is the last, on every version, and the letter is in the queue's dead-letter queue.
    -1: none, also where RabbitMQ has one by itself."""
    app = ground.application()

    @app.queue("orders", layout=layout, delivery_limit=limit)
    async def handle(body: bytes) -> None: ...

    async with ground.serving(app):
        pass
    await ground.put("orders", b"1", delivery_mode=2)
    channel = await ground.channel()
    dlq = "orders.dlq" if layout == "return" else "orders__dlq"
    for _ in range(25):
        delivery = await channel.get("orders")
        if delivery is None:
            break
        channel.reject(delivery.tag, requeue=True)
        await ground.calm()
    if limit == -1:
        await ground.depth_becomes("orders", 1)
        assert await ground.depth(dlq) == 0
    else:
        await ground.depth_becomes(dlq, 1)
        assert await ground.depth("orders") == 0


async def test_handlers_by_type_key_and_header(ground: Ground) -> None:
    app, seen = ground.application(), list[tuple[str, Any]]()
    events = app.queue("events", retries=1, backoff=fixed(0.1))

    @events.on(type="order.made")
    async def made(order: dict[str, Any], message: Message) -> None:
        seen.append(("made", order["n"]))
        if order["n"] == 1 and not message.attempt:
            raise ValueError("once more")

    @events.on(key="invoice.#", headers={"tenant": "acme"})
    def invoice(body: str) -> None:
        seen.append(("invoice", body))

    @events.on(key="events")
    async def by_name(body: str) -> None:
        seen.append(("by name", body))

    app.exchange("shop")
    channel = await ground.channel()
    async with ground.serving(app):
        await channel.bind_queue("events", "shop", "#")
        await app.publish({"n": 1}, key="events", type="order.made")
        await app.publish("i", exchange="shop", key="invoice.sent", headers={"tenant": "acme"})
        await app.publish(
            "j", exchange="shop", key="invoice.sent", headers={"tenant": "other"}, message_id="none"
        )
        await app.publish("k", key="events", type="something")
        await ground.until(lambda: len(seen) == 4)
        await ground.depth_becomes(names.PARKED, 1)
    assert sorted(seen, key=str) == [("by name", "k"), ("invoice", "i"), ("made", 1), ("made", 1)]
    (aside,) = await ground.drain(names.PARKED)
    told = view(aside.message.properties)
    assert told.message_id == "none"
    assert told.headers is not None
    assert told.headers[names.CAUSE] == "handler"
    assert "no handler of events takes it: type '', key 'invoice.sent'" in str(told.headers[names.WHY])


async def test_a_default_handler_takes_the_rest(ground: Ground) -> None:
    app, seen = ground.application(), list[str]()
    events = app.queue("events", timeout=5)

    @events
    async def rest(body: str) -> None:
        seen.append(f"rest {body}")

    @events.on(type="order.made")
    async def made(body: str) -> None:
        seen.append(f"made {body}")

    async with ground.serving(app):
        await app.publish("a", key="events", type="order.made")
        await app.publish("b", key="events")
        await ground.until(lambda: len(seen) == 2)
    assert sorted(seen) == ["made a", "rest b"]


def test_what_cannot_be_is_refused_when_it_is_registered() -> None:
    app = Consumer("amqp://broker.example")

    async def handle(body: bytes) -> None: ...

    wrong: list[dict[str, Any]] = [
        {"bind": ["shop"]},
        {"bind": [("", "key")]},
        {"bind": [("shop",)]},
        {"queue_type": "stream"},
        {"arguments": {"x-queue-type": "quorum"}},
        {"arguments": {"x-dead-letter-exchange": "dlx"}},
        {"arguments": {"x-delivery-limit": 3}},
        {"delivery_limit": 0},
        {"delivery_limit": 3, "queue_type": "classic"},
        {"delivery_limit": 3, "layout": "loop", "backoff": fixed(1)},
        {"delivery_limit": 3, "layout": "native", "backoff": fixed(1)},
        {"delivery_limit": 3, "layout": "external"},
        {"queue_type": "classic", "layout": "external"},
    ]
    for one in wrong:
        with pytest.raises(UsageError, match="queue orders: "):
            app.queue("orders", **one)(handle)
    events = app.queue("events")
    with pytest.raises(UsageError, match="expected type="):
        events.on()
    events.on(type="a")(handle)
    with pytest.raises(UsageError, match="got a second"):
        events.on(type="a")(handle)
    events(handle)
    with pytest.raises(UsageError, match="expected one handler"):
        events(handle)
    with pytest.raises(UsageError, match="expected one handler"):
        app.queue("events")(handle)
    with pytest.raises(UsageError, match="expected one handler"):
        app.queue("events").on(type="b")(handle)
    app.exchange("shop")
    app.exchange("shop", type="topic")
    for name, kind in (("shop", "fanout"), ("", "topic"), ("amq.topic", "topic")):
        with pytest.raises(UsageError, match="exchange: expected"):
            app.exchange(name, type=kind)  # type: ignore[arg-type]  # one of them is enough to be wrong
