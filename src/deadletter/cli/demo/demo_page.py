"""The end of `dlq demo`: a shop that goes on, and the page on which one sees what fails in it.

Three services. The gateway of *payments* is down now and then: its letters die, wait, return and are done. A
release of the shop writes *orders* without a quantity: they are put aside, and can be repaired and sent back.
One of the *mails* can never be written. `dlq serve` runs beside them as a user runs it, with a store that is
gone afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from rich.console import Console

from deadletter import Consumer, exponential
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.handshake import connect
from deadletter.cli.terminal import event_loop
from deadletter.core.letter import message
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import View
from deadletter.core.topology.queue_arguments import (
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_QUEUE_TYPE,
)

PAYMENTS: Final = "payments.charge"
DLQ: Final = f"{PAYMENTS}.dlq"
ORDERS: Final = "stock.reserve"
MAILS: Final = "mails.send"
EVERY_S: Final = 0.5
DOWN_S: Final = 20.0
"""So long the gateway is down, of every minute."""
BAD_FROM: Final = 6
"""With this order the release begins that forgets quantities."""
POISON: Final = 4
READY_S: Final = 60.0
END_S: Final = 30.0
LOG: Final = "serve.log"
SETTINGS: Final = """
[broker]
url = "{url}"
api = "{api}"

[serve]
listen = "127.0.0.1:0"
log_level = "error"

[store]
url = "sqlite:///{folder}/desk.db"

[desk]
ingest = true

[[desk.queues]]
name = "stock.reserve__dlq"

[[desk.queues]]
name = "mails.send__dlq"

[default_policy]
retries = 3
backoff = {{ kind = "exponential", first = "5s", factor = 2.0, cap = "1min" }}

[[watches]]
dlq = "payments.charge.dlq"
"""


class OrderLine(BaseModel):
    """What the stock's handler asks for."""

    order: int
    sku: str
    quantity: int


class Mail(BaseModel):
    number: int
    template: str


class TemplateMissing(Exception):
    """No retry will find it."""


def stock(url: str, api: str) -> Consumer:
    app = Consumer(url, api=api, service="stock", release="2.14.0")

    @app.queue(ORDERS, layout="ladder", retries=2, backoff=exponential(2))
    async def reserve(line: OrderLine) -> None:
        assert line.quantity

    return app


def mails(url: str, api: str) -> Consumer:
    app = Consumer(url, api=api, service="mails", release="1.9.3")

    @app.queue(MAILS, layout="ladder", retries=1, backoff=exponential(2))
    async def send(mail: Mail) -> None:
        if not mail.template:
            raise TemplateMissing(f"mail {mail.number} has no template")

    return app


async def show(console: Console, *, url: str, api: str, seconds: float | None) -> bool:
    """For so long, or until Ctrl-C. Whether the page answered."""
    connection = await connect(parse_addresses(url)[0], name="dlq demo shop")
    try:
        with tempfile.TemporaryDirectory(prefix="dlq-demo-") as folder:
            async with _service(Path(folder), url, api) as page, _shop(await connection.channel(), url, api):
                if page is None:
                    said = (Path(folder) / LOG).read_text()
                    console.print(f"dlq serve did not begin: {said}", markup=False)
                    return False
                console.print(
                    "Three services run: payments whose gateway is down now and then, orders of a release "
                    "that forgets quantities, a mail that can never be written. See them fail, wait and "
                    "return; repair the orders and send them back:\n"
                )
                console.print(f"   [b]{page}[/]\n", soft_wrap=True)
                if seconds is None:
                    console.print("Ctrl-C ends it.")
                await _until_enough(seconds)
                return True
    finally:
        await connection.close()


async def _until_enough(seconds: float | None) -> None:
    seen = asyncio.Event()
    with event_loop.stopping(seen.set), suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await seen.wait()


@asynccontextmanager
async def _service(folder: Path, url: str, api: str) -> AsyncIterator[str | None]:
    """`dlq serve` as a process of its own; the address of its page."""
    file = folder / "deadletter.toml"
    file.write_text(SETTINGS.format(url=url, api=api, folder=folder))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    with (folder / LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deadletter.cli.main", "serve", "--config", str(file)),
            env={**kept, "XDG_STATE_HOME": str(folder)},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the demo, which ends it in good order
        )
    assert process.stdout is not None
    try:
        page = None
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                while page is None and (line := await process.stdout.readline()):
                    said, _, address = line.decode().strip().partition(": ")
                    page = address if said == "the page" else None
        yield page
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@asynccontextmanager
async def _shop(channel: Channel, url: str, api: str) -> AsyncIterator[None]:
    """Its three services, and whoever buys there."""
    await channel.declare_queue(DLQ, arguments={X_QUEUE_TYPE: "quorum"})
    dead: dict[str, Value] = {X_DEAD_LETTER_EXCHANGE: "", X_DEAD_LETTER_ROUTING_KEY: DLQ}
    await channel.declare_queue(PAYMENTS, arguments={X_QUEUE_TYPE: "quorum", **dead})
    applications = [stock(url, api), mails(url, api)]
    working = [asyncio.create_task(app.serve()) for app in applications]
    working.append(asyncio.create_task(_trade(channel)))
    try:
        yield
    finally:
        for app in applications:
            app.stop("the demo is over")
        working[-1].cancel()
        await asyncio.wait(working)


async def _trade(channel: Channel) -> None:
    """Somebody buys twice a second."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    def charge(delivery: Delivery) -> None:
        """A consumer of somebody else's: it knows nothing but ack and reject."""
        if (loop.time() - began) % 60 < DOWN_S:
            channel.reject(delivery.tag, requeue=False)
        else:
            channel.ack(delivery.tag)

    await channel.qos(50)
    await channel.consume(PAYMENTS, charge, lambda: None)
    publishing = await channel.connection.channel()
    await publishing.select_confirms()
    for number in count(1):
        line: dict[str, object] = {"order": number, "sku": f"SKU-{number % 7}"}
        bodies = {
            PAYMENTS: {"order": number, "amount": "12.90"},
            ORDERS: line if number >= BAD_FROM else {**line, "quantity": 1},
            MAILS: {"number": number, "template": "" if number == POISON else "receipt"},
        }
        for queue, body in bodies.items():
            view = View(content_type="application/json", delivery_mode=2, message_id=f"{queue}-{number}")
            frame = publishing.publishing("", queue, mandatory=False)
            publishing.publish(frame, message.encode(view), json.dumps(body).encode())
        await asyncio.sleep(EVERY_S)
