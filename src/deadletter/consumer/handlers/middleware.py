"""Code around handlers: one kind, an async function of the message and of what comes next.

    async def timed(message: Message, proceed: Proceed) -> None:
        begun = time.monotonic()
        try:
            await proceed()
        finally:
            measure(message.queue, time.monotonic() - begun)

It stands around everything that belongs to one try: decoding, dependencies, the handler. What it raises is
the message's failure; what it does not pass on is not handled, and done. One that passes a message on and
does not wait for the end has failed: nobody would know how the handler ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from deadletter.consumer.handlers.callables import is_async, name_of
from deadletter.consumer.handlers.calling import STUBBORN_S
from deadletter.consumer.handlers.once import RunOnce
from deadletter.consumer.idempotency import Transaction
from deadletter.consumer.message import Message
from deadletter.errors import UsageError

Proceed: TypeAlias = Callable[[], Awaitable[None]]
Middleware: TypeAlias = Callable[[Message, Proceed], Awaitable[None]]


def checked(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Raises UsageError for what is none."""
    found: tuple[Any, ...] = tuple(middleware)
    for one in found:
        if not callable(one) or not is_async(one):
            raise UsageError(
                f"middleware: expected async functions of a message and of what comes next, got {one!r}"
            )
    return found


def around(middleware: tuple[Middleware, ...], run: RunOnce) -> RunOnce:
    """The first is the outermost."""
    for one in reversed(middleware):
        run = _around(one, run)
    return run


def _around(middleware: Middleware, run: RunOnce) -> RunOnce:
    async def call(message: Message, transaction: Transaction | None) -> None:
        following = _Following(name_of(middleware), lambda: run(message, transaction))
        await middleware(message, following)
        if following.left_alone:
            message.take_back()
            await following.refuse()

    return call


class _Following:
    """What comes next, for one message and one middleware of this name: it calls it, at most once."""

    def __init__(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._run = run
        self._going: Coroutine[Any, Any, None] | None = None
        self._task: asyncio.Task[Any] | None = None
        """Who awaits it."""
        self._ended = False
        self._refused = False

    def __call__(self) -> Coroutine[Any, Any, None]:
        if self._going is not None:
            raise UsageError(
                f"middleware {self._name}: expected what comes next once, got it a second time: the handler "
                "would run twice"
            )
        self._going = self._go()
        return self._going

    async def _go(self) -> None:
        self._task = asyncio.current_task()
        try:
            if not self._refused:
                await self._run()
        finally:
            self._ended = True

    @property
    def left_alone(self) -> bool:
        """When the middleware has returned: whether it called it and did not wait for its end."""
        return self._going is not None and not self._ended

    async def refuse(self) -> None:
        """End it, for its message comes again; raises UsageError."""
        self._refused = True
        await asyncio.sleep(0)  # a task that was just made for it begins, and finds that it is refused
        if self._going is not None and self._task is None:
            self._going.close()
        elif self._task is not None and not self._ended:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STUBBORN_S)
        raise UsageError(
            f"middleware {self._name}: expected it to wait for what comes next (await proceed()), got its "
            "end before that of the handler"
        )
