"""Threads for plain functions.

A thread cannot be ended from outside. So they are daemons, which a process that ends does not wait for; and a
place is free again when its thread has really come to an end, whoever has given up waiting for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[], Any]


class Threads:
    """At most `most` of them, made when they are needed. Belongs to the running loop."""

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(most)
        self._most = most
        self._threads = 0
        self._idle = 0
        self._work: SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = SimpleQueue()

    async def place(self) -> None:
        """Wait for a free one. Whoever has it calls `start`."""
        await self._places.acquire()

    def start(self, work: Work) -> asyncio.Future[Any]:
        """Run it. Do not cancel what this returns: it is done when the thread is."""
        ended: asyncio.Future[Any] = self._loop.create_future()
        if self._idle:
            self._idle -= 1
        else:
            self._threads += 1
            threading.Thread(target=self._run, name=f"handler-{self._threads}", daemon=True).start()
        self._work.put((work, ended))
        return ended

    def close(self) -> None:
        """Idle threads end; a busy one when it has come to the end of its work."""
        for _ in range(self._threads):
            self._work.put(None)

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, ended = job
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 -- it belongs to whoever waits for it
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._end, ended, result, error)
            del job, work, ended, result, error  # an idle thread keeps no message alive

    def _end(self, ended: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        self._idle += 1
        self._places.release()
        if ended.done():
            return
        if isinstance(error, StopIteration):  # a future cannot hold it
            ended.set_exception(RuntimeError(f"the handler raised {error!r}"))
        elif error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)
