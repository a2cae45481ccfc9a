"""Quorum queues all the way: `{q}` dies into `{q}.retry`, which sends back after its TTL; `{q}.dlq` is a
fanout with a queue of the same name, for what fails for good.

A handler fails, its message waits, comes back, and is put aside when the retries are used up, or at once
when the error is permanent: with everything made by us; and with all of it there before us, as the document
configures it.

About `core.layouts.looping`, `consumer.queues.layout_routes`.
"""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from tests.brokers import Vhost
from tests.consuming import CLOCKS_S, nothing_left, post, serving, taken
from tests.serving import Application

from deadletter import Consumer, Message, Park, fixed
from deadletter.core.letter import names

DELAY_S = 0.5
RETRIES = 2


async def declare_all(app: Application) -> None:
    """As its configuration says."""
    await app.declare("orders", x_dead_letter_exchange="", x_dead_letter_routing_key="orders.retry")
    await app.declare(
        "orders.retry",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="orders",
        x_message_ttl=int(DELAY_S * 1000),
    )
    await app.channel.declare_exchange("orders.dlq", "fanout")
    await app.declare("orders.dlq")
    await app.channel.bind_queue("orders.dlq", "orders.dlq", "")


@pytest.mark.parametrize("made_by", ["us", "the document"])
async def test_it_fails_waits_comes_back_and_is_put_aside(vhost: Vhost, made_by: str) -> None:
    if made_by == "the document":
        async with Application(vhost.url) as application:
            await declare_all(application)
    app = Consumer(vhost.url, api=vhost.api)
    seen: list[tuple[int, float]] = []

    @app.queue("orders", layout="loop", retries=RETRIES, backoff=fixed(DELAY_S))
    async def handle(order: dict[str, int], message: Message) -> None:
        if order["n"] == 2:
            raise Park("no such article")
        seen.append((message.attempt, time.monotonic()))
        raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, b'{"n": 2}', b'{"n": 1}')
        failed = {letter.body: letter for letter in await taken(vhost, "orders.dlq", 2)}
    assert [attempt for attempt, _ in seen] == list(range(RETRIES + 1))
    waited = [after - before for (_, before), (_, after) in pairwise(seen)]
    assert all(really >= DELAY_S - CLOCKS_S for really in waited), waited
    assert failed[b'{"n": 1}'].headers[names.CAUSE] == "retries-exhausted"
    assert failed[b'{"n": 1}'].headers[names.ORIGIN_QUEUE] == "orders"
    assert failed[b'{"n": 2}'].headers[names.CAUSE] != "retries-exhausted"
    await nothing_left(vhost)
