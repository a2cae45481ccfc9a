"""A handler: a function of the application, and what its end means.

Async functions are awaited, plain ones run in a thread. Returning is success; raising is classified by the
queue's rules. What comes out is one of `Done | Again | Aside | Away`, and nothing a handler raises gets past
here but the cancellation of its own task.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import typing
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from deadletter.consumer.decoding import Decoder, decoder_for
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import (
    Discard,
    Finally,
    HandlerTimeout,
    Park,
    RetryLater,
    Rules,
    Undecodable,
)
from deadletter.core.backoff import Schedule
from deadletter.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """It is to be tried again by this schedule; `delay_ms` where the handler said how long."""

    error: BaseException
    schedule: Schedule
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """For a person."""

    error: BaseException
    why: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Thrown away, as a rule or the handler said."""

    why: str


Outcome: TypeAlias = Done | Again | Aside | Away
DONE: Final = Done()
"""Made once: it is by far the most frequent."""


class Handler:
    """One function for the messages of one queue."""

    def __init__(
        self,
        function: Callable[..., Any],
        rules: Rules,
        *,
        timeout_s: float | None = None,
        threads: Executor | None = None,
    ) -> None:
        self.name = getattr(function, "__qualname__", repr(function))
        self.rules = rules
        self._function = function
        self._timeout_s = timeout_s
        self._threads = threads
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 -- an object with an async __call__ is one too
        )
        self._decode, self._wants_body, self._message_at = _shape_of(function)

    async def __call__(self, message: Message) -> Outcome:
        """Handle it, and say what became of it."""
        try:
            arguments = self._arguments(message)
            if self._timeout_s is None:
                await self._run(arguments)
            else:
                await self._in_time(arguments)
        except Exception as error:  # noqa: BLE001 -- this is the place where an application's errors are judged
            if message.decided is False:
                return self._judged(error)
        decided = message.decided
        if decided is False or decided is True:
            return DONE
        assert isinstance(decided, Exception)
        return self._judged(decided)

    def _arguments(self, message: Message) -> tuple[Any, ...]:
        if not self._wants_body:
            return (message,)
        body = self._decode(message.body)
        match self._message_at:
            case None:
                return (body,)
            case 0:
                return (message, body)
            case _:
                return (body, message)

    async def _run(self, arguments: tuple[Any, ...]) -> None:
        if self._is_async:
            await typing.cast("Awaitable[object]", self._function(*arguments))
            return
        context = contextvars.copy_context()
        work = partial(context.run, self._function, *arguments)
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _in_time(self, arguments: tuple[Any, ...]) -> None:
        patience = asyncio.timeout(self._timeout_s)
        try:
            async with patience:
                await self._run(arguments)
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise HandlerTimeout(f"{self.name} took longer than {self._timeout_s:g} s") from error

    def _judged(self, error: Exception) -> Outcome:
        match error:
            case Undecodable():
                return Aside(error=error, why=f"its body cannot be decoded: {error}", cause="undecodable")
            case Park():
                return Aside(error=error, why=str(error), cause="handler")
            case Discard():
                return Away(why=str(error))
            case RetryLater(delay_ms=delay_ms):
                return Again(error=error, schedule=self.rules.schedule, delay_ms=delay_ms)
            case _:
                return self._by_rule(error)

    def _by_rule(self, error: Exception) -> Outcome:
        treatment = self.rules.of(error)
        if isinstance(treatment, Schedule):
            return Again(error=error, schedule=treatment)
        if treatment is Finally.DISCARD:
            return Away(why=f"{type(error).__name__}: {error}")
        return Aside(error=error, why=f"{type(error).__name__}: {error}", cause="permanent-error")


def _shape_of(function: Callable[..., Any]) -> tuple[Decoder, bool, int | None]:
    """How the body is decoded, whether it is wanted at all, and at which place the message itself is."""
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        raise UsageError(
            f"handler {function!r}: expected annotations that can be resolved ({error}); define the types "
            "before the handler, at the top of a module"
        ) from error
    given = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    if not 1 <= len(given) <= 2:
        raise UsageError(
            f"handler {function!r}: expected one parameter (the body or a Message) or both, got {len(given)}"
        )
    kinds = [hints.get(parameter.name, inspect.Parameter.empty) for parameter in given]
    places = [place for place, kind in enumerate(kinds) if kind is Message]
    if len(given) == 2 and len(places) != 1:
        raise UsageError(f"handler {function!r}: expected one of its two parameters to be a Message")
    bodies = [kind for kind in kinds if kind is not Message]
    if not bodies:
        return decoder_for(bytes), False, 0
    return decoder_for(bodies[0]), True, places[0] if places else None
