"""Calling the application's function: awaited, or in a thread, in time.

Whatever is awaitable that comes back is awaited, on our own loop: a plain function may return the very work.

A coroutine that takes too long is cancelled; one that does not heed that is told of, and so is whoever runs
it (`on_stubborn`). A thread cannot be cancelled: its message counts as failed, and the thread's place stays
taken until it ends. In both cases this process does not handle the same message a second time beside it,
whichever way it comes back.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import typing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

from deadletter.consumer.handlers.callables import is_async, name_of, refuse_generators, seen_out
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import HandlerTimeout

Work: TypeAlias = Callable[[], Any]
STUBBORN_S: Final = 2.0
"""How long after its time a handler may still be busy with being cancelled."""
_log: Final = logging.getLogger("deadletter.consumer")


class Threads(Executor):
    """At most `most` of them, made when they are needed. Belongs to the running loop.

    A thread cannot be ended from outside. So they are daemons, which a process that ends does not wait for;
    and a place is free again when its thread has really come to an end, whoever has given up waiting for it.
    The loop is asked to run each piece of work here, as in any executor: so a test's virtual time, which
    stands still while a thread of the loop works, knows of it.
    """

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(most)
        self._most = most
        self._threads = 0
        self._idle = 0
        self._work: SimpleQueue[tuple[Work, Future[Any]] | None] = SimpleQueue()

    async def place(self) -> None:
        """Wait for a free one. Whoever has it calls `start`."""
        await self._places.acquire()

    def start(self, work: Work) -> asyncio.Future[Any]:
        """Run it. Do not cancel what this returns: it is done when the thread is."""
        ended: asyncio.Future[Any] = self._loop.run_in_executor(self, work)
        ended.add_done_callback(self._free)
        return ended

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """For the loop alone: on its thread, and with a place."""
        ended: Future[Any] = Future()
        ended.set_running_or_notify_cancel()  # it has begun: nobody can take it back
        if self._idle:
            self._idle -= 1
        else:
            self._threads += 1
            threading.Thread(target=self._run, name=f"handler-{self._threads}", daemon=True).start()
        self._work.put((partial(fn, *args, **kwargs), ended))
        return ended

    def close(self) -> None:
        """Idle threads end; a busy one when it has come to the end of its work."""
        for _ in range(self._threads):
            self._work.put(None)

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, ended = job
            result: object = None
            error: BaseException | None = None
            try:
                result = work()
            except StopIteration as raised:  # a future of asyncio's cannot hold it
                error = RuntimeError(f"the handler raised {raised!r}")
            except BaseException as raised:  # noqa: BLE001 -- it belongs to whoever waits for it
                error = raised
            if self._loop.is_closed():
                return  # nobody waits any more
            if error is None:
                ended.set_result(result)
            else:
                ended.set_exception(error)
            del job, work, ended, result, error  # an idle thread keeps no message alive

    def _free(self, _ended: asyncio.Future[Any]) -> None:
        self._idle += 1
        self._places.release()


class Call:
    """One function. `most` is how many threads it may have, if it needs any."""

    def __init__(self, function: Callable[..., Any], *, timeout_s: float | None, most: int) -> None:
        refuse_generators("handler", function)
        self.name: str = name_of(function)
        self.function: Callable[..., Any] = function
        self._timeout_s = timeout_s
        self._most = most
        self.is_async: bool = is_async(function)
        self._threads: Threads | None = None
        self.abandoned: dict[str, asyncio.Future[Any]] = {}
        """By letter id: runs nobody waits for any more."""
        self.on_stubborn: Callable[[asyncio.Task[Any]], None] = _nobody
        """Hears of a task whose handler was cancelled, its time being over, and goes on."""

    @property
    def timeout_s(self) -> float | None:
        return self._timeout_s

    @property
    def hurried(self) -> bool:
        """Whether there is a limit to its time."""
        return self._timeout_s is not None

    def by_name(self, names: Sequence[str]) -> None:
        """From now on its arguments are given by these names, in this order."""
        function = self.function

        def call(*arguments: Any) -> Any:
            return function(**dict(zip(names, arguments, strict=True)))

        self.function = call

    def close(self) -> None:
        """No more calls on this loop."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None
        self.abandoned.clear()

    async def __call__(
        self, messages: Sequence[Message], arguments: tuple[Any, ...], *, spent_s: float = 0.0
    ) -> None:
        """`spent_s`: so much of its time is gone."""
        if not self.is_async:
            await self._in_thread(messages, arguments, spent_s)
        elif self._timeout_s is None:
            returned = await typing.cast("Awaitable[object]", self.function(*arguments))
            if returned is not None:
                await seen_out(self.name, returned)
        else:
            await self._in_time(self.function(*arguments), max(0.0, self._timeout_s - spent_s))

    async def _in_time(self, doing: object, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        patience = asyncio.timeout(seconds)
        stubborn = asyncio.get_running_loop().call_later(seconds + STUBBORN_S, self.on_stubborn, task)
        try:
            async with patience:
                await seen_out(self.name, doing)
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise self.late() from error
        finally:
            stubborn.cancel()

    def late(self, more: str = "") -> HandlerTimeout:
        """What its message fails with."""
        return HandlerTimeout(f"{self.name} took longer than {self._timeout_s:g} s{more}")

    async def _in_thread(
        self, messages: Sequence[Message], arguments: tuple[Any, ...], spent_s: float
    ) -> None:
        if self._threads is None:
            self._threads = Threads(self._most)
        await self._threads.place()  # the clock starts when it can run
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        left_s = None if self._timeout_s is None else max(0.0, self._timeout_s - spent_s)
        begun = loop.time()
        ended = self._threads.start(partial(context.run, self.function, *arguments))
        try:
            await asyncio.wait({ended}, timeout=left_s)
        except asyncio.CancelledError:
            self.abandon(messages, ended)
            raise
        if not ended.done():
            self.abandon(messages, ended)
            raise self.late("; a thread cannot be stopped, it goes on")
        returned = ended.result()
        if returned is None:
            return
        if left_s is None:
            await seen_out(self.name, returned)
        else:
            await self._in_time(returned, max(0.0, left_s - (loop.time() - begun)))

    async def see_out(self, messages: Sequence[Message]) -> None:
        """Wait for earlier runs with these messages that nobody waits for."""
        earlier = {self.abandoned[one.id] for one in messages if one.id in self.abandoned}
        if earlier:
            _, running = await asyncio.wait(earlier, timeout=self._timeout_s)
            if running:
                where = "" if self.is_async else " in a thread"
                raise HandlerTimeout(f"{self.name} still runs{where} with an earlier try of this message")

    def abandon(self, messages: Sequence[Message], ended: asyncio.Future[Any]) -> None:
        """Nobody waits for this run any more; when it ends that is told."""
        ids = [message.id for message in messages]

        def end(late: asyncio.Future[Any]) -> None:
            for one in ids:
                if self.abandoned.get(one) is late:
                    del self.abandoned[one]
            error = None if late.cancelled() else late.exception()
            if not late.cancelled() and error is None and inspect.iscoroutine(late.result()):
                late.result().close()  # what a thread returned too late is not begun any more
            _log.warning("%s came to its end late, when nobody waited for it", self.name, exc_info=error)

        for one in ids:
            self.abandoned[one] = ended
        ended.add_done_callback(end)


def _nobody(_task: asyncio.Task[Any]) -> None:
    return
