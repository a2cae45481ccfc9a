"""`ack()` stands over what the handler raises, and falls with what has to be committed after it.

About `consumer.handlers.handling`, `consumer.handlers.once`, `consumer.handlers.dependencies`,
`consumer.message`, `consumer.queues.workers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

import pytest

from deadletter import Consumer, Depends, Message, Transaction, fixed
from deadletter.consumer.events import Handled
from deadletter.consumer.idempotency import MemoryIds, Seen
from deadletter.consumer.outcomes import HandlerTimeout
from deadletter.testing.memory import MemoryBroker, virtual_time


class LedgerIds(MemoryIds):
    """Ids whose transaction tells how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.commits = True

    @asynccontextmanager
    async def transaction(self, queue: str, key: str) -> AsyncIterator[Transaction | None]:
        if await self.begin(queue, key) is Seen.DONE:
            yield None
            return
        try:
            yield Transaction(cast("Any", None))
            if not self.commits:
                raise OSError("disk full")
        except BaseException:
            self.lines.append("rolled back")
            await self.forget(queue, key)
            raise
        self.lines.append("committed")
        await self.done(queue, key)


class Run:
    """An application with a queue of this name, and what became of its messages."""

    def __init__(self, **options: Any) -> None:
        self.app = Consumer("amqp://broker.example", **options)
        self.ids = LedgerIds()
        self.ends: list[tuple[str, str]] = []
        self.left = 0
        """How many are in the queue at the end."""
        self.app.listen(self._hear)

    def _hear(self, event: object) -> None:
        if isinstance(event, Handled):
            self.ends.append((event.fate.value, event.why))

    async def one(self) -> None:
        """A message, and what becomes of it within a while."""
        with virtual_time() as clock:
            broker = MemoryBroker(clock=clock)
            serving = asyncio.create_task(self.app.serve(broker))
            await clock.advance(1)
            await self.app.publish("17", key="orders", message_id="17")
            await clock.advance(20)
            self.app.stop()
            await serving
            self.left = broker.depth("orders")

    @property
    def fates(self) -> list[str]:
        return [fate for fate, _ in self.ends]


async def test_what_is_raised_after_ack_does_not_roll_back(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()

    @run.app.queue("orders", retries=0, idempotent=run.ids)
    async def handle(_body: str, message: Message, _transaction: Transaction) -> None:
        await message.ack()
        raise ValueError("a line for the log failed")

    await run.one()
    assert run.fates == ["done"]
    assert run.ids.lines == ["committed"]
    assert "raised afterwards (ValueError: a line for the log failed)" in caplog.text


@pytest.mark.parametrize("verb", ["ack", "discard"])
async def test_a_commit_that_fails_is_a_failure_whatever_was_said(verb: str) -> None:
    run = Run()
    run.ids.commits = False

    @run.app.queue("orders", retries=1, backoff=fixed(1), idempotent=run.ids)
    async def handle(_body: str, message: Message, _transaction: Transaction) -> None:
        await getattr(message, verb)()
        if message.attempt:
            raise ValueError("and afterwards")

    await run.one()
    assert run.fates == ["retried", "parked"]
    assert all("disk full" in why for _, why in run.ends)
    assert run.ids.lines == ["rolled back"] * 2


async def test_a_publish_after_the_commit_that_fails_is_a_failure_whatever_was_said() -> None:
    run = Run()

    @run.app.queue("orders", retries=0, idempotent=run.ids)
    async def handle(_body: str, message: Message, _transaction: Transaction) -> None:
        await message.publish("told", key="nowhere")
        await message.ack()

    await run.one()
    assert run.fates == ["parked"]
    assert "Unroutable" in run.ends[0][1]
    assert run.ids.lines == ["committed"]


async def test_parked_by_hand_it_is_rolled_back_and_stays_parked() -> None:
    run = Run()

    @run.app.queue("orders", retries=3, idempotent=run.ids)
    async def handle(_body: str, message: Message, _transaction: Transaction) -> None:
        await message.park("look")
        raise ValueError("too late")

    await run.one()
    assert run.ends == [("parked", "look")]
    assert run.ids.lines == ["rolled back"]


async def test_stopped_in_its_transaction_it_goes_back() -> None:
    run = Run(grace=1)

    @run.app.queue("orders", idempotent=run.ids)
    async def handle(_body: str, message: Message, _transaction: Transaction) -> None:
        await message.ack()
        await asyncio.sleep(3600)

    await run.one()
    assert run.ids.lines == ["rolled back"]
    assert run.left == 1


async def test_given_up_in_its_transaction_it_has_failed() -> None:
    """It does not heed its cancellation: whether it will be committed nobody knows."""
    run = Run(grace=1)
    going = True

    @run.app.queue("orders", retries=0, timeout=1, idempotent=run.ids)
    async def handle(_body: str, message: Message, _transaction: Transaction) -> None:
        await message.ack()
        while going:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                continue

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(run.app.serve(broker))
        await clock.advance(1)
        await run.app.publish("17", key="orders", message_id="17")
        await clock.advance(5)
        going = False
        await clock.advance(20)
        run.app.stop()
        await serving
    assert run.fates == ["parked"]
    assert HandlerTimeout.__name__ in run.ends[0][1]
    assert run.ids.lines == ["committed"]


# -- dependencies --------------------------------------------------------------------------------------------
async def unable() -> AsyncIterator[str]:
    yield "db"
    raise ConnectionError("commit failed")


seen: list[str] = []


async def watched() -> AsyncIterator[str]:
    try:
        yield "db"
        seen.append("committed")
    except BaseException:
        seen.append("rolled back")
        raise


def plain() -> str:
    return "db"


async def test_a_dependency_that_cannot_commit_fails_a_message_that_was_acked() -> None:
    run = Run()

    @run.app.queue("orders", retries=0, idempotent=run.ids)
    async def handle(_body: str, message: Message, _db: Annotated[str, Depends(unable)]) -> None:
        await message.ack()
        raise ValueError("and afterwards")

    await run.one()
    assert run.fates == ["parked"]
    assert "ConnectionError: commit failed" in run.ends[0][1]
    assert await run.ids.begin("orders", "17") is Seen.NEW


async def test_a_dependency_that_cannot_commit_rolls_the_transaction_back() -> None:
    run = Run()

    @run.app.queue("orders", retries=0, idempotent=run.ids)
    async def handle(
        _body: str, message: Message, _transaction: Transaction, _db: Annotated[str, Depends(unable)]
    ) -> None:
        await message.ack()

    await run.one()
    assert run.fates == ["parked"]
    assert run.ids.lines == ["rolled back"]


async def test_a_dependency_is_left_well_after_ack_and_the_middleware_sees_the_error() -> None:
    run = Run()
    seen.clear()

    async def watching(_message: Message, proceed: Any) -> None:
        try:
            await proceed()
        except ValueError:
            seen.append("seen")
            raise

    @run.app.queue("orders", retries=0, middleware=[watching])
    async def handle(_body: str, message: Message, _db: Annotated[str, Depends(watched)]) -> None:
        await message.ack()
        raise ValueError("too late")

    await run.one()
    assert run.fates == ["done"]
    assert seen == ["committed", "seen"]


async def test_stopped_after_ack_it_goes_back_where_a_dependency_was_rolled_back() -> None:
    run = Run(grace=1)
    seen.clear()

    @run.app.queue("orders")
    async def handle(_body: str, message: Message, _db: Annotated[str, Depends(watched)]) -> None:
        await message.ack()
        await asyncio.sleep(3600)

    await run.one()
    assert seen == ["rolled back"]
    assert run.left == 1


async def test_stopped_after_ack_it_is_done_where_nothing_was_undone() -> None:
    run = Run(grace=1)

    @run.app.queue("orders")
    async def handle(_body: str, message: Message, _db: Annotated[str, Depends(plain)]) -> None:
        await message.ack()
        await asyncio.sleep(3600)

    await run.one()
    assert run.left == 0
