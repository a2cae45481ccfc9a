"""A handler: a function of the application, and what its end means.

Async functions are awaited, plain ones run in a thread, and what they return is awaited if it can be. To
return is success; whatever is raised, an `Exception` or not, is classified by the queue's rules. What comes
out is one of `Done | AlreadyDone | Failed`, and nothing a handler raises gets past here but the
cancellation of its own task, of which only whoever made that task knows who asked for it.

What a handler raises after `ack()` does not undo what it did before: its transaction and its dependencies are
left as if it had returned. What these raise then is the message's failure, whatever it said.

A handler that raises SystemExit or KeyboardInterrupt means the process: its message has failed, as with any
other error, and `leaving` says that the application wants to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Final

from deadletter.consumer.handlers.callables import seen_out
from deadletter.consumer.handlers.calling import Call
from deadletter.consumer.handlers.dependencies import OpenDependencies
from deadletter.consumer.handlers.handler_end import ALREADY_DONE, DONE, Failed, HandlerEnd, told
from deadletter.consumer.handlers.middleware import Middleware, around
from deadletter.consumer.handlers.once import MessageKey, Once, RunOnce, is_done
from deadletter.consumer.handlers.signature import ParameterWish, Signature, signature_of
from deadletter.consumer.idempotency import Ids, Transaction
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import HandlerCancelled, Rules
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.errors import UsageError

_log: Final = logging.getLogger("deadletter.consumer")


class Handling:
    """What a handler of one message and a handler of many have in common."""

    _read: Callable[[Callable[..., Any]], Signature]
    """What the parameters of a function ask for."""

    def __init__(
        self,
        function: Callable[..., Any],
        rules: Rules,
        *,
        timeout_s: float | None = None,
        concurrency: int = 10,
        idempotent: Ids | None = None,
        key: MessageKey | None = None,
        middleware: tuple[Middleware, ...] = (),
    ) -> None:
        self.rules = rules
        self._middleware = middleware
        self._call = Call(function, timeout_s=timeout_s, most=concurrency)
        self._signature = self._read(function)
        if self._signature.names:
            self._call.by_name(self._signature.names)
        self._wants_body = ParameterWish.BODY in self._signature.wishes
        self._once: Once | None = None
        self.leaving: SystemExit | KeyboardInterrupt | None = None
        """What a handler raised that wants the process to end."""
        if idempotent is not None:
            self._once = Once(idempotent, key, transacted=self._signature.transacted)
        elif self._signature.transacted:
            raise UsageError(
                f"handler {self.name}: expected idempotent=StoreIds(…) for its Transaction, got none"
            )

    @property
    def name(self) -> str:
        return self._call.name

    @property
    def ids(self) -> Ids | None:
        """What must be opened before it runs."""
        return None if self._once is None else self._once.ids

    def open(self, on_stubborn: Callable[[asyncio.Task[Any]], None], mail: AppMail | None = None) -> None:
        """`on_stubborn` hears of a task whose handler outlives its time and the cancellation after it. `mail`
        sends what waited for a commit."""
        self._call.on_stubborn = on_stubborn
        if self._once is not None:
            self._once.mail = mail
        self.leaving = None

    def close(self) -> None:
        """The consumer ends."""
        self._call.close()

    def given_up(
        self, messages: Sequence[Message], ended: asyncio.Future[Any], *, late: bool
    ) -> list[HandlerEnd]:
        """Nobody waits for this run any more; `late`: because its time is over. What becomes of each."""
        self._call.abandon(messages, ended)
        error = self._call.late(" and does not heed that it was cancelled; it goes on") if late else None
        return [self.failed(message, error) for message in messages if error is not None]

    def cancelled(self, messages: Sequence[Message], cancelled: asyncio.CancelledError) -> list[HandlerEnd]:
        """Its own task was cancelled, and not by us: the handler has failed, as with any other error."""
        error = HandlerCancelled(f"{self.name} cancelled its own task, or somebody else did")
        error.__cause__ = cancelled
        return [self.failed(message, error) for message in messages]

    def _raised(self, error: BaseException) -> BaseException:
        """What its message fails with. The cancellation of its own task is raised again."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # the loop is gone, and what is left of the coroutine is being closed
            raise error from None
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self.leaving = error
        if not isinstance(error, asyncio.CancelledError):
            return error
        if task is not None and task.cancelling() > 0:
            raise error
        meant = HandlerCancelled(f"{self.name} awaited something that was cancelled")
        meant.__cause__ = error
        return meant

    def failed(self, message: Message, error: BaseException | None) -> HandlerEnd:
        """If a verb was used, that stands, and an error after it is not hidden. None: it did not fail."""
        decided = message.close()
        if decided is False:
            return DONE if error is None else Failed(error=error)
        if error is not None:
            _log.warning(
                "%s said what becomes of a message of %s and raised afterwards (%s); what it said stands",
                self.name,
                message.queue,
                told(error),
                exc_info=error,
            )
        return DONE if decided is True else Failed(error=decided)


class Handler(Handling):
    """One function for the messages of one queue."""

    _read = staticmethod(signature_of)

    @cached_property
    def _direct(self) -> Callable[..., Any] | None:
        """Without a limit and in our own loop there is nothing to do around it: the shortest way."""
        call, alone = self._call, self._signature.wishes == (ParameterWish.BODY,)
        bare = alone and not self._signature.dependencies and not self._middleware
        return call.function if call.is_async and not call.hurried and bare else None

    @cached_property
    def _work(self) -> RunOnce:
        """One try, with whatever stands around it."""
        run = self._run_with if self._signature.dependencies else self._run
        return around(self._middleware, run)

    async def __call__(self, message: Message) -> HandlerEnd:
        """Handle it, and say what became of it."""
        try:
            if self._call.abandoned:
                await self._call.see_out((message,))
            if self._once is None:
                if self._direct is not None:
                    returned = await self._direct(self._signature.decode(message.body))
                    if returned is not None:
                        await seen_out(self.name, returned)
                else:
                    await self._work(message, None)
            elif self._signature.transacted:
                return await self._committed(self._once, message)
            elif not await self._once(message, self._work):
                return ALREADY_DONE
        except BaseException as error:  # noqa: BLE001 -- the place where an application's errors are judged
            return self.failed(message, self._raised(error))
        return self.failed(message, None)

    async def _committed(self, once: Once, message: Message) -> HandlerEnd:
        """In its transaction, which what is raised after `ack` does not roll back."""
        late: BaseException | None = None

        async def run(message: Message, transaction: Transaction | None) -> None:
            nonlocal late
            try:
                await self._work(message, transaction)
            except BaseException as error:
                if not _after_its_end(message, error):
                    raise
                late = self._raised(error)

        return self.failed(message, late) if await once(message, run) else ALREADY_DONE

    async def _run(self, message: Message, transaction: Transaction | None) -> None:
        body = self._signature.decode(message.body) if self._wants_body else None
        await self._call((message,), self._signature.arguments(body, message, transaction))

    async def _run_with(self, message: Message, transaction: Transaction | None) -> None:
        """With its dependencies, which see what the handler raises before it is done, and cannot hide it."""
        body = self._signature.decode(message.body) if self._wants_body else None
        clock = asyncio.get_running_loop().time
        begun = clock()
        opened = OpenDependencies(message, transaction)
        with message.at_stake():
            try:
                made = await self._opened(opened)
            except BaseException as error:
                await opened.failed(error)
                raise
        given = (*self._signature.arguments(body, message, transaction), *made)
        late: BaseException | None = None
        with message.at_stake() if opened.cleaning else nullcontext():
            try:
                await self._call((message,), given, spent_s=clock() - begun)
            except BaseException as error:
                if not _after_its_end(message, error):
                    await opened.failed(error)
                    raise
                await opened.close()
                late = error
            else:
                await opened.close()
        if late is not None:
            raise late

    async def _opened(self, opened: OpenDependencies) -> list[Any]:
        """The values of its dependencies, within the time that the handler has itself."""
        patience = asyncio.timeout(self._call.timeout_s)
        try:
            async with patience:
                return [await one.opened(opened) for one in self._signature.dependencies]
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise self._call.late(" to open what it depends on") from error


def _after_its_end(message: Message, error: BaseException) -> bool:
    """Whether this came when `ack` or `discard` had been said. Its cancellation is no such error: that stops
    it in the middle of things, and what it did is undone."""
    if isinstance(error, GeneratorExit) or not is_done(message, raised=True):
        return False
    task = asyncio.current_task()
    return not (isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0)
