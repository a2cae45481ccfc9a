"""Every kind of callable as a handler: what it does is done before its message is acked, or it is refused.

A call that only makes a coroutine, a future or a generator has done nothing yet. Whatever a wrapper hands
out, the work must have run to its end when the message is gone; and what can never run is refused when it is
registered, or fails like any other error.

About `consumer.handlers.callables`, `consumer.handlers.handling`, `consumer.handlers.signature`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests import consuming, postbox
from tests.brokers import Vhost

from deadletter import Consumer, HandlerTimeout, Message, fixed
from deadletter.core.letter import names
from deadletter.core.letter.message import view
from deadletter.errors import UsageError
from deadletter.testing.memory import MemoryBroker

Work = Callable[[Any], Awaitable[None]]
Make = Callable[[Work], Callable[..., Any]]
pool = concurrent.futures.ThreadPoolExecutor(1)


class Later:
    """Awaitable, and nothing else."""

    def __init__(self, doing: Awaitable[None]) -> None:
        self._doing = doing

    def __await__(self) -> Generator[Any, None, None]:
        return self._doing.__await__()


def coroutine_function(work: Work) -> Callable[..., Any]:
    async def handle(order: Any) -> None:
        await work(order)

    return handle


def wrapped(work: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(work)
    def wrapper(*arguments: Any) -> Any:
        return work(*arguments)

    return wrapper


def wrapped_twice(work: Work) -> Callable[..., Any]:
    return wrapped(wrapped(work))


def async_wrapper_that_forgets_to_await(work: Work) -> Callable[..., Any]:
    @functools.wraps(work)
    async def wrapper(*arguments: Any) -> Any:
        return work(*arguments)

    return wrapper


def a_lambda(work: Work) -> Callable[..., Any]:
    return lambda order: work(order)  # noqa: PLW0108 -- a lambda is what is tried


def a_partial(work: Work) -> Callable[..., Any]:
    async def handle(_tenant: str, order: Any) -> None:
        await work(order)

    return functools.partial(handle, "acme")


def a_partial_of_a_plain_one(work: Work) -> Callable[..., Any]:
    def handle(_tenant: str, order: Any) -> Any:
        return work(order)

    return functools.partial(handle, "acme")


def an_object(work: Work) -> Callable[..., Any]:
    class Handle:
        async def __call__(self, order: Any) -> None:
            await work(order)

    return Handle()


def a_plain_object(work: Work) -> Callable[..., Any]:
    class Handle:
        def __call__(self, order: Any) -> Any:
            return work(order)

    return Handle()


def a_method(work: Work) -> Callable[..., Any]:
    class Handle:
        async def handle(self, order: Any) -> None:
            await work(order)

    return Handle().handle


def a_wrapped_method(work: Work) -> Callable[..., Any]:
    class Handle:
        @wrapped
        async def handle(self, order: Any) -> None:
            await work(order)

    return Handle().handle


def a_class_method(work: Work) -> Callable[..., Any]:
    class Handle:
        @classmethod
        async def handle(cls, order: Any) -> None:
            await work(order)

    return Handle.handle


def a_static_method(work: Work) -> Callable[..., Any]:
    class Handle:
        @staticmethod
        def handle(order: Any) -> Any:
            return work(order)

    return Handle.handle


def an_awaitable(work: Work) -> Callable[..., Any]:
    return lambda order: Later(work(order))


def a_task(work: Work) -> Callable[..., Any]:
    loop = asyncio.get_running_loop()

    async def handle(order: Any) -> Any:
        return loop.create_task(work(order))  # type: ignore[arg-type]  # it is a coroutine

    return handle


def a_future_of_a_thread(work: Work) -> Callable[..., Any]:
    return lambda order: pool.submit(asyncio.run, work(order))  # type: ignore[arg-type]


def a_plain_function(work: Work) -> Callable[..., Any]:
    def handle(order: Any) -> None:
        asyncio.run(work(order))  # type: ignore[arg-type]

    return handle


def a_wrapper_that_runs_it(work: Work) -> Callable[..., Any]:
    @functools.wraps(work)
    def wrapper(*arguments: Any) -> None:
        asyncio.run(work(*arguments))  # type: ignore[arg-type]

    return wrapper


def an_old_coroutine(work: Work) -> Callable[..., Any]:
    @types.coroutine
    def handle(order: Any) -> Generator[Any, Any, None]:
        yield from work(order).__await__()

    return handle


RUN: tuple[Make, ...] = (
    coroutine_function,
    wrapped,
    wrapped_twice,
    async_wrapper_that_forgets_to_await,
    a_lambda,
    a_partial,
    a_partial_of_a_plain_one,
    an_object,
    a_plain_object,
    a_method,
    a_wrapped_method,
    a_class_method,
    a_static_method,
    an_awaitable,
    a_task,
    a_future_of_a_thread,
    a_plain_function,
    a_wrapper_that_runs_it,
    an_old_coroutine,
)


def each_of(kinds: tuple[Any, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


async def worked(app: Consumer, broker: MemoryBroker, *bodies: bytes) -> None:
    """Serve these, until nothing is ready or in hand."""
    serving = asyncio.create_task(app.serve(broker))
    await asyncio.sleep(0)
    assert app.ready is not None
    await asyncio.wait_for(app.ready.wait(), 30)
    channel = await (await broker.connect()).channel()
    for body in bodies:
        channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", body)
    async with asyncio.timeout(120):
        await asyncio.sleep(0.05)
        while broker.depth("orders") or broker.unacked("orders"):  # noqa: ASYNC110 -- it tells of no event
            await asyncio.sleep(0.01)
    app.stop()
    await serving


@each_of(RUN)
@pytest.mark.parametrize("batch", [False, True], ids=["queue", "batch"])
@pytest.mark.parametrize("seconds", [None, 20.0], ids=["", "timeout"])
async def test_what_it_hands_out_is_run_before_the_ack(
    kind: Make, batch: bool, seconds: float | None
) -> None:
    done: list[Any] = []
    unacked: list[int] = []
    broker = MemoryBroker()

    async def one(order: bytes) -> None:
        await asyncio.sleep(0.01)
        unacked.append(broker.unacked("orders"))
        done.append(order)

    async def many(orders: list[bytes]) -> None:
        await asyncio.sleep(0.01)
        unacked.append(broker.unacked("orders"))
        done.extend(orders)

    app = Consumer("amqp://broker.example")
    function = kind(many if batch else one)
    annotate(function, list[bytes] if batch else bytes)
    if batch:
        app.batch("orders", size=2, wait=0.02, layout="ladder", timeout=seconds)(function)
    else:
        app.queue("orders", layout="ladder", timeout=seconds)(function)
    await worked(app, broker, b"1", b"2", b"3")
    assert sorted(done) == [b"1", b"2", b"3"]
    assert all(unacked)
    assert broker.depth("orders__retry.1") == broker.depth("orders__dlq") == 0


def annotate(function: Any, kind: Any) -> None:
    """The makers above do not know what they are given."""
    found = function
    while isinstance(found, functools.partial):
        found = found.func
    if not isinstance(found, types.FunctionType):
        found = getattr(found, "__func__", None) or type(found).__call__
    found.__annotations__ = {"order": kind, "orders": kind}


@each_of(RUN)
async def test_and_its_failure_is_one(kind: Make) -> None:
    async def fails(_: Any) -> None:
        await asyncio.sleep(0)
        raise KeyError("no")

    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    function = kind(fails)
    annotate(function, bytes)
    app.queue("orders", layout="ladder", backoff=fixed(600))(function)
    await worked(app, broker, b"1")
    (waiting,) = broker.messages("orders__retry.1")
    assert (view(waiting.properties).headers or {})[names.ERROR_TYPE] == "KeyError"


# -- what would never run ------------------------------------------------------------------------------------
def generator(_: bytes) -> Iterator[int]:
    yield 1


async def async_generator(_: bytes) -> AsyncIterator[int]:
    yield 1


class Generating:
    def __call__(self, _: bytes) -> Iterator[int]:
        yield 1

    async def handle(self, _: bytes) -> AsyncIterator[int]:
        yield 1


def plainly_around(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


NEVER: tuple[Any, ...] = (
    generator,
    async_generator,
    plainly_around(generator),
    plainly_around(plainly_around(async_generator)),
    functools.partial(generator),
    functools.partial(plainly_around(async_generator)),
    Generating(),
    Generating().handle,
    functools.partial(Generating()),
    contextmanager(generator),
    asynccontextmanager(async_generator),
)


@pytest.mark.parametrize("never", range(len(NEVER)))
@pytest.mark.parametrize("batch", [False, True], ids=["queue", "batch"])
def test_what_can_never_run_is_refused(never: int, batch: bool) -> None:
    app = Consumer("amqp://broker.example")
    with pytest.raises(UsageError, match="generator function: called it has not begun"):
        (app.batch if batch else app.queue)("orders")(NEVER[never])


LAZY: tuple[Callable[[Any], Any], ...] = (
    lambda _: generator(b""),
    lambda _: async_generator(b""),
    lambda orders: map(print, orders),
    lambda orders: filter(print, orders),
)


@pytest.mark.parametrize("lazy", range(len(LAZY)))
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_is_seen_to_be_a_generator_only_when_it_comes_fails(lazy: int, is_async: bool) -> None:
    async def handle(order: bytes) -> Any:
        return LAZY[lazy](order)

    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    function = handle if is_async else LAZY[lazy]
    app.queue("orders", layout="ladder", backoff=fixed(600))(function)
    await worked(app, broker, b'"ab"')
    (waiting,) = broker.messages("orders__retry.1")
    assert "has not begun" in str((view(waiting.properties).headers or {})[names.ERROR_MESSAGE])


async def test_the_time_of_a_thread_and_of_what_it_returns_is_one() -> None:
    begun: list[bytes] = []

    async def slow(order: bytes) -> None:
        begun.append(order)
        await asyncio.sleep(3600)

    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    app.queue("orders", layout="ladder", timeout=1, backoff=fixed(600))(plainly_around(slow))
    await worked(app, broker, b"1")
    assert begun == [b"1"]
    (waiting,) = broker.messages("orders__retry.1")
    headers = view(waiting.properties).headers or {}
    assert str(headers[names.ERROR_TYPE]).endswith(HandlerTimeout.__name__)


async def test_a_wrapped_handler_on_a_real_broker(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    done: list[bytes] = []
    threads: set[str] = set()

    async def work(body: bytes, message: Message) -> None:
        await asyncio.sleep(0.05)
        threads.add(threading.current_thread().name)
        done.append(message.body)

    app = Consumer(vhost.url, api=vhost.api)
    app.queue("orders", layout="ladder")(plainly_around(work))
    async with consuming.serving(app):
        await consuming.post(vhost, b"1", b"2")
        await consuming.until(lambda: len(done) == 2, "both")
    assert threads == {threading.main_thread().name}  # what it returned ran on the loop
    await consuming.nothing_left(vhost)
