"""A consumer's life on a real broker: deaths, ends, pauses, budgets, batches, and where messages go.

About `consumer.app`, `consumer.serving`, `consumer.queues.workers`, `consumer.queues.hand`,
`consumer.queues.layout_routes`, `consumer.statistics`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pika
import pytest
from tests import consuming, postbox
from tests.brokers import Vhost, call, seen_by
from tests.consuming import depth, until, until_depth

from deadletter.consumer.app import Consumer, DepthAlert
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event, Fate, Handled, Paused, Resumed
from deadletter.consumer.idempotency import MemoryIds
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import BatchFailed, RetryLater, park
from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName


@asynccontextmanager
async def serving(app: Consumer) -> AsyncIterator[list[Handled]]:
    """What became of each message, as it becomes known."""
    told: list[Handled] = []
    app.listen(lambda event: told.append(event) if isinstance(event, Handled) else None)
    async with consuming.serving(app):
        yield told


async def fill(
    vhost: Vhost,
    queue: str,
    *bodies: bytes,
    headers: dict[str, object] | None = None,
    message_id: str | None = None,
) -> None:
    """Confirmed, one by one; whoever consumes the queue may have them at once."""

    def work() -> None:
        properties = pika.BasicProperties(delivery_mode=2, headers=headers, message_id=message_id)
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", queue, body, properties, mandatory=True)

    await asyncio.to_thread(work)


# -- ending --------------------------------------------------------------------------------------------------
async def test_at_the_end_handlers_finish_and_the_rest_is_given_back(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", *(b"%d" % n for n in range(20)))
    app = Consumer(vhost.url, api=vhost.api)
    begun: list[bytes] = []
    ended: list[bytes] = []
    go = asyncio.Event()

    @app.queue("orders", layout="ladder", concurrency=3)
    async def handle(body: bytes) -> None:
        begun.append(body)
        await go.wait()
        ended.append(body)

    async with serving(app):
        await until(lambda: len(begun) == 3, "three handlers")
        app.stop()
        await asyncio.sleep(0.3)
        go.set()
    assert sorted(ended) == sorted(begun)
    assert len(ended) == 3
    left = await asyncio.to_thread(postbox.drain, vhost.url, "orders", expect=17)
    assert {post.body for post in left} == {b"%d" % n for n in range(20)} - set(ended)


async def test_a_handler_that_outlives_the_grace_is_cancelled_and_its_message_given_back(
    vhost: Vhost,
) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"slow", b"acked")
    app = Consumer(vhost.url, api=vhost.api, grace=0.2)
    begun: list[bytes] = []
    cancelled: list[bytes] = []

    @app.queue("orders", layout="ladder")
    async def handle(message: Message) -> None:
        begun.append(message.body)
        if message.body == b"acked":
            await message.ack()  # that word is kept
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(message.body)
            raise

    async with serving(app):
        await until(lambda: len(begun) == 2, "both handlers")
    assert sorted(cancelled) == [b"acked", b"slow"]
    left = await asyncio.to_thread(postbox.drain, vhost.url, "orders", expect=1)
    assert [post.body for post in left] == [b"slow"]


async def test_fewer_at_once_than_slots(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders")
    await fill(vhost, "orders", *(b"%d" % n for n in range(10)))
    app = Consumer(vhost.url, api=vhost.api)
    running = most = done = 0

    @app.queue("orders", layout="ladder", prefetch=1, concurrency=10)
    async def handle(_: bytes) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1

    async with serving(app):
        await until(lambda: done == 10, "ten messages")
    assert most == 1


# -- waiting -------------------------------------------------------------------------------------------------
async def test_while_the_health_check_fails_nothing_is_taken_and_nothing_lost(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    bodies = [b"%d" % n for n in range(40)]
    healthy = True
    app = Consumer(vhost.url, api=vhost.api)
    handled: list[bytes] = []
    events: list[Event] = []
    app.listen(events.append)
    go = asyncio.Event()

    async def check() -> bool:
        return healthy

    @app.queue("orders", layout="ladder", concurrency=2, prefetch=20, health=check)
    async def handle(body: bytes) -> None:
        await go.wait()
        handled.append(body)

    async with serving(app):
        await fill(vhost, "orders", *bodies)
        healthy = False
        async with asyncio.timeout(60):
            # also while two handlers are not at their end
            while await depth(vhost, "orders") != 38:  # noqa: ASYNC110 -- the broker tells of no event
                await asyncio.sleep(0.1)
        go.set()
        await until(lambda: any(isinstance(event, Paused) for event in events), "the pause")
        assert len(handled) == 2
        assert await depth(vhost, "orders") == 38
        healthy = True
        await until(lambda: len(handled) == 40, "the rest")
    assert sorted(handled) == sorted(bodies)
    assert any(isinstance(event, Resumed) for event in events)
    assert await depth(vhost, "orders") == 0


async def test_retries_over_budget_wait_and_nothing_is_lost(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", *(b"bad%d" % n for n in range(5)), b"good")
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders", layout="ladder", retries=3, backoff=fixed(600), budget=6)
    async def handle(body: bytes) -> None:
        if body.startswith(b"bad"):
            raise ValueError("no")

    async with serving(app) as heard:
        await until(lambda: len(heard) == 6, "all six")
        # one may go at once, the next in ten seconds; who waits keeps no slot
        await until_depth(vhost, "orders__retry.1", 1)
        await asyncio.sleep(0.5)
        assert await depth(vhost, "orders__retry.1") == 1
        assert await depth(vhost, "orders") == 0
    # at the end they go: they have failed, and that is not forgotten
    assert await depth(vhost, "orders__retry.1") == 5
    assert await depth(vhost, "orders") == 0


# -- where they go -------------------------------------------------------------------------------------------
async def test_a_delay_of_its_own_on_a_ladder(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"x")
    app = Consumer(vhost.url, api=vhost.api)
    seen: list[tuple[int, float]] = []

    @app.queue("orders", layout="ladder", retries=3, backoff=fixed(600), on={KeyError: fixed(0.25)})
    async def handle(message: Message) -> None:
        seen.append((message.attempt, time.monotonic()))
        if message.attempt == 0:
            raise RetryLater(after=0.2)
        if message.attempt == 1:
            raise KeyError("x")

    async with serving(app) as heard:
        await until(lambda: len(seen) == 3, "three tries")
        await until(lambda: len(heard) == 3, "the end of the third")
        assert [event.delay_ms for event in heard] == [200, 250, None]
        found = (await app.statistics())["orders"]
    assert [attempt for attempt, _ in seen] == [0, 1, 2]
    assert seen[1][1] - seen[0][1] >= 0.2
    assert "orders__retry.250ms" in [level.queue for level in found.levels]


JITTER = fixed(0.5, jitter=0.4)
SPREAD_MS = (300, 500, 700)


def spread_out(app: Consumer, back: dict[bytes, float]) -> None:
    """Every message fails once; `back` is how long it was away."""
    failed: dict[bytes, float] = {}

    @app.queue("orders", layout="ladder", retries=3, backoff=JITTER)
    async def handle(body: bytes, message: Message) -> None:
        if message.attempt:
            back[body] = time.monotonic() - failed[body]
            return
        failed[body] = time.monotonic()
        raise ConnectionError("the warehouse does not answer")


async def test_jitter_on_a_ladder(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", *(b"%d" % n for n in range(60)))
    app = Consumer(vhost.url, api=vhost.api)
    back: dict[bytes, float] = {}
    spread_out(app, back)
    async with serving(app) as heard:
        await until(lambda: len(back) == 60, "all of them again")
        found = (await app.statistics())["orders"]
    asked = {event.delay_ms for event in heard if event.fate is Fate.RETRIED}
    assert asked == set(SPREAD_MS)
    assert min(back.values()) >= 0.3 - consuming.CLOCKS_S
    beside = [level.queue for level in found.levels if level.queue.endswith("ms")]
    assert beside == ["orders__retry.300ms", "orders__retry.700ms"]


async def test_jitter_whose_queues_may_not_be_declared_takes_the_rung(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    spread_out(ready := Consumer(vhost.url, api=vhost.api), {})
    async with serving(ready):
        pass
    await fill(vhost, "orders", *(b"%d" % n for n in range(60)))
    back: dict[bytes, float] = {}
    with seen_by(vhost, configure="^deadletter\\.asked$", write=".*", read=".*") as small:
        spread_out(app := Consumer(small.url, api=small.api), back)
        async with serving(app) as heard:
            await until(lambda: len(back) == 60, "all of them again")
    assert not [event for event in heard if event.fate is Fate.STUCK]
    assert min(back.values()) >= 0.5 - consuming.CLOCKS_S
    there: list[dict[str, str]] = call(vhost.broker, "GET", "queues", vhost.name)
    assert not [queue["name"] for queue in there if queue["name"].endswith("ms")]


@pytest.mark.parametrize(
    ("layout", "place"), [("ladder", "orders__retry.900000ms"), ("return", "deadletter.asked.900000")]
)
async def test_a_delay_that_was_asked_for_is_seen_and_let_out(
    vhost: Vhost, layout: LayoutName, place: str
) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"x")
    app = Consumer(vhost.url, api=vhost.api)
    attempts: list[int] = []

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(600))
    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        if message.attempt == 0:
            raise RetryLater(after=900)

    async with serving(app):
        for _ in range(300):
            levels = (await app.statistics())["orders"].levels
            if (place, 900_000, 1) in [(one.queue, one.delay_ms, one.depth) for one in levels]:
                break
            await asyncio.sleep(0.1)
        tallies = await app.drain("orders", 900)
        assert {name: tally.moved for name, tally in tallies.items()} == {place: 1}
        await until(lambda: attempts == [0, 1], "it again, long before its time")


async def test_statistics_and_letting_out_what_waits(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"later", b"never", b"later")
    app = Consumer(vhost.url, api=vhost.api)
    attempts: list[int] = []

    @app.queue("orders", layout="ladder", retries=2, backoff=fixed(600, 900), on={KeyError: park})
    async def handle(body: bytes, message: Message) -> None:
        attempts.append(message.attempt)
        if body == b"never":
            raise KeyError("x")
        if message.attempt == 0:
            raise ValueError("x")

    async with serving(app) as heard:
        await until(lambda: len(heard) == 3, "all three")
        await until_depth(vhost, "orders__retry.1", 2)
        await until_depth(vhost, "orders__dlq", 1)
        found = (await app.statistics())["orders"]
        assert (found.layout, found.depth, found.consumers) == ("ladder", 0, 1)
        assert (found.parked_in, found.parked) == ("orders__dlq", 1)
        assert [(one.queue, one.delay_ms, one.depth) for one in found.levels] == [
            ("orders__retry.1", 600_000, 2),
            ("orders__retry.2", 900_000, 0),
        ]
    tallies = await app.drain("orders", 600)  # it need not run
    assert {name: tally.moved for name, tally in tallies.items()} == {"orders__retry.1": 2}
    assert await depth(vhost, "orders") == 2
    async with serving(app):
        await until(lambda: len(attempts) == 5, "the two")
    assert sorted(attempts) == [0, 0, 0, 1, 1]


async def test_batches(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", *(b"%d" % n for n in range(25)), b"no number", b"100", b"200")
    app = Consumer(vhost.url, api=vhost.api)
    sizes: list[int] = []
    done: list[int] = []

    @app.batch(
        "orders", size=10, wait=0.3, layout="ladder", retries=1, backoff=fixed(0.2), on={KeyError: park}
    )
    async def handle(numbers: list[int], messages: list[Message]) -> None:
        sizes.append(len(numbers))
        failed: dict[int, Exception] = {}
        for place, number in enumerate(numbers):
            if number == 200:
                failed[place] = KeyError("never")
            elif number == 100 and messages[place].attempt == 0:
                failed[place] = ValueError("not yet")
            else:
                done.append(number)
        if failed:
            raise BatchFailed(failed)

    async with serving(app):
        await until(lambda: len(done) == 26, "all that can be done")
    assert sorted(done) == [*range(25), 100]
    assert max(sizes) == 10
    parked = await asyncio.to_thread(postbox.drain, vhost.url, "orders__dlq", expect=2)
    assert {post.body: post.headers[names.CAUSE] for post in parked} == {
        b"no number": "undecodable",
        b"200": "permanent-error",
    }


async def test_a_message_id_is_handled_once(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"1", b"2", message_id="same")
    app = Consumer(vhost.url, api=vhost.api)
    handled: list[bytes] = []

    @app.queue("orders", layout="ladder", idempotent=MemoryIds())
    async def handle(body: bytes) -> None:
        handled.append(body)

    async with serving(app) as heard:
        await until(lambda: len(heard) == 2, "both")
    assert len(handled) == 1
    assert sorted(event.fate for event in heard) == [Fate.DONE, Fate.SKIPPED]
    assert await depth(vhost, "orders") == 0


async def test_headers_that_leave_no_room_for_a_word_of_ours(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"large", headers={"x": "y" * 130_500})
    await fill(vhost, "orders", b"next")
    app = Consumer(vhost.url, api=vhost.api)
    seen: list[bytes] = []

    @app.queue("orders", layout="ladder", retries=2, backoff=fixed(0.1))
    async def handle(body: bytes) -> None:
        seen.append(body)
        if body == b"large":
            raise ValueError("no")

    async with serving(app):
        await until(lambda: len(seen) == 2, "both")
        await asyncio.sleep(0.3)
    wrapped = await asyncio.to_thread(postbox.drain, vhost.url, "orders__dlq", expect=1)
    assert len(wrapped) == 1
    assert wrapped[0].body.endswith(b"large")
    assert await depth(vhost, "orders") == 0


async def test_a_rung_that_was_deleted_is_declared_anew(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    app = Consumer(vhost.url, api=vhost.api)
    attempts: list[int] = []

    @app.queue("orders", layout="ladder", retries=2, backoff=fixed(0.2))
    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        if message.attempt == 0:
            raise ValueError("no")

    async with serving(app):
        await asyncio.to_thread(vhost.delete, "queues", "orders__retry.1")
        await fill(vhost, "orders", b"x")
        await until(lambda: attempts == [0, 1], "the retry")


async def test_a_queue_that_is_too_deep_is_told(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", "other")
    await fill(vhost, "other", b"1", b"2", b"3")
    app = Consumer(vhost.url, api=vhost.api)
    told: list[DepthAlert] = []

    @app.queue("orders", layout="ladder")
    async def handle(_: bytes) -> None: ...

    async def call(alert: DepthAlert) -> None:
        told.append(alert)

    app.watch_depth("other", above=2, call=call, every=0.05)
    app.watch_depth("other", above=3, call=told.append, every=0.05)
    app.watch_depth("nowhere", above=0, call=told.append, every=0.05)
    async with serving(app):
        await until(lambda: len(told) >= 2, "two alerts")
    assert set(told) == {DepthAlert(queue="other", depth=3, above=2)}


async def test_statistics_and_letting_out_where_delays_are_shared(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", "bills", kind="quorum")
    await fill(vhost, "orders", b"order")
    await fill(vhost, "bills", b"bill")
    app = Consumer(vhost.url, api=vhost.api)
    seen: list[tuple[bytes, int]] = []

    async def handle(body: bytes, message: Message) -> None:
        seen.append((body, message.attempt))
        if message.attempt == 0:
            raise ValueError("no")

    for queue in ("orders", "bills"):
        app.queue(queue, layout="return", retries=2, backoff=fixed(600))(handle)
    async with serving(app) as heard:
        await until(lambda: len(heard) == 2, "both")
        await until_depth(vhost, "deadletter.delay.600000", 2)
        found = (await app.statistics())["bills"]
        assert [(one.queue, one.depth) for one in found.levels] == [("deadletter.delay.600000", 2)]
        assert (found.parked_in, found.parked) == ("deadletter.parked", 0)
        tally = (await app.drain("orders"))["deadletter.delay.600000"]
        assert (tally.moved, tally.left) == (1, 1)
        await until(lambda: (b"order", 1) in seen, "the order, and not the bill")
    assert sorted(seen) == [(b"bill", 0), (b"order", 0), (b"order", 1)]
    assert await depth(vhost, "deadletter.delay.600000") == 1


SUSPECT: dict[str, object] = {names.DELIVERIES: 2, names.ORIGIN_QUEUE: "orders"}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_suspect_is_handled_with_nothing_else_in_hand(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "orders", kind=kind)
    await fill(vhost, "orders", b"a", b"b", b"c")
    await fill(vhost, "orders", b"suspect1", b"suspect2", headers=SUSPECT)
    await fill(vhost, "orders", b"d", b"e")
    app = Consumer(vhost.url, api=vhost.api)
    running: set[bytes] = set()
    beside: list[tuple[bytes, bool]] = []
    waiting: list[int] = []

    @app.queue("orders", layout="ladder", concurrency=5)
    async def handle(body: bytes) -> None:
        running.add(body)
        await asyncio.sleep(0.05)
        beside.append((body, running == {body}))
        if body.startswith(b"suspect"):
            waiting.append(await depth(vhost, "orders"))
        running.remove(body)

    async with serving(app):
        await until(lambda: len(beside) == 7, "all seven")
    alone = {body: was for body, was in beside if body.startswith(b"suspect")}
    assert alone == {b"suspect1": True, b"suspect2": True}
    assert len({body for body, _ in beside}) == 7
    assert waiting == [1, 0]  # the other suspect went back, and then there was none
    assert await depth(vhost, "orders") == 0


async def test_a_suspect_does_not_outlive_the_grace_and_one_whose_turn_has_not_come_is_not_blamed(
    vhost: Vhost,
) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    await fill(vhost, "orders", b"first", b"second", headers=SUSPECT)
    app = Consumer(vhost.url, api=vhost.api, grace=0.2)
    begun: list[bytes] = []

    @app.queue("orders", layout="ladder")
    async def handle(body: bytes) -> None:
        begun.append(body)
        await asyncio.sleep(600)

    async with serving(app):
        await until(lambda: len(begun) == 1, "the first")
    left = await asyncio.to_thread(postbox.drain, vhost.url, "orders", expect=2)
    found = {post.body: (post.redelivered, post.headers[names.DELIVERIES]) for post in left}
    assert found[begun[0]] == (True, 2)
    assert [found[body] for body in found if body != begun[0]] == [(False, 2)]
