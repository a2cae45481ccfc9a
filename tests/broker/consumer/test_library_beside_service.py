"""The library and `dlq serve` on one queue: both speak the same headers, and a letter passes between them.

About `consumer.queues.layout_routes`, `consumer.queues.settling`, `service.intake.sorting`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import Vhost
from tests.consuming import (
    DELAY_S,
    HEADERS,
    assert_intact,
    declare_orders,
    nothing_left,
    post,
    serving,
    taken,
    until,
)
from tests.serving import served

from deadletter import Consumer, Message, fixed
from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName


async def test_a_letter_between_the_library_and_the_service(vhost: Vhost, tmp_path: Path) -> None:
    """`external`: the application rejects, `dlq serve` delays and sends back, and parks what is exhausted."""
    declare_orders(vhost, "external")
    settings = """
[[watches]]
dlq = "orders.dlq"
[default_policy]
retries = 2
backoff = { kind = "fixed", delays = ["300ms"] }
[guards.breaker]
enabled = false
"""
    app = Consumer(vhost.url, api=vhost.api)
    seen: dict[bytes, list[int]] = {b"later": [], b"never": []}
    headers: dict[bytes, list[dict[str, Any]]] = {b"later": [], b"never": []}
    ids: dict[bytes, set[str]] = {b"later": set(), b"never": set()}

    @app.queue("orders", layout="external", retries=2)
    async def handle(body: bytes, message: Message) -> None:
        seen[body].append(message.attempt)
        headers[body].append(dict(message.headers))
        if message.attempt:
            ids[body].add(message.id)
        if body == b"never" or message.attempt < 2:
            raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        with await asyncio.to_thread(lambda: served(vhost, tmp_path, settings, start=False)) as instances:
            await asyncio.to_thread(instances[0].start)
            await post(vhost, b"later", b"never")
            await until(lambda: seen == {b"later": [0, 1, 2], b"never": [0, 1, 2]}, "all tries")
            parked = (await taken(vhost, names.PARKED, 1))[0]
    for body, each_time in headers.items():
        assert names.ATTEMPT not in each_time[0]
        assert [found[names.ATTEMPT] for found in each_time[1:]] == [1, 2]
        assert {found[names.ORIGIN_QUEUE] for found in each_time[1:]} == {"orders"}
        assert {found[names.ID] for found in each_time[1:]} == ids[body]
        assert len(ids[body]) == 1
        assert all(HEADERS.items() <= found.items() for found in each_time)
    assert_intact(parked, b"never")
    assert {parked.headers[names.ID]} == ids[b"never"]
    assert (parked.headers[names.ATTEMPT], parked.headers[names.ORIGIN_QUEUE]) == (2, "orders")
    await nothing_left(vhost)


@pytest.mark.slow
async def test_a_letter_of_the_service_goes_on_with_the_library(vhost: Vhost, tmp_path: Path) -> None:
    """An application that left retrying to `dlq serve` takes it into its own hands, and back: the attempts
    count on, and it stays the same letter."""
    declare_orders(vhost, "external")
    settings = """
[[watches]]
dlq = "orders.dlq"
[default_policy]
retries = 4
backoff = { kind = "fixed", delays = ["300ms"] }
[guards.breaker]
enabled = false
"""
    seen: list[tuple[str, int]] = []
    ids: list[str] = []

    def application(layout: LayoutName) -> Consumer:
        app = Consumer(vhost.url, api=vhost.api)

        @app.queue("orders", layout=layout, retries=4, backoff=fixed(DELAY_S))
        async def handle(message: Message) -> None:
            assert message.body == b"order"
            seen.append((layout, message.attempt))
            ids.append(message.id)
            app.stop()
            raise ConnectionError("the warehouse does not answer")

        return app

    with await asyncio.to_thread(lambda: served(vhost, tmp_path, settings)):
        await post(vhost, b"order")
        hands: tuple[LayoutName, ...] = ("external", "return", "return", "external", "external")
        for layout in hands:
            await asyncio.wait_for(application(layout).serve(), 60)
        letter = (await taken(vhost, names.PARKED, 1))[0]
    assert seen == list(zip(hands, range(5), strict=True))
    assert_intact(letter, b"order")
    assert letter.headers[names.ATTEMPT] == 4
    assert {letter.headers[names.ID]} == set(ids[1:])  # the service gave it its id
    await nothing_left(vhost)
