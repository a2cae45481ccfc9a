"""What a handler ends with, and what is then on the broker: each outcome, in every layout.

The consumer declares the queue and its layout itself; `external` finds a queue that dies into `orders.dlq`.
What the world does to them is in `test_consumer_lines`, `_gone` and `_kills`.

About `consumer.queues.settling`, `consumer.queues.layout_routes`, `consumer.handlers.handler_end`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from itertools import pairwise

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.consuming import (
    ASIDE,
    CLOCKS_S,
    DELAY_S,
    assert_intact,
    assert_rejected,
    assert_told,
    consumer,
    declare_orders,
    depth,
    each,
    each_publishing,
    has_native,
    nothing_left,
    on_this_broker,
    post,
    serving,
    taken,
    until,
)

from deadletter import Consumer, Message, Park, fixed, park
from deadletter.consumer.events import Fate
from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName
from deadletter.errors import UsageError
from deadletter.testing.node.private import PrivateBroker


@pytest.fixture
def layout(request: pytest.FixtureRequest, broker: PrivateBroker) -> LayoutName:
    return on_this_broker(request.param, broker)


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
    assert [event.delay_ms for event in heard.handled] == [500, 500, None]
    assert len(ids) == 1  # whether it carries one, or the broker sends it round and it is derived
    await nothing_left(vhost)


async def test_transient_goes_where_the_application_leads_it(vhost: Vhost) -> None:
    """`external`: here into a loop of the application's own. The broker takes things off a letter that dies,
    and it is the same letter all the same."""
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
    ids: set[str] = set()

    @app.queue("orders", layout="external", deliveries=2)
    async def handle(message: Message) -> None:
        rejected.append(sum(death.count for death in message.deaths if death.reason == "rejected"))
        ids.add(message.id)
        if len(rejected) < 4:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app) as heard:
        copies: dict[str, object] = {"CC": ["nowhere"]}
        await post(vhost, b"{}", headers=copies, expiration="60000", user_id="guest")
        await until(lambda: len(heard.handled) == 4, "the fourth try")
    assert rejected == [0, 1, 2, 3]
    assert len(ids) == 1
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
    ids: dict[bytes, set[str]] = {}
    bodies = [b"%d" % n for n in range(5)]

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(DELAY_S))
    async def handle(body: bytes, message: Message) -> None:
        attempts.setdefault(body, []).append(message.attempt)
        ids.setdefault(body, set()).add(message.id)
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
        assert ids[body] == {letter.headers[names.ID]}
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


@each_publishing
async def test_a_thread_that_takes_too_long_has_failed_and_is_not_run_beside_itself(
    vhost: Vhost, layout: LayoutName
) -> None:
    app = consumer(vhost, layout)
    running: list[int] = []
    beside: list[int] = []
    ended = threading.Event()

    @app.queue("orders", layout=layout, retries=8, backoff=fixed(DELAY_S), timeout=0.2)
    def handle(message: Message) -> None:
        beside.extend(running)
        running.append(message.attempt)
        if message.attempt == 0:
            ended.wait(60)
        running.remove(message.attempt)

    async with serving(app) as heard:
        await post(vhost, b"slow")
        await until(lambda: len(heard.handled) == 2, "the second try")
        ended.set()
        await until(lambda: heard.handled[-1].fate is Fate.DONE, "the end")
    assert beside == []
    assert all("HandlerTimeout" in event.error for event in heard.handled[:-1])
    await nothing_left(vhost)


@pytest.mark.parametrize("layout", ["return", "ladder"], indirect=True)
async def test_acks_behind_a_retry_go_when_it_is_confirmed(
    vhost: Vhost, layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.consumer.queues.settling.SETTLE_S", 600.0)  # not when a timer says so
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


# -- refusals ------------------------------------------------------------------------------------------------
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
