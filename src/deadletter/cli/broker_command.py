"""`dlq broker`: a private RabbitMQ until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack

from rich.console import Console

from deadletter.cli.terminal.output import Exit, data, result
from deadletter.testing.node.private import private_broker


def run(*, version: str | None, as_json: bool) -> Exit:
    console = Console(stderr=True, highlight=False)
    ended = threading.Event()
    with ExitStack() as until_it_ends:
        with console.status("starting a private RabbitMQ…"):
            broker = until_it_ends.enter_context(private_broker(version=version))
        for number in (signal.SIGINT, signal.SIGTERM):  # before anybody is told that it is there to be ended
            signal.signal(number, lambda _number, _frame: ended.set())
        if as_json:
            data({"url": broker.url, "api": broker.api, "version": broker.version})
        else:
            result(f"DLQ_URL={broker.url}\nDLQ_API={broker.api}")
        page = broker.api.removesuffix("/api")
        console.print(f"RabbitMQ {broker.version}, management page {page} (guest, guest). Ctrl-C ends it.")
        ended.wait()
    return Exit.DONE
