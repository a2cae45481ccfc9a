"""Code around handlers: one kind, an async function of the message and of what comes next.

    async def timed(message: Message, proceed: Proceed) -> None:
        begun = time.monotonic()
        try:
            await proceed()
        finally:
            measure(message.queue, time.monotonic() - begun)

It stands around everything that belongs to one try: decoding, dependencies, the handler. What it raises is
the message's failure; what it does not pass on is not handled, and done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from deadletter.consumer.handlers.callables import is_async, name_of
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
        begun = False

        async def proceed() -> None:
            nonlocal begun
            if begun:
                raise UsageError(
                    f"middleware {name_of(middleware)}: expected what comes next once, got it a second time: "
                    "the handler would run twice"
                )
            begun = True
            await run(message, transaction)

        await middleware(message, proceed)

    return call
