"""One process of `dlq run`: it imports the application, serves, and tells its parent when it takes messages.

What it tells are single bytes through a pipe: the parent needs no more, and a process that dies with half a
sentence has said nothing wrong. When the parent is gone (kill -9) the pipe is broken, and the process ends in
good order: nobody would restart or end it any more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from deadletter import Consumer, ConsumerMetrics
from deadletter.cli.running.found_app import found_app
from deadletter.consumer.events import Event, Lost, Ready, Stopping, regained
from deadletter.errors import DeadletterError, UsageError

READY: Final = b"+"
NOT_READY: Final = b"-"
USAGE: Final = 2
FAILED: Final = 1


class Telling:
    """A listener that tells the parent: ready while nothing is lost, neither the broker nor a queue."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lost: set[str] = set()
        self._stopping = False

    def __call__(self, event: Event) -> None:
        match event:
            case Ready():
                self._back(regained(event, self._lost))
            case Lost(what=what, seconds=seconds):
                if seconds:
                    self._lost.add(what)
                    self._tell(NOT_READY)
                elif what in self._lost:
                    self._back([what])
            case Stopping():
                self._stopping = True
                self._tell(NOT_READY)
            case _:
                pass

    def _back(self, found: list[str]) -> None:
        self._lost.difference_update(found)
        if not self._lost and not self._stopping:
            self._tell(READY)

    def _tell(self, word: bytes) -> None:
        try:
            os.write(self._pipe, word)
        except OSError:  # the parent is gone, which `_outlived` acts upon
            return


def _outlived(alive: int) -> None:
    """The parent holds the other end open and writes nothing: it ends when the parent does."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(where: str, directory: str, told: int, alive: int) -> int:
    try:
        app = found_app(where, Path(directory))
        app.listen(Telling(told))
        _count(app)
        threading.Thread(target=_outlived, args=(alive,), name="is the parent there", daemon=True).start()
        app.run()
    except UsageError as error:
        print(f"dlq: {error}", file=sys.stderr)
        return USAGE
    except DeadletterError as error:
        print(f"dlq: {error}", file=sys.stderr)
        return FAILED
    return 0


def _count(app: Consumer) -> None:
    """Unless the application does so itself: then its own counts are those that are shown."""
    if not app.has_listener(ConsumerMetrics):
        app.listen(ConsumerMetrics())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
