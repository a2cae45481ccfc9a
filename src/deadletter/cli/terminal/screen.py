"""What a person sees while a command works: all of it on stderr, so that stdout is the result alone.

On a terminal there is a progress bar; elsewhere (a pipe, cron, CI) only what is worth a line in a log.
"""

from __future__ import annotations

from typing import Self, assert_never

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from deadletter.broker.session import Connected, Waiting
from deadletter.core.text import safe_text
from deadletter.core.text.durations import elapsed_text
from deadletter.move import courier


class MoveScreen:
    """Listens to a courier and shows how far it is."""

    def __init__(self, description: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(safe_text.line(description), total=None, rate="")
        self._connected = False

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        self._console.print(safe_text.line(line), markup=False)

    def on_event_at(self, queue: str, event: courier.MoveEvent) -> None:
        """An event of a command that takes one queue after the other: this is the one it works on now."""
        self._bar.update(self._task, description=safe_text.line(queue))
        self.on_event(event)

    def on_event(self, event: courier.MoveEvent) -> None:
        match event:
            case courier.Progress(moved=moved, left=left, failed=failed, total=total):
                speed = self._bar.tasks[0].speed
                self._bar.update(
                    self._task,
                    completed=moved + left + failed,
                    total=total,
                    rate=f"{speed:,.0f}/s" if speed else "",
                )
            case courier.BrokerBlocked(reason=None):
                self.say("the broker accepts messages again")
            case courier.BrokerBlocked(reason=reason):
                self.say(f"the broker accepts no messages at the moment ({reason}); waiting, nothing is lost")
            case Waiting(reason=reason, seconds=seconds):
                self.say(f"{reason}; next try in {elapsed_text(seconds)}")
            case Connected(address=address, server_version=version):
                if self._connected:
                    self.say(f"connected again to {address} (RabbitMQ {version})")
                self._connected = True
            case _:
                assert_never(event)
