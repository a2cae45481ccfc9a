"""Routing keys that are not UTF-8, which RabbitMQ takes from anybody, on every way a letter can go.

The key arrives byte for byte wherever it went with; what was wrapped because it could not travel comes out of
`dlq move` as it was; and nothing that is shown or written breaks on it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.commanding import command
from tests.consuming import ASIDE, consumer, serving
from tests.letters import letter, letters
from tests.serving import Application, served

from deadletter import Message as LibraryMessage
from deadletter import fixed
from deadletter.amqp.address import parse_addresses
from deadletter.broker.courier import Courier, Letter, Verdict
from deadletter.broker.verdict import Wrap
from deadletter.consumer.desk import LayoutName
from deadletter.core import message, names
from deadletter.core.message import Message
from deadletter.core.octets import as_text
from deadletter.core.wrapping import CONTENT_TYPE

ODD = b"k\xff\xfe.\xe9t\xe9"
KEY = as_text(ODD)
KINDS = ("classic", "quorum")
SETTINGS = """
[default_policy]
retries = 2
backoff = { kind = "fixed", delays = ["100ms"] }
[guards]
require_consumers = false
[guards.breaker]
enabled = false
"""
WATCH = '[[watches]]\ndlq = "*.dlq"\n'


async def orders(app: Application, kind: str) -> None:
    """A topic exchange leads to the queue; its letters keep their keys when they die."""
    await app.channel.declare_exchange("shop", "topic")
    await app.channel.declare_exchange("shop.dlx", "topic")
    await app.declare("orders.dlq", kind=kind)
    await app.channel.bind_queue("orders.dlq", "shop.dlx", "#")
    await app.declare("orders", kind=kind, x_dead_letter_exchange="shop.dlx")
    await app.channel.bind_queue("orders", "shop", "#")


async def dead(app: Application, kind: str, count: int) -> None:
    """So many letters with such a key in orders.dlq."""
    await orders(app, kind)
    channel = await app.connection.channel()
    await app.publish("shop", KEY, letters("order", count))
    for _ in range(count):
        while (delivery := await channel.get("orders")) is None:
            await asyncio.sleep(0.02)
        channel.reject(delivery.tag, requeue=False)
    while await app.depth("orders.dlq") < count:
        await asyncio.sleep(0.02)
    await channel.close()


async def taken(app: Application, queue: str, count: int) -> list[tuple[bytes, Message]]:
    """Routing key and message of so many."""
    channel = await app.connection.channel()
    found: list[tuple[bytes, Message]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            delivery = await channel.get(queue)
            if delivery is None:
                await asyncio.sleep(0.02)
                continue
            found.append((delivery.routing_key, delivery.message))
            channel.ack(delivery.tag)
    await channel.close()
    return found


async def dlq(*arguments: str, directory: Path) -> tuple[int, str]:
    done = await asyncio.to_thread(command, *arguments, environment={}, directory=directory)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["consume", "sweep"])
async def test_the_service_brings_the_key_home_byte_for_byte(
    vhost: Vhost, tmp_path: Path, kind: str, mode: str
) -> None:
    """Through the delays and straight home; and at the end it is parked whole, with the key in a header."""
    async with Application(vhost.url) as app:
        await orders(app, kind)
        watch = WATCH + ('mode = "sweep"\nevery = "500ms"\n' if mode == "sweep" else "")
        with served(vhost, tmp_path, SETTINGS + watch) as [one]:
            await app.consume("orders", lambda _delivery, times: times > 3, keep=True)
            await app.publish("shop", KEY, letters("order", 5))
            parked = await taken(app, names.PARKED, 5)
            assert one.process.poll() is None
            assert "rror" not in one.said()
        assert {delivery.routing_key for _, delivery, _ in app.deliveries} == {ODD}
        assert set(app.seen.values()) == {3}
        for _, parcel in parked:
            headers = message.view(parcel.properties).headers or {}
            assert headers[names.CAUSE] == "retries-exhausted"
            assert headers[names.ORIGIN_ROUTING_KEY] == ODD
        assert await app.depth("orders.dlq") == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_the_numbered_levels_carry_it_too(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("shop", "topic")
        await app.channel.declare_exchange("retry-exchange", "direct")
        await app.declare(
            "orders",
            kind=kind,
            x_dead_letter_exchange="retry-exchange",
            x_dead_letter_routing_key="retry-routing-key",
        )
        await app.channel.bind_queue("orders", "shop", "#")
        levels = '[[watches]]\nlayout = "levels"\ndelays = ["100ms", "150ms"]\n'
        named = '[[policies]]\nname = "all"\nmatch = { routing_key = "#" }\nretries = 2\n'
        with served(vhost, tmp_path, named + SETTINGS + levels):
            await app.consume("orders", lambda _delivery, times: times > 2, keep=True)
            await app.publish("shop", KEY, letters("order", 5))
            await app.until(lambda: len(app.handled["orders"]) == 5, 60, "five letters handled")
        assert {delivery.routing_key for _, delivery, _ in app.deliveries} == {ODD}


@pytest.mark.parametrize("kind", KINDS)
async def test_commands_move_and_show_it(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await dead(app, kind, 3)
        await app.declare("review", kind=kind)
        code, said = await dlq("peek", "orders.dlq", "--url", vhost.url, directory=tmp_path)
        assert (code, said.count("\\xff\\xfe")) == (0, 6), said
        code, said = await dlq("peek", "orders.dlq", "--json", "--url", vhost.url, directory=tmp_path)
        shown = [one["routing_key"] for one in json.loads(said)["letters"]]
        assert shown == ["k\\xff\\xfe.\\xe9t\\xe9"] * 3
        code, said = await dlq(
            "check", "--dlq", "orders.dlq", "--target", "review", "--max-retries", "0",
            "--url", vhost.url, directory=tmp_path,
        )  # fmt: skip
        assert code == 0, said
        code, said = await dlq("move", "review", "orders", "--url", vhost.url, directory=tmp_path)
        assert code == 0, said
        for _, parcel in await taken(app, "orders", 3):
            headers = message.view(parcel.properties).headers or {}
            assert headers[names.SOURCE_ROUTING_KEY] == ODD
            assert parcel.body.startswith(b"order-")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_move_unwraps_what_was_wrapped(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    """Whoever wrapped it: the application gets its message, properties and body as they were."""
    async with Application(vhost.url) as app:
        await dead(app, kind, 3)
        await app.declare("aside", kind=kind)
        plain = letter(b"DLW1, not wrapped", content_type="text/plain")
        broken = letter(b"DLW1\0\0\xff\xff", content_type=CONTENT_TYPE)
        await app.publish("", "aside", [plain, broken])

        def wrapped(_letter: Letter) -> Verdict:
            return Wrap(routing_key="aside", cause="unreadable", why="a test", at_ms=1)

        tally = await Courier(parse_addresses(vhost.url), source="orders.dlq", decide=wrapped).run()
        assert tally.moved == 3
        code, said = await dlq("move", "aside", "orders", "--url", vhost.url, directory=tmp_path)
        assert code == 1
        assert "shorter than it says" in said
        assert await app.depth("aside") == 1
        found = {parcel.body: message.view(parcel.properties) for _, parcel in await taken(app, "orders", 4)}
        assert sorted(found) == [b"DLW1, not wrapped", b"order-0", b"order-1", b"order-2"]
        for number in range(3):
            view = found[f"order-{number}".encode()]
            assert view.content_type is None
            assert view.headers is not None
            assert view.headers[names.SOURCE_ROUTING_KEY] == ODD
            assert names.CAUSE not in view.headers
            assert isinstance(view.headers[names.DEATHS], list)


@pytest.mark.parametrize("layout", ["return", "ladder", "loop"])
async def test_the_library_takes_it_back_and_puts_it_aside(vhost: Vhost, layout: LayoutName) -> None:
    library = consumer(vhost, layout)
    keys: list[str] = []

    @library.queue("orders", layout=layout, retries=1, backoff=fixed(0.2))
    async def handle(_order: bytes, found: LibraryMessage) -> None:
        keys.append(found.routing_key)
        raise ValueError(f"not {found.routing_key}")

    async with Application(vhost.url) as app, serving(library):
        await app.channel.declare_exchange("shop", "topic")
        await app.channel.bind_queue("orders", "shop", "#")
        await app.publish("shop", KEY, [letter(b"order")])
        [(_, aside)] = await taken(app, ASIDE[layout], 1)
    assert keys == [KEY, KEY]
    headers = message.view(aside.properties).headers or {}
    assert headers[names.ORIGIN_ROUTING_KEY] == ODD
    assert headers[names.ATTEMPT] == 1
    assert aside.body == b"order"
