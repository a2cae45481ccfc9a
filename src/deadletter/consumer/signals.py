"""SIGTERM and SIGINT: the first asks the consumer to stop, the second ends the process at once.

At once also while a handler swallows its cancellation, or keeps the event loop or a thread busy: the second
signal does not need the loop. Whatever has not ended is named in the log; what is done is acked and the rest
given back if that takes no longer than a moment, and then there is no process any more. The exit code is that
of a process that a signal ended: 143 for SIGTERM, 130 for SIGINT.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from deadletter.errors import DeadletterError

LAST_S: Final = 2.0
"""For acking what is done and giving back the rest."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_log: Final = logging.getLogger("deadletter.consumer")


class Signals:
    """While it is entered, in the main thread, on a running loop."""

    def __init__(
        self,
        *,
        stop: Callable[[str], None],
        running: Callable[[], list[str]],
        let_go: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._stop = stop
        self._running = running
        self._let_go = let_go
        self._loop = asyncio.get_running_loop()
        self._heard = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """In the main thread, wherever it is: a handler that keeps the loop busy is interrupted for it."""
        if not self._heard:
            self._heard = True
            self._loop.call_soon_threadsafe(self._stop, "asked by a signal")
            return
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        threading.Thread(target=self._end, args=(number,), name="the end", daemon=True).start()

    def _end(self, number: int) -> None:
        try:
            _log.warning("a second signal: the process ends at once")
            for line in self._running():
                _log.error("%s", line)
            parting = asyncio.run_coroutine_threadsafe(self._let_go(), self._loop)
            with suppress(
                concurrent.futures.TimeoutError, concurrent.futures.CancelledError, DeadletterError
            ):
                parting.result(LAST_S)
        finally:
            os._exit(128 + number)
