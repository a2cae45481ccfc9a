"""Where a letter belongs, read from what real brokers write when messages die in chains, loops and copies.

About `core.deciding.origin`, `core.deciding.deaths`, `core.deciding.letter_view`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

import pika
import pika.adapters.blocking_connection
import pytest

from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.origin import Ambiguous, Copied, Fresh, Origin, Returned

OURS: dict[str, object] = {
    "deadletter-id": "id-1",
    "deadletter-origin-queue": "orders",
    "deadletter-attempt": 1,
}
FROM_SHOP = Origin(queue="orders", exchange="shop", routing_keys=("order.new",))


class Vhost(Protocol):
    """What the fixture gives us of a fresh vhost on a broker."""

    url: str


class Bench:
    """A few queues in a vhost: publish, reject, and see what arrives."""

    def __init__(self, connection: pika.BlockingConnection) -> None:
        self.channel = connection.channel()
        version = connection._impl.server_properties["version"]
        self.keeps_client_deaths = int(version.split(".")[0]) < 4
        self.channel.exchange_declare("shop", "topic", durable=True)

    def queue(self, name: str, *, dead_to: str | None = None, ttl_ms: int | None = None) -> None:
        arguments: dict[str, object] = {}
        if dead_to is not None:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_to}
        if ttl_ms is not None:
            arguments["x-message-ttl"] = ttl_ms
        self.channel.queue_delete(name)
        self.channel.queue_declare(name, durable=True, arguments=arguments)

    def publish(self, exchange: str, key: str, headers: dict[str, object]) -> None:
        self.channel.basic_publish(exchange, key, b"{}", pika.BasicProperties(headers=headers))

    def take(self, queue: str, *, reject: bool = False) -> dict[str, object]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            method, properties, _ = self.channel.basic_get(queue)
            if method is not None:
                if reject:
                    self.channel.basic_reject(method.delivery_tag, requeue=False)
                else:
                    self.channel.basic_ack(method.delivery_tag)
                return dict(properties.headers or {})
            time.sleep(0.02)
        raise AssertionError(f"nothing came to {queue}")

    def view(self, headers: dict[str, object]) -> LetterView:
        return view_letter(headers, broker_keeps_client_deaths=self.keeps_client_deaths)


@pytest.fixture
def bench(vhost: Vhost) -> Iterator[Bench]:
    connection = pika.BlockingConnection(pika.URLParameters(vhost.url))
    try:
        yield Bench(connection)
    finally:
        connection.close()


def test_a_dead_letter_queue_that_expires_is_not_the_origin(bench: Bench) -> None:
    bench.queue("final")
    bench.queue("orders.dlq", dead_to="final", ttl_ms=30)
    bench.queue("orders", dead_to="orders.dlq")
    bench.channel.queue_bind("orders", "shop", "order.#")
    bench.publish("shop", "order.new", {})
    bench.take("orders", reject=True)
    letter = bench.view(bench.take("final"))
    assert letter.provenance == Fresh(origin=FROM_SHOP)
    assert letter.reason == "rejected"


def test_a_loop_begins_where_it_began(bench: Bench) -> None:
    bench.queue("orders", dead_to="orders.retry")
    bench.queue("orders.retry", dead_to="orders", ttl_ms=30)
    bench.channel.queue_bind("orders", "shop", "order.#")
    bench.publish("shop", "order.new", {})
    for _ in range(3):
        bench.take("orders", reject=True)
    letter = bench.view(bench.take("orders"))
    assert letter.provenance == Fresh(origin=FROM_SHOP)


def test_back_through_a_level_and_dead_again_it_is_the_same_letter(bench: Bench) -> None:
    bench.queue("orders.dlq")
    bench.queue("orders", dead_to="orders.dlq")
    bench.queue("deadletter.due")
    bench.queue("deadletter.delay.30", dead_to="deadletter.due", ttl_ms=30)
    bench.publish("", "deadletter.delay.30", {**OURS, "deadletter-origin-routing-key": "order.new"})
    released = {k: v for k, v in bench.take("deadletter.due").items() if k in OURS or "routing-key" in k}
    bench.publish("", "orders", released)
    bench.take("orders", reject=True)
    provenance = bench.view(bench.take("orders.dlq")).provenance
    assert isinstance(provenance, Returned)
    assert provenance.origin.queue == "orders"
    assert provenance.origin.routing_keys == ("order.new",)


def test_copied_headers_in_another_queue_make_a_new_letter(bench: Bench) -> None:
    bench.queue("invoices.dlq")
    bench.queue("invoices", dead_to="invoices.dlq")
    bench.publish("", "invoices", OURS)
    bench.take("invoices", reject=True)
    provenance = bench.view(bench.take("invoices.dlq")).provenance
    assert isinstance(provenance, Copied)
    assert (provenance.origin.queue, provenance.parent_id) == ("invoices", "id-1")


def test_copied_deaths_fool_nobody(bench: Bench) -> None:
    bench.queue("orders", dead_to="orders.retry")
    bench.queue("orders.retry", dead_to="orders", ttl_ms=30)
    bench.queue("invoices.dlq")
    bench.queue("invoices", dead_to="invoices.dlq")
    bench.publish("", "orders", OURS)
    bench.take("orders", reject=True)
    bench.publish("", "invoices", bench.take("orders"))  # an application that copies every header
    bench.take("invoices", reject=True)
    provenance = bench.view(bench.take("invoices.dlq")).provenance
    if bench.keeps_client_deaths:
        assert isinstance(provenance, Ambiguous)
        assert set(provenance.candidates) == {"invoices", "orders", "orders.retry"}
    else:
        assert isinstance(provenance, Copied)
        assert provenance.origin.queue == "invoices"
