"""A handler: a function of the application, and what its end means.

Async functions are awaited, plain ones run in a thread. Returning is success; raising is classified by the
queue's rules. What comes out is one of `Done | Known | Again | Aside | Away`, and nothing a handler raises
gets past here but the cancellation of its own task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from deadletter.consumer.calling import Call
from deadletter.consumer.idempotency import Ids, Transaction
from deadletter.consumer.judging import DONE, KNOWN, Again, Aside, Away, Done, Known, Outcome, judged, told
from deadletter.consumer.message import Message
from deadletter.consumer.once import Key, Once
from deadletter.consumer.outcomes import HandlerCancelled, Rules
from deadletter.consumer.signature import Wish, signature_of
from deadletter.errors import UsageError

__all__ = ["DONE", "KNOWN", "Again", "Aside", "Away", "Done", "Handler", "Known", "Outcome"]

_log: Final = logging.getLogger("deadletter.consumer")


class Handler:
    """One function for the messages of one queue."""

    def __init__(
        self,
        function: Callable[..., Any],
        rules: Rules,
        *,
        timeout_s: float | None = None,
        concurrency: int = 10,
        idempotent: Ids | None = None,
        key: Key | None = None,
    ) -> None:
        self.rules = rules
        self._call = Call(function, timeout_s=timeout_s, most=concurrency)
        self._signature = signature_of(function)
        self._wants_body = Wish.BODY in self._signature.wishes
        self._alone = self._signature.wishes == (Wish.BODY,)
        self._once: Once | None = None
        if idempotent is not None:
            self._once = Once(idempotent, key, transacted=self._signature.transacted)
        elif self._signature.transacted:
            raise UsageError(
                f"handler {self.name}: expected idempotent=StoreIds(…) for its Transaction, got none"
            )
        # Without a limit and in our own loop there is nothing to do around it: the shortest way.
        self._direct = function if self._call.is_async and not self._call.hurried and self._alone else None

    @property
    def name(self) -> str:
        return self._call.name

    @property
    def ids(self) -> Ids | None:
        """What must be opened before it runs."""
        return None if self._once is None else self._once.ids

    def close(self) -> None:
        """The consumer ends."""
        self._call.close()

    async def __call__(self, message: Message) -> Outcome:
        """Handle it, and say what became of it."""
        try:
            if self._once is None:
                if self._direct is not None:
                    await self._direct(self._signature.decode(message.body))
                else:
                    await self._run(message, None)
            elif not await self._once(message, self._run):
                return KNOWN
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return self._ended(
                message, HandlerCancelled(f"{self.name} awaited something that was cancelled"), error
            )
        except Exception as error:  # noqa: BLE001 -- this is the place where an application's errors are judged
            return self._ended(message, error)
        decided = message.close()
        if decided is False or decided is True:
            return DONE
        return judged(self.rules, decided)

    async def _run(self, message: Message, transaction: Transaction | None) -> None:
        body = self._signature.decode(message.body) if self._wants_body else None
        await self._call((message,), self._signature.arguments(body, message, transaction))

    def _ended(self, message: Message, error: Exception, cause: BaseException | None = None) -> Outcome:
        """By an error; if a verb was used before, that stands, and the error is not hidden."""
        if cause is not None:
            error.__cause__ = cause
        decided = message.close()
        if decided is False:
            return judged(self.rules, error)
        _log.warning(
            "%s said what becomes of a message of %s and raised afterwards (%s); what it said stands",
            self.name,
            message.queue,
            told(error),
            exc_info=error,
        )
        return DONE if decided is True else judged(self.rules, decided)


def is_cancelled() -> bool:
    """Whether somebody cancelled this very task; else the handler awaited something that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
