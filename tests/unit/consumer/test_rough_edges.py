"""What a newcomer does and nobody expects: stops before it begins, serves twice, checks health plainly.

About `consumer.app`, `consumer.queues.health_wait`, `consumer.queues.queue_options`,
`consumer.handlers.signature`, `consumer.backoffs`, `consumer.publishing.bodies`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from pydantic import Field

from deadletter import Consumer, fixed
from deadletter.consumer.events import Audience, Event, Paused
from deadletter.consumer.publishing.bodies import encoded
from deadletter.consumer.queues.health_wait import HealthWait
from deadletter.errors import UsageError
from deadletter.testing.memory import MemoryBroker, virtual_time


class Plain(TypedDict):
    number: int


def consumer() -> Consumer:
    app = Consumer("amqp://broker.example")

    @app.queue("orders")
    async def handle(_number: int) -> None: ...

    return app


async def test_stopped_before_its_first_step_it_stops_and_may_begin_again() -> None:
    app = consumer()
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        app.stop()
        await serving
        again = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        assert app.ready is not None
        assert app.ready.is_set()
        app.stop()
        await again


async def test_a_second_serve_is_refused_and_the_first_goes_on() -> None:
    app = consumer()
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        with pytest.raises(UsageError, match="does not serve yet"):
            await app.serve(broker)
        assert not serving.done()
        app.stop()
        await serving


@pytest.mark.parametrize("kind", ["plain", "a lambda that returns a coroutine", "async"])
async def test_a_health_check_may_be_any_function(kind: str) -> None:
    well = True
    done: list[int] = []

    async def is_well() -> bool:
        await asyncio.sleep(0)
        return well

    checks: dict[str, Any] = {
        "plain": lambda: well,
        "a lambda that returns a coroutine": lambda: is_well(),  # noqa: PLW0108 -- it is what is tested
        "async": is_well,
    }
    app = Consumer("amqp://broker.example")

    @app.queue("orders", health=checks[kind])
    async def handle(number: int) -> None:
        done.append(number)

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        await app.publish(1, key="orders")
        await clock.advance(1)
        assert done == [1]
        well = False
        await clock.advance(10)
        await app.publish(2, key="orders")
        await clock.advance(10)
        assert done == [1]
        well = True
        await clock.advance(60)
        assert done == [1, 2]
        app.stop()
        await serving


@pytest.mark.parametrize("kind", ["queue", "batch"])
def test_a_decorator_without_parentheses_is_said(kind: str) -> None:
    decorate: Any = getattr(Consumer("amqp://broker.example"), kind)

    async def handle(_body: bytes) -> None: ...

    with pytest.raises(UsageError, match=rf'expected @app\.{kind}\("name"\), .* got <function .*handle'):
        decorate(handle)


async def test_the_state_is_there_while_the_lifespan_lasts() -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def lifespan(app: Consumer) -> AsyncIterator[str]:
        yield "a pool"
        seen.append(app.state)

    app = Consumer("amqp://broker.example", lifespan=lifespan)

    @app.queue("orders")
    async def handle(_number: int) -> None: ...

    with virtual_time() as clock:
        serving = asyncio.create_task(app.serve(MemoryBroker(clock=clock)))
        await clock.advance(1)
        assert app.state == "a pool"
        app.stop()
        await serving
    assert seen == ["a pool"]
    assert app.state is None


async def test_a_health_check_that_raises_is_not_asked_again_on_the_loop() -> None:
    threads: list[str] = []

    def check() -> bool:
        threads.append(threading.current_thread().name)
        if len(threads) == 1:
            raise RuntimeError("cannot connect to the database")
        return True

    told: list[Event] = []
    hear = Audience()
    hear.add(told.append)
    await HealthWait("orders", (check,), hear, pause_s=0.01).opened()
    (paused,) = [event for event in told if isinstance(event, Paused)]
    assert "cannot connect" in paused.why
    assert len(threads) == 2
    assert threading.current_thread().name not in threads


@pytest.mark.parametrize("asking", [asyncio.create_task, asyncio.ensure_future])
async def test_a_plain_health_check_may_need_the_loop(asking: Any) -> None:
    async def is_well() -> bool:
        return True

    def check() -> Any:
        well = is_well()
        try:
            return asking(well)
        except RuntimeError:
            well.close()
            raise

    await asyncio.wait_for(HealthWait("orders", (check,), Audience()).opened(), 5)


class Holding(msgspec.Struct):
    held: object


@pytest.mark.parametrize("held", [object(), {1, object()}, "\ud800"])
def test_a_struct_that_cannot_be_written_is_refused_in_our_words(held: object) -> None:
    with pytest.raises(UsageError, match="publish: expected as a body"):
        encoded(Holding(held))


async def test_what_an_annotation_adds_is_checked() -> None:
    app = Consumer("amqp://broker.example")
    done: list[int] = []

    @app.queue("orders")
    async def handle(number: Annotated[int, Field(gt=3)]) -> None:
        done.append(number)

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        for number in (2, 5):
            await app.publish(number, key="orders")
        await clock.advance(1)
        assert done == [5]
        assert broker.depth("deadletter.parked") == 1
        app.stop()
        await serving


def test_a_typed_dict_of_typing_is_refused_in_our_words() -> None:
    """From Python 3.12 on pydantic takes it."""
    app = Consumer("amqp://broker.example")

    async def handle(_body: Plain) -> None: ...

    try:
        app.queue("orders")(handle)
    except UsageError as error:
        assert "from typing_extensions import TypedDict" in str(error)  # noqa: PT017 -- it may be none


@pytest.mark.parametrize("delay", ["1s", None, True])
def test_a_delay_that_is_no_number_is_said(delay: Any) -> None:
    with pytest.raises(UsageError, match="fixed: expected a number of seconds"):
        fixed(delay)
