"""What a handler is given and what stands around it, however it is spelled; what would go wrong is refused.

About `consumer.handlers.middleware`, `consumer.handlers.signature`, `consumer.handlers.dependencies`,
`consumer.handlers.calling`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from deadletter import Depends, Message, Proceed
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.handlers.batching import BatchHandler
from deadletter.consumer.handlers.handler_end import DONE, Failed
from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.outcomes import HandlerTimeout, Rules, Undecodable
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage as Raw
from deadletter.core.letter.message import View, encode
from deadletter.errors import UsageError

RULES = Rules(retries=3, backoff=fixed(1))


class Order(BaseModel):
    number: int


def message(body: bytes = b"{}") -> Message:
    raw = Raw(encode(View()), body)
    return Message(Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=False), 0)


async def failure(handler: Handler, body: bytes = b"{}") -> BaseException:
    end = await handler(message(body))
    assert isinstance(end, Failed)
    return end.error


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """As a decorator does it that knows nothing of what it decorates."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


# -- middleware ----------------------------------------------------------------------------------------------
tasks: set[asyncio.Task[None]] = set()


async def returns_it(_message: Message, proceed: Proceed) -> Any:
    return proceed()


async def drops_it(_message: Message, proceed: Proceed) -> None:
    proceed()


async def makes_a_task(_message: Message, proceed: Any) -> None:
    tasks.add(asyncio.create_task(proceed()))


async def makes_a_task_that_begins(_message: Message, proceed: Any) -> None:
    tasks.add(asyncio.create_task(proceed()))
    await asyncio.sleep(0.01)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", [returns_it, drops_it, makes_a_task, makes_a_task_that_begins])
async def test_middleware_that_does_not_wait_for_the_handler_fails_the_message(wrong: Any) -> None:
    ended: list[bytes] = []

    async def handle(body: bytes, message: Message) -> None:
        await message.ack()
        await asyncio.sleep(60)
        ended.append(body)

    error = await failure(Handler(handle, RULES, middleware=(wrong,)))
    assert isinstance(error, UsageError)
    assert "await proceed()" in str(error)
    assert ended == []
    assert all(task.done() for task in tasks)
    tasks.clear()


async def test_middleware_may_wait_in_another_task_or_not_call_it_at_all() -> None:
    async def elsewhere(_message: Message, proceed: Any) -> None:
        await asyncio.gather(asyncio.create_task(proceed()))

    async def never(_message: Message, _proceed: Proceed) -> None: ...

    ran: list[bytes] = []

    async def handle(body: bytes) -> None:
        ran.append(body)

    assert await Handler(handle, RULES, middleware=(elsewhere,))(message(b"1")) is DONE
    assert await Handler(handle, RULES, middleware=(never,))(message(b"2")) is DONE
    assert ran == [b"1"]


# -- parameters ----------------------------------------------------------------------------------------------
def plain() -> str:
    return "value"


def by_default(db: str = Depends(plain)) -> None:  # type: ignore[assignment]  # wrong on purpose
    """As FastAPI takes it."""


async def depending(_body: str, _db: Annotated[None, Depends(by_default)]) -> None: ...


def test_depends_as_a_default_is_refused() -> None:
    for function in (by_default, depending):
        with pytest.raises(UsageError, match=r"db: Annotated\[…, Depends\(plain\)\]"):
            Handler(function, RULES)


async def test_a_parameter_after_a_star_is_given_by_name() -> None:
    seen: list[Any] = []

    async def handle(body: str, *, message: Message, extra: int = 3) -> None:
        seen.append((body, message.queue, extra))

    async def with_db(db: str, order: str) -> None:
        seen.append((db, order))

    async def many(bodies: list[str], *, messages: list[Message]) -> None:
        seen.append((bodies, len(messages)))

    def before(body: str, /, *, message: Message) -> None: ...

    assert await Handler(handle, RULES)(message(b"x")) is DONE
    assert await Handler(functools.partial(with_db, db="db"), RULES)(message(b"y")) is DONE
    assert await BatchHandler(many, RULES)([message(b"z")]) == [DONE]
    assert seen == [("x", "q", 3), ("db", "y"), (["z"], 1)]
    with pytest.raises(UsageError, match="some before a /"):
        Handler(before, RULES)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Annotated[str, Field(min_length=3)], b"abc", b"x"),
        (Annotated[bytes, Field(min_length=3)], b"\xff\xff\xff", b"x"),
        (Annotated[list, Field(min_length=2)], b"[1, 2]", b"[1]"),
        (Annotated[dict[str, Any], Field(min_length=1)], b'{"a": 1}', b"{}"),
        (Annotated[Any, Field(gt=3)], b"4", b"3"),
        (Annotated[str, "a word for the reader"], b"abc", b"\xff"),
    ],
)
async def test_what_annotated_adds_is_checked_whatever_it_is_added_to(
    kind: Any, good: bytes, bad: bytes
) -> None:
    async def handle(body: Any) -> None: ...
    async def many(bodies: Any) -> None: ...

    handle.__annotations__["body"] = kind
    many.__annotations__["bodies"] = list[kind]
    handler = Handler(handle, RULES)
    assert await handler(message(good)) is DONE
    assert isinstance(await failure(handler, bad), Undecodable)
    ends = await BatchHandler(many, RULES)([message(good), message(bad)])
    assert [type(end).__name__ for end in ends] == ["Done", "Failed"]


async def test_a_wrapper_of_an_object_or_a_partial_keeps_the_annotation() -> None:
    seen: list[Any] = []

    @dataclass
    class Calling:
        order: int = 7  # a wrapper copies the annotations of the fields

        async def __call__(self, order: Order) -> None:
            seen.append(order)

    async def with_db(_db: str, order: Order) -> None:
        seen.append(order)

    async def alone(order: Order) -> None:
        seen.append(order)

    class Counting:
        """A decorator that is an object."""

        def __init__(self, function: Callable[..., Any]) -> None:
            functools.update_wrapper(self, function)

        async def __call__(self, *args: Any) -> None:
            await self.__wrapped__(*args)  # type: ignore[attr-defined]  # update_wrapper set it

    functions = (
        wrapped(Calling()),
        wrapped(wrapped(Calling())),
        wrapped(functools.partial(with_db, "db")),
        functools.partial(wrapped(functools.partial(with_db)), "db"),
        Counting(alone),
    )
    for function in functions:
        assert await Handler(function, RULES)(message(b'{"number": 1}')) is DONE
    assert seen == [Order(number=1)] * len(functions)


# -- dependencies --------------------------------------------------------------------------------------------
closed: list[str] = []


async def generates() -> AsyncIterator[str]:
    yield "value"
    closed.append("closed")


def generates_plainly() -> Iterator[str]:
    yield "value"
    closed.append("closed")


manages = asynccontextmanager(generates)


async def awaited() -> Any:
    return manages()


class Generating:
    async def __call__(self) -> AsyncIterator[str]:
        yield "value"
        closed.append("closed")

    async def method(self) -> AsyncIterator[str]:
        yield "value"
        closed.append("closed")


@dataclass
class Unhashable:
    number: int = 1

    def __call__(self) -> str:
        closed.append("closed")  # it has nothing to close
        return "value"


@pytest.mark.parametrize(
    "dependency",
    [
        generates,
        generates_plainly,
        manages,
        awaited,
        functools.partial(manages),
        wrapped(manages),
        wrapped(generates),
        wrapped(generates_plainly),
        asynccontextmanager(wrapped(generates)),
        Generating(),
        Generating().method,
        Unhashable(),
    ],
)
async def test_a_dependency_of_any_shape_is_opened_and_closed_once(dependency: Any) -> None:
    closed.clear()
    seen: list[Any] = []

    def asking(value: Any) -> Any:
        return value

    async def handle(_body: bytes, value: Any, same: Any) -> None:
        seen.extend([value, same])

    asking.__annotations__["value"] = Annotated[Any, Depends(dependency)]
    handle.__annotations__["value"] = Annotated[Any, Depends(dependency)]
    handle.__annotations__["same"] = Annotated[Any, Depends(asking)]

    assert await Handler(handle, RULES)(message()) is DONE
    assert seen == ["value", "value"]
    assert closed == ["closed"]


async def test_a_method_is_one_dependency_however_often_it_is_named() -> None:
    closed.clear()
    one = Generating()

    async def handle(_body: bytes, _first: str, _second: str) -> None: ...

    handle.__annotations__["_first"] = Annotated[str, Depends(one.method)]
    handle.__annotations__["_second"] = Annotated[str, Depends(one.method)]

    assert await Handler(handle, RULES)(message()) is DONE
    assert closed == ["closed"]


async def test_a_manager_that_is_none_of_contextlibs_is_a_value() -> None:
    seen: list[bool] = []

    async def handle(_body: bytes, given: Annotated[asyncio.Lock, Depends(asyncio.Lock)]) -> None:
        seen.append(given.locked())

    assert await Handler(handle, RULES)(message()) is DONE
    assert seen == [False]


async def slow() -> int:
    await asyncio.sleep(0.2)
    return 1


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_the_time_of_opening_is_taken_from_the_handlers(kind: str) -> None:
    async def handle(_body: bytes, _value: Annotated[int, Depends(slow)]) -> None:
        await asyncio.sleep(0.2)

    def plainly(_body: bytes, _value: Annotated[int, Depends(slow)]) -> Any:
        return asyncio.sleep(0.2)

    handler = Handler(handle if kind == "async" else plainly, RULES, timeout_s=0.3)
    assert isinstance(await failure(handler), HandlerTimeout)
    handler.close()
