"""A line to the broker that is lost at the worst moment: two copies at most, and they say that they are one.

`return` and `ladder` publish a retry and ack; `loop`, `native` and `external` reject, which is one word: it
arrives or it does not. All but `external` publish what is put aside; all but `native` publish a suspect back
into its queue.

About `consumer.queues.settling`, `consumer.queues.hand`, `consumer.queues.suspicion`,
`testing.cuttable_line`.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.brokers import Vhost
from tests.consuming import (
    ACK,
    ASIDE,
    DELAY_S,
    PUBLISH,
    REJECT,
    SUSPECT,
    CutBefore,
    assert_intact,
    assert_rejected,
    consumer,
    declare_orders,
    each_publishing,
    nothing_left,
    on_this_broker,
    post,
    serving,
    taken,
    through,
    until,
    until_depth,
)

from deadletter import Message, Park, fixed
from deadletter.amqp.address import parse_addresses
from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName
from deadletter.testing.cuttable_line import Plug
from deadletter.testing.node.private import PrivateBroker

each_suspecting = pytest.mark.parametrize("layout", ["return", "ladder", "loop", "external"], indirect=True)
"""In `native` a delivery is a retry, and the broker ends them."""


@pytest.fixture
def layout(request: pytest.FixtureRequest, broker: PrivateBroker) -> LayoutName:
    return on_this_broker(request.param, broker)


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
    assert len(set(seen)) == 1
    await nothing_left(vhost)


# -- suspects ------------------------------------------------------------------------------------------------
@each_suspecting
async def test_the_line_is_lost_between_putting_a_suspect_back_and_its_ack(
    vhost: Vhost, layout: LayoutName
) -> None:
    declare_orders(vhost, layout)
    async with CutBefore(parse_addresses(vhost.url)[0], ACK) as plug:
        app = consumer(vhost, layout, through(vhost, plug))
        seen: dict[bytes, list[str]] = {b"first": [], b"second": []}

        @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S), deliveries=10)
        async def handle(message: Message) -> None:
            assert message.attempt == 0
            seen[message.body].append(message.id)

        await post(vhost, b"first", b"second", headers=SUSPECT)
        async with serving(app):
            await until(lambda: sum(map(len, seen.values())) == 3, "both, and a copy")
            await asyncio.sleep(0.2)
    assert plug.cuts == 1
    # the second had been put back, which had arrived, and its ack had not
    assert {body: len(ids) for body, ids in seen.items()} == {b"first": 1, b"second": 2}
    assert len(set(seen[b"second"])) == 1
    await nothing_left(vhost)


@each_suspecting
@pytest.mark.parametrize("cuts", [1, 2])
async def test_the_line_is_lost_while_a_suspect_is_handled_alone(
    vhost: Vhost, layout: LayoutName, cuts: int
) -> None:
    """It counts, because a handler that makes the broker hang up looks the same: once is no harm, and after
    `deliveries` it is put aside."""
    declare_orders(vhost, layout)
    good = [b"good%d" % n for n in range(5)]
    async with Plug(parse_addresses(vhost.url)[0]) as plug:
        app = consumer(vhost, layout, through(vhost, plug))
        suspected: list[str] = []
        running: set[bytes] = set()
        beside: list[set[bytes]] = []
        done: list[bytes] = []

        @app.queue("orders", layout=layout, retries=3, backoff=fixed(DELAY_S), deliveries=4)
        async def handle(message: Message) -> None:
            assert message.attempt == 0
            running.add(message.body)
            try:
                if message.body == b"suspect":
                    suspected.append(message.id)
                    beside.append(running - {b"suspect"})
                    if len(suspected) <= cuts:
                        plug.cut()
                        await asyncio.sleep(600)
                await asyncio.sleep(0.01)
                done.append(message.body)
            finally:
                running.discard(message.body)

        await post(vhost, *good[:3])
        await post(vhost, b"suspect", headers=SUSPECT)
        await post(vhost, *good[3:])
        async with serving(app):
            await until(lambda: set(done) >= set(good), "the good ones")
            if cuts == 1:
                await until(lambda: b"suspect" in done, "the suspect")
                await asyncio.sleep(0.2)
            else:
                letter = (await taken(vhost, ASIDE[layout], 1))[0]
                assert_intact(letter, b"suspect")
                assert letter.headers[names.ID] == suspected[0]
                if layout == "external":
                    assert_rejected(letter)
                else:
                    assert letter.headers[names.CAUSE] == "killed-its-consumer"
    assert plug.cuts == cuts
    assert len(suspected) == 2
    assert len(set(suspected)) == 1
    assert beside == [set(), set()]
    # An ack that is on the line when it is cut may be gone with it: then that one comes again, once per cut.
    assert set(done) == ({*good, b"suspect"} if cuts == 1 else set(good))
    assert max(Counter(done).values()) <= 1 + cuts
    await nothing_left(vhost)


async def test_a_broker_that_goes_while_it_stops_ends_it(vhost: Vhost) -> None:
    """Who is asked to end looks for no other line: nobody would ask a second time."""
    declare_orders(vhost, "ladder")
    begun = asyncio.Event()
    async with Plug(parse_addresses(vhost.url)[0]) as plug:
        app = consumer(vhost, "ladder", through(vhost, plug))

        @app.queue("orders", layout="ladder")
        async def handle(body: bytes) -> None:
            begun.set()
            await asyncio.sleep(1)

        ending = asyncio.create_task(app.serve())
        await post(vhost, b"one")
        await begun.wait()
        app.stop()
        await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        await ending
    await until_depth(vhost, "orders", 1)
