"""What a handler is given by annotation: `Annotated[Db, Depends(open_db)]`.

A dependency is a function, plain or async, that returns the value, or a generator function that yields it
once and cleans up afterwards. It may ask for the `Message`, the `Transaction` and other dependencies; each is
made once per message. What is read from the annotations is read when the handler is registered.

Clean-up comes when the handler has ended and before its message is acked: a commit that fails there is a
failure of the message. It sees what the handler raised, and cannot hide it: a generator that swallows an
error after `yield` does not make a failed message a done one.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeAlias, assert_never

from deadletter.consumer.handlers.callables import name_of
from deadletter.consumer.idempotency import Transaction
from deadletter.consumer.message import Message
from deadletter.errors import UsageError

DependencyCall: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Depends:
    """In an annotation: what the parameter is given is made by this function."""

    dependency: DependencyCall

    def __post_init__(self) -> None:
        if not callable(self.dependency):
            raise UsageError(f"Depends: expected a function, got {self.dependency!r}")


class Making(Enum):
    """How a value comes about."""

    CALLED = "what it returns"
    YIELDED = "what it yields"
    YIELDED_ASYNC = "what it yields, async"
    MANAGED = "a context manager that it returns"
    MANAGED_ASYNC = "an async context manager that it returns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One function, and what it asks for itself."""

    call: DependencyCall
    making: Making
    wants_message: tuple[str, ...]
    """Names of the parameters that are given the message."""
    wants_transaction: tuple[str, ...]
    wants: tuple[tuple[str, Dependency], ...]

    async def opened(
        self,
        message: Message,
        transaction: Transaction | None,
        stack: AsyncExitStack,
        known: dict[DependencyCall, Any],
    ) -> Any:
        """Its value for this message; what it has to clean up is on the stack."""
        if self.call in known:
            return known[self.call]
        given: dict[str, Any] = dict.fromkeys(self.wants_message, message)
        given |= dict.fromkeys(self.wants_transaction, transaction)
        for name, other in self.wants:
            given[name] = await other.opened(message, transaction, stack, known)
        match self.making:
            case Making.YIELDED:
                value = stack.enter_context(contextmanager(_iterator(self.call))(**given))
            case Making.YIELDED_ASYNC:
                value = await stack.enter_async_context(asynccontextmanager(_aiterator(self.call))(**given))
            case Making.MANAGED:
                value = stack.enter_context(self.call(**given))
            case Making.MANAGED_ASYNC:
                value = await stack.enter_async_context(self.call(**given))
            case Making.CALLED:
                value = self.call(**given)
                if inspect.isawaitable(value):
                    value = await value
            case _:
                assert_never(self.making)
        known[self.call] = value
        return value


def _iterator(call: DependencyCall) -> Callable[..., Iterator[Any]]:
    return call


def _aiterator(call: DependencyCall) -> Callable[..., AsyncIterator[Any]]:
    return call


def asked(annotation: Any) -> Depends | None:
    """The `Depends` of an annotation, if it has one."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    return next((one for one in annotation.__metadata__ if isinstance(one, Depends)), None)


def dependency_of(call: DependencyCall, *above: DependencyCall) -> Dependency:
    """What a function asks for; raises UsageError for what it cannot be given. `above`: who asked for it."""
    name = name_of(call)
    if call in above:
        raise UsageError(f"dependency {name}: expected one that does not depend on itself, got a circle")
    messages: list[str] = []
    transactions: list[str] = []
    wants: list[tuple[str, Dependency]] = []
    hints = hints_of("dependency", call)
    for parameter in inspect.signature(call).parameters.values():
        hint = hints.get(parameter.name, parameter.empty)
        found = asked(hint)
        if found is not None:
            wants.append((parameter.name, dependency_of(found.dependency, *above, call)))
        elif hint is Message:
            messages.append(parameter.name)
        elif hint is Transaction:
            transactions.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise UsageError(
                f"dependency {name}: expected parameters of type Message, Transaction or Annotated[…, "
                f"Depends(…)], or with a default, got {parameter.name}"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"dependency {name}: expected parameters that can be named, got {parameter}")
    return Dependency(
        call=call,
        making=_making(call),
        wants_message=tuple(messages),
        wants_transaction=tuple(transactions),
        wants=tuple(wants),
    )


def _making(call: DependencyCall) -> Making:
    if inspect.isasyncgenfunction(call):
        return Making.YIELDED_ASYNC
    if inspect.isgeneratorfunction(call):
        return Making.YIELDED
    inside = getattr(call, "__wrapped__", None)  # @contextmanager around a generator function
    if inspect.isasyncgenfunction(inside):
        return Making.MANAGED_ASYNC
    return Making.MANAGED if inspect.isgeneratorfunction(inside) else Making.CALLED


def hints_of(what: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a callable, with what `Annotated` adds. Raises UsageError for what is unreadable."""
    annotated: Any = function
    while hasattr(annotated, "func") and hasattr(annotated, "keywords"):  # a partial
        annotated = annotated.func
    if inspect.isclass(annotated):
        annotated = annotated.__init__
    plain = inspect.isroutine(annotated)
    try:
        return typing.get_type_hints(annotated if plain else type(annotated).__call__, include_extras=True)
    except Exception as error:
        raise UsageError(
            f"{what} {name_of(function)}: expected annotations that can be resolved ({error}); define the "
            "types before it, at the top of a module"
        ) from error
