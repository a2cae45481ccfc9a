"""Routing keys that are not UTF-8, which RabbitMQ takes from anybody, on every way a letter can go.

The key arrives byte for byte wherever it went with; what was wrapped because it could not travel comes out of
`dlq move` as it was; and nothing that is shown or written breaks on it.

About `core.letter.key_bytes`, `core.letter.wrapping`, `core.letter.envelope`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.commanding import command
from tests.consuming import ASIDE, consumer, serving
from tests.letters import letter, letters
from tests.serving import Application, served

from deadletter import Message as LibraryMessage
from deadletter import fixed
from deadletter.core.letter import message, names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.key_bytes import as_text
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.wrapping import CONTENT_TYPE, wrap
from deadletter.core.topology.layout_names import LayoutName

ODD = b"k\xff\xfe.\xe9t\xe9"
KEY = as_text(ODD)
KINDS = ("classic", "quorum")
PATIENCE_S = 180.0
"""On a machine that has much else to do; nothing waits so long otherwise."""
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


def dead(url: str, kind: str, count: int) -> None:
    """So many letters with such a key in orders.dlq, and an empty queue `aside`."""

    async def work() -> None:
        async with Application(url) as app:
            await orders(app, kind)
            await app.declare("aside", kind=kind)
            await app.consume("orders", lambda _delivery, _times: False)
            await app.publish("shop", KEY, letters("order", count, headers={"tenant": "acme"}, type="order"))
            await app.until(lambda: sum(app.seen.values()) == count, PATIENCE_S, "all rejected")

    postbox.run(work())
    postbox.wait_for(lambda: postbox.depth(url, "orders.dlq") == count, f"{count} dead letters")


async def taken(app: Application, queue: str, count: int) -> list[tuple[bytes, RawMessage]]:
    """Routing key and message of so many."""
    channel = await app.connection.channel()
    found: list[tuple[bytes, RawMessage]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            delivery = await channel.get(queue)
            if delivery is None:
                await asyncio.sleep(0.02)
                continue
            found.append((delivery.routing_key, delivery.message))
            channel.ack(delivery.tag)
    await channel.close()
    return found


def dlq(vhost: Vhost, *arguments: str) -> tuple[int, str]:
    done = command(*arguments, environment={"DLQ_URL": vhost.url, "DLQ_API": vhost.api})
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
            assert "rror" not in one.said()
            assert one.end() == 0  # in good order: what is confirmed is acked
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
            await app.until(lambda: len(app.handled["orders"]) == 5, PATIENCE_S, "five letters handled")
        assert {delivery.routing_key for _, delivery, _ in app.deliveries} == {ODD}


@pytest.mark.parametrize("kind", KINDS)
def test_commands_move_and_show_it(vhost: Vhost, kind: str) -> None:
    dead(vhost.url, kind, 3)
    code, said = dlq(vhost, "peek", "orders.dlq")
    assert (code, said.count("\\xff\\xfe")) == (0, 6), said
    code, said = dlq(vhost, "peek", "orders.dlq", "--json")
    found = json.loads(said)["letters"]
    assert [one["routing_key"] for one in found] == ["k\\xff\\xfe.\\xe9t\\xe9"] * 3
    assert [one["origin"]["routing_keys"] for one in found] == [["k\\xff\\xfe.\\xe9t\\xe9"]] * 3
    code, said = dlq(vhost, "policy", "explain", "--queue", "orders.dlq")
    assert code == 0, said
    code, said = dlq(vhost, "check", "--dlq", "orders.dlq", "--target", "aside", "--max-retries", "0")
    assert code == 0, said
    code, said = dlq(vhost, "move", "aside", "orders")
    assert code == 0, said
    for parcel in postbox.take_raw(vhost.url, "orders"):
        headers = message.view(parcel.properties).headers or {}
        assert headers[names.SOURCE_ROUTING_KEY] == ODD
        assert parcel.body.startswith(b"order-")


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_unwraps_what_was_wrapped(vhost: Vhost, kind: str) -> None:
    """Whoever wrapped it: the application gets its message, properties and body as they were."""
    dead(vhost.url, kind, 3)
    was = {parcel.body: parcel for parcel in postbox.take_raw(vhost.url, "orders.dlq")}
    wrapped = [_wrapped(parcel) for parcel in was.values()]
    wrapped[2] = _wrapped(wrapped[2])
    plain = letter(b"DLW1, not wrapped", content_type="text/plain")
    cut = letter(b"DLW1\0\0\xff\xff", content_type=CONTENT_TYPE)
    unfit = _wrapped(letter(b"too large", headers={"x": "x" * 131_000}))
    nonsense = _wrapped(RawMessage(b"\xff\xff", b"no properties"))
    postbox.publish_raw(vhost.url, "aside", *wrapped, plain, cut, unfit, nonsense)
    code, said = dlq(vhost, "move", "aside", "orders")
    assert code == 1
    assert "shorter than it says" in said
    assert "do not fit into a frame" in said
    assert "unknown flags" in said
    postbox.wait_for(lambda: postbox.depth(vhost.url, "aside") == 3, "what cannot travel is still there")
    found = {parcel.body: parcel for parcel in postbox.take_raw(vhost.url, "orders")}
    assert found.keys() == {b"DLW1, not wrapped", *was}
    for body, parcel in was.items():
        before, after = message.view(parcel.properties), message.view(found[body].properties)
        told = dict(after.headers or {})
        assert told[names.SOURCE_ROUTING_KEY] == ODD
        assert told[names.DEATHS] == (before.headers or {})["x-death"]
        assert names.CAUSE not in told
        assert replace(after, headers=None) == replace(before, headers=None)
        assert told["tenant"] == "acme"
    # What stayed can still be looked at, and moved back to where it was whole.
    assert {wrapped.body[:4] for wrapped in postbox.take_raw(vhost.url, "aside")} == {b"DLW1"}


def _wrapped(parcel: RawMessage) -> RawMessage:
    return wrap(
        parcel,
        source="orders.dlq",
        came_by=ExchangeKey(b"shop.dlx", ODD),
        move="another-1",
        cause=Cause.UNREADABLE,
        why="a test",
        at_ms=1,
    )


@pytest.mark.parametrize("layout", ["return", "ladder"])
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
