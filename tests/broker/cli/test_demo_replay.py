"""The scene of the demo in which letters are repaired and sent back comes out right, on every broker.

About `cli.demo.demo_replay`, `cli.demo.demo_service`.
"""

from __future__ import annotations

import io

from rich.console import Console
from tests.brokers import Vhost

from deadletter.cli.demo import demo_replay


async def test_refunds_are_repaired_and_paid_once(vhost: Vhost) -> None:
    console = Console(file=io.StringIO(), width=110)
    assert await demo_replay.show(console, url=vhost.url, api=vhost.api), console.file
    told = console.file
    assert isinstance(told, io.StringIO)
    assert "25 would change" in told.getvalue()
