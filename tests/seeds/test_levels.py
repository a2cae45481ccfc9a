"""The processor with numbered delays: `retry-queue`, `queue.delay.<n>`, `retry-queue-<n>`, `dlq-queue`.

A message of `rk.test.fail` fails, waits in `queue.delay.1`, comes back, fails, and is in `dlq-queue`: with
everything made by us; and with all exchanges, queues and bindings there before us, letter by letter as the
tables of the document have them, with their slips: `dlq-queue` bound with the name of its exchange, and the
numbered queues bound with no key at all.

About `core.layouts.levels`, `service.intake.addressing`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.service.test_levels_service import (
    EXCHANGE,
    QUEUES,
    application,
    dead,
    letter,
    never,
    processor,
)
from tests.brokers import Vhost
from tests.serving import Application

from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value

DELAYS_MS = (10_000, 15_000, 20_000)


async def declare_all(app: Application) -> None:
    """As the tables have it."""
    for exchange in ("retry-exchange", "route-delay", "dlq-exchange", EXCHANGE):
        await app.channel.declare_exchange(exchange, "topic")
    for queue in ("retry-queue", "dlq-queue"):
        await app.channel.declare_queue(queue)
    for number, delay_ms in enumerate(DELAYS_MS, 1):
        await app.channel.declare_exchange(f"retry-exchange-{number}", "topic")
        await app.channel.declare_queue(f"retry-queue-{number}")
        await app.channel.bind_queue(f"retry-queue-{number}", f"retry-exchange-{number}", "")
        delay: dict[str, Value] = {
            "x-dead-letter-exchange": f"retry-exchange-{number}",
            "x-dead-letter-routing-key": f"retry.#.{number}",
            "x-message-ttl": delay_ms,
        }
        await app.channel.declare_queue(f"queue.delay.{number}", arguments=delay)
        await app.channel.bind_queue(f"queue.delay.{number}", "route-delay", f"binding.#.{number}")
    await app.channel.bind_queue("retry-queue", "retry-exchange", "retry-routing-key")
    await app.channel.bind_queue("dlq-queue", "dlq-exchange", "dlq-exchange")


@pytest.mark.parametrize("made_by", ["us", "the document"])
async def test_it_fails_waits_comes_back_and_is_put_aside(vhost: Vhost, tmp_path: Path, made_by: str) -> None:
    if made_by == "the document":
        async with Application(vhost.url) as app:
            await declare_all(app)
    rows = [(n, key, 1) for n, key in enumerate(QUEUES.values(), start=1)]
    with processor(vhost, tmp_path, '[[watches]]\nlayout = "levels"\n', rows):
        async with application(vhost) as app:
            await app.consume("test-pass-queue", lambda _d, _n: True)
            await app.consume("test-fail-queue", never, keep=True)
            await app.consume("test-fail-pass-queue", lambda _d, count: count > 1)
            for key in QUEUES.values():
                await app.publish(EXCHANGE, key, [letter(key.encode())])
            (failed,) = await dead(vhost, 1)
            await app.until(lambda: app.seen["test-fail-pass-queue", b"rk.test.fail.pass"] == 2, 120)
            assert app.seen["test-pass-queue", b"rk.test.pass"] == 1
            assert app.seen["test-fail-queue", b"rk.test.fail"] == 2
            first, second = (at for _, _, at in app.deliveries)
            assert second - first >= DELAYS_MS[0] / 1000 - 0.01
            assert failed.body == b"rk.test.fail"
            assert failed.headers[names.ORIGIN_QUEUE] == "test-fail-queue"
            assert failed.headers[names.ORIGIN_ROUTING_KEY] == "rk.test.fail"
            assert failed.headers[names.CAUSE] == "retries-exhausted"
            for queue in ("retry-queue", "queue.delay.1", "retry-queue-1", "deadletter.due", *QUEUES):
                assert await app.depth(queue) == 0, queue
