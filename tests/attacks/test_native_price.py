"""Lost connections and healthy messages: `auto` never makes them an attempt, `native` does and says so.

In the layout `native` the queue counts failures and lost deliveries as one. A hundred messages that nobody
fails on, with a line that is cut five times, ended in the dead-letter queue, without a word of why.

About `core.layouts.native`, `consumer.queues.layout_routes`.
"""

from __future__ import annotations

import asyncio
import json

from tests import consuming, postbox
from tests.brokers import Vhost
from tests.commanding import command
from tests.consuming import on_this_broker, through, until

from deadletter import Consumer, Message, linear
from deadletter.amqp.address import parse_addresses
from deadletter.consumer.events import Fate, Ready
from deadletter.core.letter import names
from deadletter.testing.cuttable_line import Plug
from deadletter.testing.node.private import PrivateBroker

CUTS = 5
BODIES = [b"%d" % n for n in range(60)]


async def test_five_lost_connections_cost_no_attempt_where_auto_chose(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    postbox.fill(vhost.url, "orders", BODIES, dead=False)
    done: set[bytes] = set()
    attempts: set[int] = set()
    async with Plug(parse_addresses(vhost.url)[0]) as plug:
        app = Consumer(through(vhost, plug), api=vhost.api)

        @app.queue("orders", retries=3, backoff=linear(1), concurrency=5, prefetch=40)
        async def handle(message: Message) -> None:
            attempts.add(message.attempt)
            if plug.cuts < CUTS and len(done) >= 5 * plug.cuts:
                plug.cut()
            await asyncio.sleep(0.01)
            done.add(message.body)

        async with consuming.serving(app) as heard:
            await until(lambda: len(done) == len(BODIES), "all of them", seconds=120)
        assert plug.cuts == CUTS
    (ready, *_) = [event for event in heard.events if isinstance(event, Ready)]
    assert ready.layouts == ("return",)
    assert any("every lost connection" in note for note in ready.notes)
    assert attempts == {0}
    assert not [event for event in heard.handled if event.fate in (Fate.PARKED, Fate.RETRIED)]
    await consuming.nothing_left(vhost, "orders")  # a copy of one that was done may have come back


async def test_what_the_broker_parked_in_native_is_told_with_a_cause(
    vhost: Vhost, broker: PrivateBroker
) -> None:
    """The price of `native`, as its page says; and it is not silent for whoever looks."""
    on_this_broker("native", broker)
    postbox.declare(vhost.url, "orders", kind="quorum")
    postbox.fill(vhost.url, "orders", BODIES[:10], dead=False)
    begun: list[bytes] = []
    async with Plug(parse_addresses(vhost.url)[0]) as plug:
        app = Consumer(through(vhost, plug), api=vhost.api)

        @app.queue("orders", layout="native", retries=2, backoff=linear(0.1))
        async def handle(body: bytes) -> None:
            begun.append(body)
            await asyncio.sleep(600)

        async with consuming.serving(app) as heard:
            (ready, *_) = [event for event in heard.events if isinstance(event, Ready)]
            for cut in range(1, 4):
                await until(lambda cut=cut: len(begun) >= 10 * cut, "all of them")  # type: ignore[misc]
                plug.cut()
            await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 10, "the broker parks them")
    assert any("every lost connection" in note for note in ready.notes)
    seen = await asyncio.to_thread(
        command, "peek", "orders.dlq", "--json", environment={"DLQ_URL": vhost.url, "DLQ_API": vhost.api}
    )
    letters = json.loads(seen.stdout)["letters"]
    assert {letter["put_aside"]["cause"] for letter in letters} == {"delivery-limit"}
    assert all("lost its connection" in letter["put_aside"]["why"] for letter in letters)
    left = postbox.drain(vhost.url, "orders.dlq", expect=10)
    assert len(left) == 10
    assert all(names.CAUSE not in post.headers for post in left)  # the broker wrote nothing
