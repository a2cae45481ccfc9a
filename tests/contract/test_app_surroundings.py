"""What surrounds an application's handlers: its lifespan, dependencies, middleware; also when they fail.

About `consumer.handlers.dependencies`, `consumer.handlers.middleware`, `consumer.handlers.signature`,
`consumer.app`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, TypeVar

import pytest
from pydantic import BaseModel
from tests.contract.ground import Ground

from deadletter import Consumer, Depends, Message, Proceed, Transaction, fixed
from deadletter.core.letter import names
from deadletter.errors import UsageError

_F = TypeVar("_F", bound=Callable[..., Any])


class Order(BaseModel):
    number: int


class Journal:
    """What happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


journal = Journal()


@pytest.fixture(autouse=True)
def _empty() -> None:
    journal.lines.clear()


async def opened(message: Message) -> AsyncIterator[str]:
    journal(f"open {message.attempt}")
    try:
        yield "db"
    except BaseException as error:
        journal(f"error {type(error).__name__}")
        raise
    finally:
        await asyncio.sleep(0)
        journal("close")


Db = Annotated[str, Depends(opened)]


def plain() -> int:
    return 7


async def coroutine(db: Db, number: Annotated[int, Depends(plain)]) -> str:
    return f"{db}-{number}"


def generator() -> Iterator[str]:
    yield "generated"
    journal("generator closed")


@contextmanager
def managed() -> Iterator[str]:
    yield "managed"
    journal("managed closed")


@asynccontextmanager
async def managed_async() -> AsyncIterator[str]:
    yield "managed async"
    journal("managed async closed")


async def swallowing() -> AsyncIterator[None]:
    try:
        yield
    except ValueError:
        journal("swallowed")


def cannot(why: str) -> None:
    raise ConnectionError(why)


async def fails_before() -> AsyncIterator[None]:
    cannot("no database")
    yield


async def fails_after() -> AsyncIterator[None]:
    yield
    raise ConnectionError("the commit failed")


async def slow() -> None:
    await asyncio.sleep(3600)


async def test_what_a_handler_depends_on_is_opened_and_closed_around_it(ground: Ground) -> None:
    app = ground.application()

    @app.queue("orders", retries=1, backoff=fixed(0.1))
    async def handle(
        db: Db,
        order: Order,
        both: Annotated[str, Depends(coroutine)],
        message: Message,
        *,
        one: Annotated[str, Depends(generator)],
        two: Annotated[str, Depends(managed)],
        three: Annotated[str, Depends(managed_async)],
        again: Annotated[str, Depends(opened)] = "not this",
        own: str = "own",
    ) -> None:
        journal(f"{order.number} {db} {both} {one} {two} {three} {again} {own} {message.attempt}")
        if not message.attempt:
            raise ValueError("once more")

    async with ground.serving(app):
        await app.publish(Order(number=3), key="orders")
        await ground.until(lambda: journal.lines.count("close") == 2)
    told = "3 db db-7 generated managed managed async db own"
    assert journal.lines == [
        "open 0", f"{told} 0", "error ValueError", "close",
        "open 1", f"{told} 1", "managed async closed", "managed closed", "generator closed", "close",
    ]  # fmt: skip


async def test_a_plain_function_in_a_thread_has_them_too(ground: Ground) -> None:
    app = ground.application()

    @app.queue("orders", timeout=30)
    def handle(order: Order, db: Db) -> None:
        journal(f"{order.number} {db}")

    async with ground.serving(app):
        await app.publish({"number": 3}, key="orders")
        await ground.until(lambda: "close" in journal.lines)
    assert journal.lines == ["open 0", "3 db", "close"]


def wrapping(function: _F) -> _F:
    @functools.wraps(function)
    async def wrapper(*arguments: Any, **named: Any) -> Any:
        journal("wrapped")
        return await function(*arguments, **named)

    return wrapper  # type: ignore[return-value]  # as decorators are written


async def base(order: Order, place: str, db: Db) -> None:
    journal(f"{order.number} {place} {db}")


@wrapping
async def wrapped(order: Order, db: Db) -> None:
    journal(f"wrapped {order.number} {db}")


async def test_partial_wrapped_and_called_handlers_have_them(ground: Ground) -> None:
    app = ground.application()

    class Object:
        async def __call__(self, order: Order, db: Db) -> None:
            journal(f"object {order.number} {db}")

        async def method(self, order: Order, db: Db) -> None:
            journal(f"method {order.number} {db}")

    app.queue("partial")(functools.partial(base, place="here"))
    app.queue("wrapped")(wrapped)
    app.queue("object")(Object())
    app.queue("method")(Object().method)
    async with ground.serving(app):
        for queue in ("partial", "wrapped", "object", "method"):
            await app.publish({"number": 3}, key=queue)
        await ground.until(lambda: journal.lines.count("close") == 4)
    assert {"3 here db", "wrapped", "wrapped 3 db", "object 3 db", "method 3 db"} <= set(journal.lines)


@pytest.mark.parametrize(("dependency", "runs"), [(fails_before, 0), (fails_after, 2), (swallowing, 2)])
async def test_one_that_fails_fails_its_message(ground: Ground, dependency: Any, runs: int) -> None:
    """Before: the handler does not run. After: a commit that fails there was no success. And a generator that
    swallows the handler's error does not make it one."""
    app = ground.application()

    async def handle(body: bytes, value: Any) -> None:
        journal("run")
        if dependency is swallowing:
            raise ValueError("not to be hidden")

    handle.__annotations__["value"] = Annotated[None, Depends(dependency)]  # a local name cannot be resolved
    app.queue("orders", retries=1, backoff=fixed(0.1))(handle)
    async with ground.serving(app):
        await app.publish(b"1", key="orders")
        await ground.depth_becomes(names.PARKED, 1)
    assert journal.lines.count("run") == runs
    assert journal.lines.count("swallowed") == (runs if dependency is swallowing else 0)


async def test_a_verb_is_no_error_to_them(ground: Ground) -> None:
    app = ground.application()

    @app.queue("orders")
    async def handle(message: Message, db: Db) -> None:
        await message.park("for a person")

    async with ground.serving(app):
        await app.publish(b"1", key="orders")
        await ground.depth_becomes(names.PARKED, 1)
    assert journal.lines == ["open 0", "close"]


async def test_they_are_closed_when_the_handler_is_cancelled_at_the_end(ground: Ground) -> None:
    app = ground.application(grace=0.2)

    @app.queue("orders")
    async def handle(body: bytes, db: Db) -> None:
        journal("begun")
        await asyncio.sleep(3600)

    async with ground.serving(app):
        await app.publish(b"1", key="orders")
        await ground.until(lambda: "begun" in journal.lines)
    assert journal.lines == ["open 0", "begun", "error CancelledError", "close"]
    await ground.depth_becomes("orders", 1)


async def test_their_opening_is_within_the_time_of_the_handler(ground: Ground) -> None:
    app = ground.application()

    @app.queue("orders", retries=0, timeout=0.2)
    async def handle(body: bytes, value: Annotated[None, Depends(slow)]) -> None:
        journal("run")

    async with ground.serving(app):
        await app.publish(b"1", key="orders")
        await ground.depth_becomes(names.PARKED, 1)
    assert journal.lines == []


async def test_middleware_stands_around_in_order(ground: Ground) -> None:
    async def outer(message: Message, proceed: Proceed) -> None:
        journal(f"outer {message.attempt}")
        try:
            await proceed()
        except ValueError as error:
            journal("outer saw it")
            raise ConnectionError("in other words") from error
        finally:
            journal("outer ends")

    async def inner(message: Message, proceed: Proceed) -> None:
        journal("inner")
        if message.type != "skip":
            await proceed()

    async def twice(message: Message, proceed: Proceed) -> None:
        await proceed()
        with pytest.raises(UsageError, match="a second time"):
            await proceed()

    app = ground.application(middleware=[outer])

    @app.queue(
        "orders", retries=1, backoff=fixed(0.1), on={ConnectionError: fixed(0.1)}, middleware=[inner, twice]
    )
    async def handle(order: Order, db: Db, message: Message) -> None:
        journal("run")
        if not message.attempt:
            raise ValueError("once more")

    async with ground.serving(app):
        await app.publish({"number": 1}, key="orders")
        await ground.until(lambda: journal.lines.count("outer ends") == 2)
        await app.publish({"number": 1}, key="orders", type="skip")
        await ground.until(lambda: journal.lines.count("outer ends") == 3)
        await ground.depth_becomes("orders", 0)
    assert journal.lines == [
        "outer 0", "inner", "open 0", "run", "error ValueError", "close", "outer saw it", "outer ends",
        "outer 1", "inner", "open 1", "run", "close", "outer ends",
        "outer 0", "inner", "outer ends",
    ]  # fmt: skip


async def test_a_lifespan_is_there_before_and_after_the_messages(ground: Ground) -> None:
    await ground.declare("out", "quorum")

    @asynccontextmanager
    async def lifespan(app: Consumer) -> AsyncIterator[dict[str, str]]:
        await app.publish("first", key="out")
        try:
            yield {"pool": "open"}
        finally:
            await app.publish("last", key="out")

    app = ground.application(lifespan=lifespan)

    @app.queue("orders")
    async def handle(body: bytes) -> None:
        await app.publish(f"pool is {app.state['pool']}", key="out")

    async with ground.serving(app):
        await app.publish(b"1", key="orders")
        await ground.depth_becomes("out", 2)
    assert [one.message.body for one in await ground.drain("out")] == [b"first", b"pool is open", b"last"]


async def test_a_lifespan_that_fails_ends_the_consumer(ground: Ground) -> None:
    @asynccontextmanager
    async def lifespan(_app: Consumer) -> AsyncIterator[None]:
        cannot("no pool")
        yield

    app = ground.application(lifespan=lifespan)

    @app.queue("orders")
    async def handle(body: bytes) -> None: ...

    with pytest.raises(ConnectionError, match="no pool"):
        await app.serve(ground.site.memory)
    with pytest.raises(UsageError, match="publish: expected"):
        await app.publish(b"1", key="orders")


def round_and_round(value: Any) -> int:
    return int(value)


round_and_round.__annotations__["value"] = Annotated[int, Depends(round_and_round)]


def wants_more(what: int) -> int:
    return what


async def one(body: bytes, value: Annotated[int, Depends(round_and_round)]) -> None: ...
async def two(body: bytes, value: Annotated[int, Depends(wants_more)]) -> None: ...
async def three(body: bytes, /, value: Annotated[int, Depends(plain)]) -> None: ...
async def four(body: bytes, more: bytes, value: Annotated[int, Depends(plain)]) -> None: ...
async def five(body: bytes, transaction: Transaction, value: Annotated[int, Depends(plain)]) -> None: ...
async def many(orders: list[Order], value: Annotated[int, Depends(plain)]) -> None: ...


def test_what_cannot_be_is_refused_when_it_is_registered() -> None:
    app = Consumer("amqp://broker.example")

    for function in (one, two, three, four, five):
        with pytest.raises(UsageError):
            app.queue("orders")(function)
    with pytest.raises(UsageError, match="Depends: expected a function"):
        Depends(7)  # type: ignore[arg-type]  # wrong on purpose

    with pytest.raises(UsageError, match="expected no Depends"):
        app.batch("orders")(many)

    def no_middleware(_message: Message, _proceed: Proceed) -> None: ...

    with pytest.raises(UsageError, match="middleware: expected async functions"):
        Consumer("amqp://broker.example", middleware=[no_middleware])  # type: ignore[list-item]  # wrong on purpose

    async def real(_message: Message, proceed: Proceed) -> None:
        await proceed()

    with pytest.raises(UsageError, match="none around a batch"):
        Consumer("amqp://broker.example", middleware=[real]).batch("orders")(many)


def test_a_plain_handler_has_nothing_around_it() -> None:
    """What nobody uses costs nothing: the function is called as it is."""
    app = Consumer("amqp://broker.example")

    @app.queue("orders")
    async def handle(body: bytes) -> None: ...

    handler: Any = app._queues["orders"].handler
    assert type(handler).__name__ == "Handler"
    assert handler._direct is handle
