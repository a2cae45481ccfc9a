"""What a person sees while a command works: all of it on stderr, so that stdout is the result alone.

On a terminal there is a progress bar; elsewhere (a pipe, cron, CI) only what is worth a line in a log. The
bar comes when letters are on their way and more are to come: to load what draws it would keep the first one
waiting.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Self, assert_never

from deadletter.broker.session import Connected, Waiting
from deadletter.core.text import safe_text
from deadletter.core.text.durations import elapsed_text
from deadletter.move import courier

if TYPE_CHECKING:
    from deadletter.cli.terminal.move_bar import MoveBar


def _may_draw() -> bool:
    """Whether a bar may be wanted; where somebody set one of these, rich knows what it means."""
    forced = os.environ.keys() & {"FORCE_COLOR", "TTY_COMPATIBLE"}
    return bool(forced) or sys.stderr.isatty()


class MoveScreen:
    """Listens to a courier and shows how far it is."""

    def __init__(self, description: str) -> None:
        self._description = safe_text.line(description)
        self._may_draw = _may_draw()
        self._bar: MoveBar | None = None
        self._counted = False
        self._connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def draw(self) -> MoveBar | None:
        """The bar, there from now on; None where there is no terminal."""
        if self._bar is None and self._may_draw:
            from deadletter.cli.terminal.move_bar import MoveBar

            self._bar = MoveBar(self._description)
        return self._bar

    def say(self, line: str) -> None:
        text = safe_text.line(line)
        if (bar := self.draw()) is not None:
            bar.say(text)
        else:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def on_event_at(self, queue: str, event: courier.MoveEvent) -> None:
        """An event of a command that takes one queue after the other: this is the one it works on now."""
        self._description = safe_text.line(queue)
        if self._bar is not None:
            self._bar.describe(self._description)
        self.on_event(event)

    def on_event(self, event: courier.MoveEvent) -> None:
        match event:
            case courier.Progress(moved=moved, left=left, failed=failed, total=total):
                self._count(moved + left + failed, total)
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

    def _count(self, done: int, total: int | None) -> None:
        """Not drawn for the first word if nothing is done yet, nor for the last if nothing is left to do."""
        worth = (done > 0 or self._counted) and done != total
        self._counted = True
        bar = self.draw() if worth else self._bar
        if bar is not None:
            bar.count(done, total)
