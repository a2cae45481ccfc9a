"""Two deaths, two queues: which of them a letter belongs to, and whose reason decides about it.

`orders` expires into `orders.late`, whose consumer rejects into `orders.late.dlq`. The queue that failed is
`orders.late`; a policy on `expired` has no say.

About `core.deciding.origin`, `core.deciding.place`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.commanding import command
from tests.letters import headers_of, letters
from tests.serving import Application, served

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import names

KINDS = ("classic", "quorum")
PATIENCE_S = 180.0
"""On a machine that has much else to do; nothing waits so long otherwise."""
SETTINGS = """
[[policies]]
name = "nobody came in time"
match = { reason = "expired" }
retries = 0
then = "discard"
[default_policy]
retries = 3
backoff = { kind = "fixed", delays = ["100ms"] }
[guards]
require_consumers = false
[guards.breaker]
enabled = false
[[watches]]
dlq = "*.dlq"
"""


async def late_orders(app: Application, kind: str) -> None:
    await app.declare("orders.late.dlq", kind=kind)
    await app.channel.declare_exchange("late.dlx", "direct")
    await app.channel.bind_queue("orders.late.dlq", "late.dlx", "orders.late")
    await app.declare("orders.late", kind=kind, x_dead_letter_exchange="late.dlx")
    await app.declare(
        "orders",
        kind=kind,
        x_message_ttl=100,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="orders.late",
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_the_queue_that_failed_last_gets_it_back(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await late_orders(app, kind)
        with served(vhost, tmp_path, SETTINGS):
            await app.consume("orders.late", lambda _delivery, times: times > 2, keep=True)
            await app.publish("", "orders", letters("order", 10))
            await app.until(
                lambda: len(app.handled["orders.late"]) == 10, PATIENCE_S, "all handled in orders.late"
            )
        back = [d for _, d, _ in app.deliveries if names.ATTEMPT in headers_of(d)]
        assert {headers_of(d)[names.ORIGIN_QUEUE] for d in back} == {"orders.late"}
        assert {headers_of(d)[names.ATTEMPT] for d in back} == {1, 2}
        assert await app.depth(names.PARKED) == 0
        assert await app.depth("orders") == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_watch_may_ask_for_the_first_death(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await late_orders(app, kind)
        settings = SETTINGS.replace('reason = "expired"', 'reason = "rejected"') + 'origin_by = "first"\n'
        seen: list[str] = []
        with served(vhost, tmp_path, settings):

            def late(delivery: Delivery, _times: int) -> bool:
                seen.append(str(headers_of(delivery).get(names.ORIGIN_QUEUE)))
                return len(seen) > 1

            await app.consume("orders.late", late)
            await app.publish("", "orders", letters("order", 1))
            await app.until(lambda: len(seen) == 2, PATIENCE_S, "back by way of orders")
        assert seen == ["None", "orders"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_letter_that_failed_here_and_then_there_keeps_its_id(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """It is rejected in `work`, sent back, expires there, goes on to `orders.late` by itself, fails there."""
    async with Application(vhost.url) as app:
        await late_orders(app, kind)
        await app.channel.bind_queue("orders.late.dlq", "late.dlx", "work")
        await app.channel.bind_queue("orders.late", "late.dlx", "work")
        await app.declare("work", kind=kind, x_dead_letter_exchange="late.dlx", x_message_ttl=3_600_000)
        ids: list[str] = []

        def late(delivery: Delivery, times: int) -> bool:
            ids.append(str(headers_of(delivery).get(names.ID)))
            return times > 1

        await app.publish("", "work", letters("job", 1))
        await app.consume("work", lambda _delivery, _times: False)
        await app.consume("orders.late", late)
        with served(vhost, tmp_path, SETTINGS):
            await app.until(lambda: bool(app.handled["orders.late"]), PATIENCE_S, "handled in orders.late")
        assert await app.depth("orders") == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_letter_queue_that_expires_is_no_origin(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    """rejected in `orders`, expired in `orders.first`, found in `orders.final.dlq`: proven link by link."""
    async with Application(vhost.url) as app:
        await app.declare("orders.final.dlq", kind=kind)
        await app.channel.declare_exchange("final", "fanout")
        await app.channel.bind_queue("orders.final.dlq", "final")
        await app.declare("orders.first", kind=kind, x_message_ttl=50, x_dead_letter_exchange="final")
        await app.declare(
            "orders", kind=kind, x_dead_letter_exchange="", x_dead_letter_routing_key="orders.first"
        )
        with served(vhost, tmp_path, SETTINGS):
            await app.consume("orders", lambda _delivery, times: times > 2)
            await app.publish("", "orders", letters("order", 10))
            await app.until(lambda: len(app.handled["orders"]) == 10, PATIENCE_S, "all handled in orders")
        assert await app.depth(names.PARKED) == 0


def test_every_command_names_the_same_queue(vhost: Vhost, tmp_path: Path) -> None:
    async def die() -> None:
        async with Application(vhost.url) as app:
            await late_orders(app, "classic")
            await app.consume("orders.late", lambda _delivery, _times: False)
            await app.publish("", "orders", letters("order", 1))
            await app.until(lambda: len(app.seen) == 1, 120)

    postbox.run(die())
    postbox.wait_for(lambda: postbox.depth(vhost.url, "orders.late.dlq") == 1, "a dead letter")
    config = tmp_path / "deadletter.toml"
    config.write_text(f'[broker]\nurl = "{vhost.url}"\napi = "{vhost.api}"\n{SETTINGS}')

    def told(*arguments: str) -> Any:
        done = command(*arguments, "--json", "--config", str(config), environment={})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (seen,) = told("peek", "orders.late.dlq")["letters"]
    assert seen["origin"]["queue"] == "orders.late"
    for more in ((), ("--watch", "orders.late.dlq")):
        explained = told("policy", "explain", "--queue", "orders.late.dlq", *more)
        assert explained["letter"]["origin"]["queue"] == "orders.late"
        assert explained["steps"][0]["policy"] == "default"
    # It died once in the queue that failed, however often it expired before.
    assert told("check", "--dlq", "orders.late.dlq", "--target", "x", "--max-retries", "1", "--dry-run")
