"""The scene of `dlq demo` that is a Python application: what it prints is what happened.

About `cli.demo.demo_consumer`.
"""

from __future__ import annotations

import io

from rich.console import Console
from tests.brokers import Vhost

from deadletter.cli.demo import demo_consumer


async def test_an_application_retries_and_parks(vhost: Vhost) -> None:
    console = Console(file=io.StringIO(), record=True, width=100, highlight=False)
    assert await demo_consumer.show(console, url=vhost.url, api=vhost.api)
    shown = console.export_text()
    told = [
        "backoff=exponential(0.5, cap=60),",
        '{"number": 2, "to": "Turin"}: ConnectionError: the warehouse does not answer; again in 0.5 s',
        '{"number": 2, "to": "Turin"}: ConnectionError: the warehouse does not answer; again in 1 s',
        "2 letters in shipments__dlq",
        "NoAddress: shipment 3 goes nowhere (deadletter)",
        'raise NoAddress(f"shipment {shipment.number} goes nowhere")',
        "failed      service shop, release 1.4.2, host ",
    ]
    for words in told:
        assert words in shown, shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert shown.index(told[1]) < shown.index(told[2]) < shown.index(told[3])
