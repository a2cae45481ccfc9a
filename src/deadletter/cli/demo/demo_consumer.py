"""The part of `dlq demo` in which a Python application does its own retries, with the consumer library.

The application that is printed is the one that runs. Four shipments: one goes out at once, one when the
warehouse answers again, one has no address and is put aside, and one is not a shipment at all.
"""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from collections import Counter
from typing import Final

from pydantic import BaseModel
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from deadletter import Consumer, Message, exponential, park
from deadletter.amqp.address import Address, parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.cli.peek_command import letter_text
from deadletter.cli.terminal.units import count
from deadletter.consumer.events import Event, Fate, Handled, Ready
from deadletter.core.letter import message
from deadletter.core.letter.message import RawMessage as Published
from deadletter.core.letter.message import View
from deadletter.operations.peeking import peek

QUEUE: Final = "shipments"
DLQ: Final = f"{QUEUE}__dlq"
BODIES: Final = (
    b'{"number": 1, "to": "Oslo"}',
    b'{"number": 2, "to": "Turin"}',
    b'{"number": 3, "to": ""}',
    b"four, to Lyon",
)
PATIENCE_S: Final = 60.0


class Shipment(BaseModel):
    """What the handler's annotation asks for."""

    number: int
    to: str


class NoAddress(Exception):
    """No retry will find one."""


def application(url: str, api: str) -> Consumer:
    app = Consumer(url, api=api, service="shop", release="1.4.2")

    @app.queue(
        "shipments",
        layout="ladder",
        retries=3,
        backoff=exponential(0.5, cap=60),
        on={NoAddress: park},
    )
    async def ship(shipment: Shipment, message: Message) -> None:
        if not shipment.to:
            raise NoAddress(f"shipment {shipment.number} goes nowhere")
        if shipment.number == 2 and message.attempt < 2:
            raise ConnectionError("the warehouse does not answer")

    return app


async def show(console: Console, *, url: str, api: str) -> bool:
    """Whether everything came out right."""
    code = textwrap.dedent(inspect.getsource(application)).rstrip()
    console.print("The application, and what becomes of four messages:")
    console.print(Padding(Syntax(code, "python", theme="ansi_dark", background_color="default"), (0, 2)))
    app = application(url, api)
    ready, over = asyncio.Event(), asyncio.Event()
    fates: Counter[Fate] = Counter()

    def listen(event: Event) -> None:
        if isinstance(event, Ready):
            ready.set()
        elif isinstance(event, Handled):
            fates[event.fate] += 1
            console.print(Padding(Text(_line(event)), (0, 2)))
            if fates[Fate.DONE] + fates[Fate.PARKED] == len(BODIES):
                over.set()

    app.listen(listen)
    address = parse_addresses(url)[0]
    serving = asyncio.create_task(app.serve())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _or_its_end(serving, ready)
            await _publish(address)
            await _or_its_end(serving, over)
    except TimeoutError:
        console.print(f"{PATIENCE_S:g} s went by without an end.")
    finally:
        app.stop("the demo is over")
        await serving
    await _report(console, address)
    return fates == {Fate.DONE: 2, Fate.RETRIED: 2, Fate.PARKED: 2}


async def _or_its_end(serving: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait for the event; a consumer that ends before it says why, instead of being waited for."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        waiting.cancel()


async def _publish(address: Address) -> None:
    connection = await connect(address, name="dlq demo")
    channel = await connection.channel()
    await channel.select_confirms()
    properties = message.encode(View(content_type="application/json", delivery_mode=2))
    await publish_all(channel, "", QUEUE, (Published(properties, body) for body in BODIES))
    await connection.close()


def _line(event: Handled) -> str:
    whose = "" if event.letter is None else f"{event.letter.body.decode()}: "
    why = event.why.partition("\n")[0]
    match event.fate:
        case Fate.DONE:
            return "a shipment is on its way"
        case Fate.RETRIED:
            return f"{whose}{why}; again in {(event.delay_ms or 0) / 1000:g} s"
        case _:
            return f"{whose}{event.fate}, {why}"


async def _report(console: Console, address: Address) -> None:
    look = await peek([address], DLQ, limit=len(BODIES))
    console.print(
        f"{count(len(look.letters))} in [b]{DLQ}[/], for a person; [b]dlq peek {DLQ}[/] shows of one:"
    )
    for number, seen in enumerate(look.letters[:1], 1):
        console.print(letter_text(number, seen, 400), markup=False)
