"""Tasks that stand and fall together: when one fails, all end, and the failure is told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSet:
    """`start` tasks, `wait` for the first failure, `dismiss` them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def wait(self) -> None:
        """Until one of them fails; raises what it raised."""
        await asyncio.shield(self._failed)

    async def dismiss(self) -> None:
        """Cancel all that still run, and wait until they have ended."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        if self._failed.done():
            self._failed.exception()  # somebody looked
        else:
            self._failed.cancel()
