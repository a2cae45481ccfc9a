"""The scene of the demo in which parked letters are grouped comes out right, on every broker.

About `cli.demo.demo_desk`.
"""

from __future__ import annotations

import io

from rich.console import Console
from tests.brokers import Vhost

from deadletter.cli.demo import demo_consumer, demo_desk


async def test_two_letters_two_causes(vhost: Vhost) -> None:
    console = Console(file=io.StringIO(), width=100)
    assert await demo_consumer.show(console, url=vhost.url, api=vhost.api)
    assert await demo_desk.show(console, url=vhost.url, queue=demo_consumer.DLQ)
    told = console.file
    assert isinstance(told, io.StringIO)
    assert "NoAddress: shipment <number> goes nowhere" in told.getvalue()
