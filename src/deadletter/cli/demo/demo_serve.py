"""The part of `dlq demo` in which the retry service works: a payment service is down for some seconds.

Every order fails until it is back; the service takes each from the dead letter queue, lets it wait, and sends
it back. One order can never succeed, and is parked. One belongs to a queue that somebody deleted meanwhile.
And one says that it died in the queue of somebody else, whose letters do not come here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from deadletter.amqp.address import Address, parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.broker.queue_counts import counts_on
from deadletter.cli.demo.demo_service import serving
from deadletter.cli.terminal.units import count
from deadletter.core.letter import message, names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.text.safe_text import line
from deadletter.core.topology.queue_arguments import (
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_QUEUE_TYPE,
)
from deadletter.operations.peeking import peek
from deadletter.service.telling.service_events import Confirmed, ServiceEvent
from deadletter.testing.node.private import PrivateBroker

QUEUE, OLD, ELSEWHERE = "payments", "payments.old", "orders"
DOWN_S: Final = 2.5
PATIENCE_S: Final = 60.0
SETTINGS: Final = """
[broker]
url = "{url}"
api = "{api}"

[store]
url = "none"

[default_policy]
retries = 4
backoff = {{ kind = "exponential", first = "500ms", factor = 2.0, cap = "2s" }}

[guards.breaker]
enabled = false       # here everything fails at first, on purpose

[[watches]]
dlq = "payments*.dlq"
"""


@dataclass(slots=True)
class _Shop:
    """The application: which orders it handled, how often, and whether its payment service works."""

    orders: int
    handled: Counter[int]
    done: set[int]
    works: bool = False

    def handle(self, number: int) -> bool:
        self.handled[number] += 1
        if self.works and number != 0:  # order 0 is broken for good
            self.done.add(number)
            return True
        return False


async def show(console: Console, broker: PrivateBroker, *, orders: int) -> bool:
    """Whether everything came out right."""
    address = parse_addresses(broker.url)[0]
    connection = await connect(address, name="dlq demo shop")
    channel = await connection.channel()
    for queue in (QUEUE, OLD):
        await channel.declare_queue(f"{queue}.dlq", arguments={X_QUEUE_TYPE: "quorum"})
        dead: dict[str, Value] = {X_DEAD_LETTER_EXCHANGE: "", X_DEAD_LETTER_ROUTING_KEY: f"{queue}.dlq"}
        await channel.declare_queue(queue, arguments={X_QUEUE_TYPE: "quorum", **dead})
    shop = _Shop(orders=orders, handled=Counter(), done=set())
    fates: Counter[str] = Counter()

    def listen(event: ServiceEvent) -> None:
        if isinstance(event, Confirmed):
            for fate, letters in event.fates.items():
                fates[fate.step.value] += letters

    async with serving(SETTINGS.format(url=broker.url, api=broker.api), listen=listen):
        await _sell(channel, shop)
        await asyncio.sleep(DOWN_S)
        shop.works = True
        console.print(f"After {DOWN_S:g} s the payment service is back.")
        right = await _settled(address, shop)
    await _report(console, address, shop, fates)
    await connection.close()
    return right


async def _sell(channel: Channel, shop: _Shop) -> None:
    def on_delivery(delivery: Delivery) -> None:
        if shop.handle(int(delivery.message.body)):
            channel.ack(delivery.tag)
        else:
            channel.reject(delivery.tag, requeue=False)

    await channel.qos(200)
    await channel.consume(QUEUE, on_delivery, lambda: None)
    publishing = await channel.connection.channel()
    await publishing.select_confirms()
    properties = message.encode(View(content_type="application/json", delivery_mode=2))
    await publish_all(
        publishing, "", QUEUE, (RawMessage(properties, b"%d" % number) for number in range(shop.orders))
    )
    # One dies in another queue, which is deleted while its letter waits.
    await publish_all(publishing, "", OLD, [RawMessage(properties, b"-1")])
    taken = await publishing.get(OLD)
    assert taken is not None
    publishing.reject(taken.tag, requeue=False)
    await asyncio.sleep(0.2)
    await publishing.delete_queue(OLD)
    # One is published straight into the dead letter queue, with deaths that somebody made up.
    death: dict[str, Value] = {"queue": ELSEWHERE, "reason": "rejected", "count": 1}
    forged = message.encode(View(delivery_mode=2, headers={names.X_DEATH: [death]}))
    await publish_all(publishing, "", f"{QUEUE}.dlq", [RawMessage(forged, b"-2")])


async def _settled(address: Address, shop: _Shop) -> bool:
    """Until every order is done but the broken one, and three letters are parked."""
    connection = await connect(address, name="dlq demo")
    channel = await connection.channel()
    until = asyncio.get_running_loop().time() + PATIENCE_S
    while asyncio.get_running_loop().time() < until:
        parked = (await counts_on(channel, names.PARKED)).ready
        if len(shop.done) == shop.orders - 1 and parked == 3:
            break
        await asyncio.sleep(0.1)
    else:
        return False
    await connection.close()
    return True


async def _report(console: Console, address: Address, shop: _Shop, fates: Counter[str]) -> None:
    often = Counter(shop.handled.values())
    table = Table(show_edge=False, show_header=False)
    table.add_row("orders that failed while it was down", f"{shop.orders:,}")
    table.add_row("[b]succeeded in the end[/]", f"[b]{len(shop.done):,}[/]")
    told = ", ".join(f"{number:,} × {times}" for times, number in sorted(often.items()))
    table.add_row("handled how often (orders × times)", told)
    for kind in ("delayed", "released", "parked"):
        table.add_row(f"letters {kind}", f"{fates[kind]:,}")
    console.print(table)
    look = await peek([address], names.PARKED, limit=5)
    console.print(f"Parked, for a person ({count(len(look.letters))}):")
    for seen in look.letters:
        why = seen.letter.headers.get(names.WHY)
        console.print(line(f"  order {seen.body.decode()}: {why}"), markup=False)
