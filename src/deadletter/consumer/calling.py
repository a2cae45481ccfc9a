"""Calling the application's function: awaited, or in a thread, in time.

A coroutine that takes too long is cancelled. A thread cannot be: its message counts as failed, the thread's
place stays taken until it ends, and while it runs this process does not handle the same message a second
time, whichever way it comes back.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import HandlerTimeout
from deadletter.consumer.threads import Threads

_log: Final = logging.getLogger("deadletter.consumer")


class Call:
    """One function. `most` is how many threads it may have, if it needs any."""

    def __init__(self, function: Callable[..., Any], *, timeout_s: float | None, most: int) -> None:
        self.name: str = str(getattr(function, "__qualname__", repr(function)))
        self.function = function
        self._timeout_s = timeout_s
        self._most = most
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 -- an object with an async __call__ is one too
        )
        self._threads: Threads | None = None
        self._abandoned: dict[str, asyncio.Future[Any]] = {}
        """By letter id: threads nobody waits for any more."""

    @property
    def hurried(self) -> bool:
        """Whether there is a limit to its time."""
        return self._timeout_s is not None

    def close(self) -> None:
        """No more calls on this loop."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None
        self._abandoned.clear()

    async def __call__(self, messages: Sequence[Message], arguments: tuple[Any, ...]) -> None:
        if not self.is_async:
            await self._in_thread(messages, arguments)
        elif self._timeout_s is None:
            await typing.cast("Awaitable[object]", self.function(*arguments))
        else:
            await self._in_time(arguments)

    async def _in_time(self, arguments: tuple[Any, ...]) -> None:
        patience = asyncio.timeout(self._timeout_s)
        try:
            async with patience:
                await typing.cast("Awaitable[object]", self.function(*arguments))
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise HandlerTimeout(f"{self.name} took longer than {self._timeout_s:g} s") from error

    async def _in_thread(self, messages: Sequence[Message], arguments: tuple[Any, ...]) -> None:
        if self._threads is None:
            self._threads = Threads(self._most)
        if self._abandoned:
            await self._see_out(messages)
        await self._threads.place()  # the clock starts when it can run
        context = contextvars.copy_context()
        ended = self._threads.start(partial(context.run, self.function, *arguments))
        try:
            await asyncio.wait({ended}, timeout=self._timeout_s)
        except asyncio.CancelledError:
            self._abandon(messages, ended)
            raise
        if not ended.done():
            self._abandon(messages, ended)
            raise HandlerTimeout(
                f"{self.name} took longer than {self._timeout_s:g} s; a thread cannot be stopped, it goes on"
            )
        ended.result()

    async def _see_out(self, messages: Sequence[Message]) -> None:
        """Wait for earlier threads with these messages."""
        earlier = {self._abandoned[one.id] for one in messages if one.id in self._abandoned}
        if earlier:
            _, running = await asyncio.wait(earlier, timeout=self._timeout_s)
            if running:
                raise HandlerTimeout(
                    f"{self.name} still runs in a thread with an earlier try of this message"
                )

    def _abandon(self, messages: Sequence[Message], ended: asyncio.Future[Any]) -> None:
        ids = [message.id for message in messages]

        def end(late: asyncio.Future[Any]) -> None:
            for one in ids:
                if self._abandoned.get(one) is late:
                    del self._abandoned[one]
            error = late.exception()
            _log.warning("%s came to its end late, in a thread nobody waited for", self.name, exc_info=error)

        for one in ids:
            self._abandoned[one] = ended
        ended.add_done_callback(end)
