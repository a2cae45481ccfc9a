"""Delays are what was asked for, and a short one does not wait behind a long one.

`return` and `ladder` have as many delays as are asked for. `loop` and `native` have the queue's own schedule
and refuse rules with another; in `external` the delays are whatever the application or `dlq serve` declared.

About `consumer.queues.settling`, `broker.asked_delays`, `consumer.queues.layout_routes`,
`consumer.queues.due_release`.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from tests.brokers import Vhost
from tests.consuming import (
    CLOCKS_S,
    consumer,
    nothing_left,
    on_this_broker,
    post,
    serving,
    until,
)

from deadletter import Message, RetryLater, fixed
from deadletter.core.topology.layout_names import LayoutName
from deadletter.testing.node.private import PrivateBroker


@pytest.fixture
def layout(request: pytest.FixtureRequest, broker: PrivateBroker) -> LayoutName:
    return on_this_broker(request.param, broker)


class Overloaded(Exception): ...


@pytest.mark.parametrize("layout", ["return", "ladder"], indirect=True)
async def test_a_short_delay_does_not_wait_behind_a_long_one(vhost: Vhost, layout: LayoutName) -> None:
    """The long one is an hour: whoever waits behind it is never seen."""
    app = consumer(vhost, layout)
    failed: dict[bytes, float] = {}
    back: dict[bytes, float] = {}
    asked_s = {b"short": 1.0, b"said": 2.0}

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(1), on={Overloaded: fixed(3600)})
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
        await post(vhost, *(b"long%d" % n for n in range(5)))
        await until(lambda: len(failed) == 5, "the long ones, which wait from now on")
        await post(vhost, *(b"%s%d" % (kind, n) for kind in asked_s for n in range(5)))
        await until(lambda: len(back) == 10, "all that wait a moment")
    for body, at in back.items():
        assert at - failed[body] >= asked_s[body.rstrip(b"0123456789")] - CLOCKS_S


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["return", "ladder"], indirect=True)
async def test_a_second_and_a_minute_together(vhost: Vhost, layout: LayoutName) -> None:
    """`long` waits a minute by its error's rule, `climb` a second and then a minute by the queue's own
    back-off, `short` a second; short ones come again and again while the others wait."""
    app = consumer(vhost, layout)
    failed: dict[tuple[bytes, int], float] = {}
    waited_s: dict[tuple[bytes, int], float] = {}

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(1, 60), on={Overloaded: fixed(60)})
    async def handle(body: bytes, message: Message) -> None:
        kind, attempt = body.rstrip(b"0123456789"), message.attempt
        if attempt:
            waited_s[body, attempt] = time.monotonic() - failed[body, attempt - 1]
        failed[body, attempt] = time.monotonic()
        if kind == b"long" and attempt == 0:
            raise Overloaded("come back later")
        if attempt < (2 if kind == b"climb" else 1):
            raise ConnectionError("the warehouse does not answer")

    def back(kind: bytes, attempt: int) -> list[float]:
        return [s for (body, of), s in waited_s.items() if body.startswith(kind) and of == attempt]

    def is_back(shorts: int) -> bool:
        return len(back(b"short", 1)) == shorts

    async with serving(app):
        await post(vhost, *(b"%s%d" % (kind, n) for kind in (b"long", b"climb") for n in range(10)))
        await until(lambda: len(back(b"climb", 1)) == 10, "the first second of those that climb")
        for wave in (10, 20, 30):
            await post(vhost, *(b"short%d" % n for n in range(wave - 10, wave)))
            await until(partial(is_back, wave), "the short ones")
            await asyncio.sleep(10)
        await until(lambda: len(back(b"long", 1)) + len(back(b"climb", 2)) == 20, "the long ones", 180)
    for asked_s, found in (
        (1.0, back(b"short", 1)),
        (1.0, back(b"climb", 1)),
        (60.0, back(b"long", 1)),
        (60.0, back(b"climb", 2)),
    ):
        assert min(found) >= asked_s
    assert len(waited_s) == 30 + 10 + 2 * 10
    await nothing_left(vhost)
