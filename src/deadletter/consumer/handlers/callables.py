"""What kind of callable a handler is, and whether what it returned says that it ran.

A generator function that is called has not begun, and nobody would ask it for its first step: it is refused
when it is registered, however it is wrapped. What a plain function returns may be the very work: a coroutine,
a task, a future; that is awaited, whoever made it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from deadletter.errors import UsageError

_LAZY: Final = (map, filter)
"""Iterators that do their work when they are asked for it."""


def name_of(function: Callable[..., Any]) -> str:
    """As its author calls it: a partial and an object by what they call."""
    for layer in layers(function):
        found = getattr(layer, "__qualname__", None)
        if isinstance(found, str):
            return found
    return repr(function)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it only makes a coroutine. A plain wrapper around such a one may do anything first."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def refuse_generators(what: str, function: Callable[..., Any]) -> None:
    """Raises UsageError where a call would run nothing."""
    for layer in layers(function):
        if _is_generator(layer):
            raise UsageError(
                f"{what} {name_of(function)}: expected a function that returns when it is done, got a "
                "generator function: called it has not begun, and the message would be taken for done; take "
                "the yield out, or give a function that runs it to its end"
            )


async def seen_out(name: str, returned: object) -> None:
    """Until what a handler returned is at its end; raises UsageError for what nobody would ever run."""
    while True:
        if isinstance(returned, concurrent.futures.Future):
            returned = await asyncio.wrap_future(returned)
        elif inspect.isawaitable(returned):
            returned = await _awaited(returned)
        else:
            break
    refuse_unbegun(name, returned)


def refuse_unbegun(name: str, returned: object) -> None:
    """Raises UsageError where what a handler returned is work that has not begun, and nobody would begin."""
    unbegun = inspect.isgenerator(returned) or inspect.iscoroutine(returned)
    if unbegun or inspect.isasyncgen(returned) or isinstance(returned, _LAZY):
        kind = type(returned).__name__
        if inspect.isgenerator(returned) or inspect.iscoroutine(returned):
            returned.close()
        raise UsageError(
            f"handler {name}: expected it to return when it is done, got a {kind}, which has not begun; run "
            "it to its end in the handler"
        )


async def _awaited(returned: Awaitable[object]) -> object:
    return await returned


def layers(function: Any) -> Iterator[Any]:
    """The callable, and what it stands for: through partials, methods, wrappers and objects."""
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        layer = waiting.pop(0)
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield layer
        if isinstance(layer, functools.partial | functools.partialmethod):
            waiting.append(layer.func)
        elif inspect.ismethod(layer):
            waiting.append(layer.__func__)
        elif not inspect.isroutine(layer) and not inspect.isclass(layer):
            waiting.append(_called(layer))
        wrapped = getattr(layer, "__wrapped__", None)
        if callable(wrapped):
            waiting.append(wrapped)


def _called(function: Any) -> Any:
    return getattr(type(function), "__call__", None)  # noqa: B004 -- the function itself is wanted


def _is_generator(function: Any) -> bool:
    if inspect.isasyncgenfunction(function):
        return True
    code = getattr(function, "__code__", None)
    awaited = code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)  # @types.coroutine
    return inspect.isgeneratorfunction(function) and not awaited
