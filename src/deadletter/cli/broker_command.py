"""`dlq broker`: a private RabbitMQ until Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading

from rich.console import Console

from deadletter.cli.terminal.exits import Exit
from deadletter.cli.terminal.output import result
from deadletter.testing.node.private import private_broker


def run(*, version: str | None, as_json: bool) -> Exit:
    console = Console(stderr=True, highlight=False)
    ended = threading.Event()
    with console.status("starting a private RabbitMQ…"):
        starting = private_broker(version=version)
        broker = starting.__enter__()
    try:
        facts = {"url": broker.url, "api": broker.api, "version": broker.version}
        result(json.dumps(facts) if as_json else f"DLQ_URL={broker.url}\nDLQ_API={broker.api}")
        page = broker.api.removesuffix("/api")
        console.print(f"RabbitMQ {broker.version}, management page {page} (guest, guest). Ctrl-C ends it.")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: ended.set())
        ended.wait()
    finally:
        starting.__exit__(None, None, None)
    return Exit.DONE
