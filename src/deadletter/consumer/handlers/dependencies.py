"""What a handler is given by annotation: `Annotated[Db, Depends(open_db)]`.

A dependency is a function, plain or async, that returns the value, or a generator function that yields it
once and cleans up afterwards, also under `@contextmanager` or `@asynccontextmanager`. Which of these it is,
what it returned says: a wrapper, a partial or an object does not show what it calls. It may ask for the
`Message`, the `Transaction` and other dependencies; each is made once per message. What is read from the
annotations is read when the handler is registered.

Clean-up comes when the handler has ended and before its message is acked: a commit that fails there is a
failure of the message, also of one that was acked by hand. It sees what the handler raised, and cannot hide
it: a generator that swallows an error after `yield` does not make a failed message a done one.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Annotated, Any, Final, TypeAlias

from deadletter.consumer.handlers.callables import name_of
from deadletter.consumer.idempotency import Transaction
from deadletter.consumer.message import Message
from deadletter.errors import UsageError

DependencyCall: TypeAlias = Callable[..., Any]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@asynccontextmanager
async def _nothing_async() -> AsyncIterator[None]:
    yield


_MANAGED: Final = type(_nothing())
"""What a function under `@contextmanager` returns. Other managers (a file, a session) are values."""
_MANAGED_ASYNC: Final = type(_nothing_async())


@dataclass(frozen=True, slots=True)
class Depends:
    """In an annotation: what the parameter is given is made by this function."""

    dependency: DependencyCall

    def __post_init__(self) -> None:
        if not callable(self.dependency):
            raise UsageError(f"Depends: expected a function, got {self.dependency!r}")


@dataclass(slots=True)
class OpenDependencies:
    """What was opened for one message."""

    message: Message
    transaction: Transaction | None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What cleans up."""
    cleaning: bool = False
    """Whether there is anything to clean up."""
    known: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """What was made, by who made it."""

    async def entered(self, made: Any) -> Any:
        """The value, of what a dependency returned."""
        if inspect.isawaitable(made):
            made = await made
        if inspect.isgenerator(made):
            made = contextmanager(_once(made))()
        elif inspect.isasyncgen(made):
            made = asynccontextmanager(_once(made))()
        if isinstance(made, _MANAGED):
            self.cleaning = True
            return self.stack.enter_context(made)
        if isinstance(made, _MANAGED_ASYNC):
            self.cleaning = True
            return await self.stack.enter_async_context(made)
        return made

    async def failed(self, error: BaseException) -> None:
        """They see what the handler raised, or one of them."""
        await self.stack.__aexit__(type(error), error, error.__traceback__)

    async def close(self) -> None:
        """The handler has ended well."""
        await self.stack.aclose()


def _once(made: Any) -> Callable[[], Any]:
    return lambda: made


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One function, and what it asks for itself."""

    call: DependencyCall
    wants_message: tuple[str, ...]
    """Names of the parameters that are given the message."""
    wants_transaction: tuple[str, ...]
    wants: tuple[tuple[str, Dependency], ...]

    async def opened(self, opened: OpenDependencies) -> Any:
        """Its value for this message; what it has to clean up is on the stack."""
        me = _identity(self.call)
        if me in opened.known:
            return opened.known[me]
        given: dict[str, Any] = dict.fromkeys(self.wants_message, opened.message)
        given |= dict.fromkeys(self.wants_transaction, opened.transaction)
        for name, other in self.wants:
            given[name] = await other.opened(opened)
        value = opened.known[me] = await opened.entered(self.call(**given))
        return value


def _identity(call: DependencyCall) -> tuple[int, ...]:
    """The same for the same callable, hashable or not. A method is another object each time it is named."""
    return (id(call.__self__), id(call.__func__)) if inspect.ismethod(call) else (id(call),)


def asked(annotation: Any) -> Depends | None:
    """The `Depends` of an annotation, if it has one."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    return next((one for one in annotation.__metadata__ if isinstance(one, Depends)), None)


def dependency_of(call: DependencyCall, *above: DependencyCall) -> Dependency:
    """What a function asks for; raises UsageError for what it cannot be given. `above`: who asked for it."""
    name = name_of(call)
    if _identity(call) in map(_identity, above):
        raise UsageError(f"dependency {name}: expected one that does not depend on itself, got a circle")
    messages: list[str] = []
    transactions: list[str] = []
    wants: list[tuple[str, Dependency]] = []
    hints = hints_of("dependency", call)
    parameters = inspect.signature(call).parameters
    refuse_defaults("dependency", call, parameters)
    for parameter in parameters.values():
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
        wants_message=tuple(messages),
        wants_transaction=tuple(transactions),
        wants=tuple(wants),
    )


def refuse_defaults(what: str, function: Callable[..., Any], parameters: Mapping[str, Parameter]) -> None:
    """Raises UsageError for a `Depends` in the place of a default: a function would be given that itself."""
    for parameter in parameters.values():
        if isinstance(parameter.default, Depends):
            called = name_of(parameter.default.dependency)
            raise UsageError(
                f"{what} {name_of(function)}: expected {parameter.name}: Annotated[…, Depends({called})], "
                f"got Depends({called}) as its default"
            )


def hints_of(what: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a callable, with what `Annotated` adds. Raises UsageError for what is unreadable."""
    annotated = _annotated(function)
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


def _annotated(function: Any) -> Any:
    """Where the annotations are of a partial, or of a wrapper: what it calls says what its parameters are, as
    it does to `inspect.signature`. A function that wraps a function has a copy of them."""
    while True:
        inside = function
        if hasattr(function, "func") and hasattr(function, "keywords"):  # a partial
            inside = function.func
        elif not inspect.isclass(function):
            inside = inspect.unwrap(function, stop=lambda one: hasattr(one, "__signature__"))
            if inspect.isroutine(function) and inspect.isroutine(inside):
                return function
        if inside is function:
            return function
        function = inside
