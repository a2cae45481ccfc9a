"""What the end of a handler means, whatever kind of function it is.

About `consumer.handlers.handling`, `consumer.handlers.calling`, `consumer.handlers.callables`,
`consumer.handlers.signature`, `consumer.handlers.once`, `consumer.handlers.handler_end`,
`consumer.handlers.batching`, `consumer.idempotency`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from deadletter.consumer.backoffs import fixed
from deadletter.consumer.handlers.batching import BatchHandler
from deadletter.consumer.handlers.failure_details import Teller
from deadletter.consumer.handlers.handler_end import ALREADY_DONE, DONE, Failed, HandlerEnd, decided
from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.idempotency import MemoryIds, Seen, Transaction
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import (
    BatchFailed,
    HandlerCancelled,
    HandlerTimeout,
    Park,
    RetryLater,
    Rules,
    park,
)
from deadletter.core.deciding import decision
from deadletter.core.deciding.decision import Decision
from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage as Raw
from deadletter.core.letter.message import View, encode
from deadletter.errors import StoreUnreachable, UsageError

RULES = Rules(retries=3, backoff=fixed(1), on={KeyError: park})


def ended(end: HandlerEnd) -> HandlerEnd | Decision:
    """What it means for a message that was not tried before."""
    return decided(RULES, end.error, attempt=0, dice=0.5, policy="t") if isinstance(end, Failed) else end


def message(body: bytes = b"{}", id_: str | None = None) -> Message:
    raw = Raw(encode(View(message_id=id_)), body)
    return Message(Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=False), 0)


async def test_parameters_by_annotation_in_any_order() -> None:
    seen: list[Any] = []

    async def body(order: dict[str, int]) -> None:
        seen.append(order)

    async def both(message: Message, order: dict[str, int], extra: int = 3) -> None:
        seen.append((message.queue, order, extra))

    async def alone(message: Message) -> None:
        seen.append(message.body)

    class Calling:
        async def __call__(self, order: dict[str, int], message: Message) -> None:
            seen.append((order, message.attempt))

    for function in (body, both, alone, Calling()):
        assert await Handler(function, RULES)(message(b'{"n": 1}')) is DONE
    assert seen == [{"n": 1}, ("q", {"n": 1}, 3), b'{"n": 1}', ({"n": 1}, 0)]


def test_functions_that_cannot_be_handlers() -> None:
    def nothing() -> None: ...
    def two(a: dict[str, int], b: dict[str, int]) -> None: ...
    def transacted(a: bytes, t: Transaction) -> None: ...
    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    for function, why in ((nothing, "no parameter"), (two, "the body, the body"), (unknown, "resolved")):
        with pytest.raises(UsageError, match=why):
            Handler(function, RULES)
    with pytest.raises(UsageError, match="for its Transaction, got none"):
        Handler(transacted, RULES)
    with pytest.raises(UsageError, match="got MemoryIds"):
        Handler(transacted, RULES, idempotent=MemoryIds())
    with pytest.raises(UsageError, match=r"such as list\[Order\]"):
        BatchHandler(two, RULES)


async def test_errors_are_judged() -> None:
    async def fail(order: dict[str, str]) -> None:
        raise {"key": KeyError, "park": Park, "later": RetryLater, "value": ValueError}[order["raise"]]("x")

    async def judged(what: str) -> HandlerEnd:
        return await Handler(fail, RULES)(message(b'{"raise": "%s"}' % what.encode()))

    assert isinstance(ended(await judged("key")), decision.Park)
    assert isinstance(ended(await judged("park")), decision.Park)
    assert isinstance(ended(await judged("value")), decision.Retry)
    assert isinstance(ended(await Handler(fail, RULES)(message(b"no json"))), decision.Park)


async def test_a_verb_stands_whatever_is_raised_after_it(caplog: pytest.LogCaptureFixture) -> None:
    async def acked(message: Message) -> None:
        await message.ack()
        raise ValueError("too late")

    async def parked(message: Message) -> None:
        await message.park("look")
        raise ValueError("too late")

    async def away(message: Message) -> None:
        await message.discard("no use")

    assert await Handler(acked, RULES)(message()) is DONE
    assert "raised afterwards (ValueError: too late)" in caplog.text
    outcome = ended(await Handler(parked, RULES)(message()))
    assert isinstance(outcome, decision.Park)
    assert outcome.why == "look"
    assert isinstance(ended(await Handler(away, RULES)(message())), decision.Discard)


async def test_a_verb_after_the_end_is_refused() -> None:
    kept: list[Message] = []

    async def keeping(message: Message) -> None:
        kept.append(message)

    assert await Handler(keeping, RULES)(message()) is DONE
    with pytest.raises(UsageError, match="settled"):
        await kept[0].park("late")


async def test_something_cancelled_inside_is_a_failure_and_not_the_end_of_the_worker() -> None:
    async def waits(_: bytes) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    outcome = await Handler(waits, RULES)(message())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, HandlerCancelled)


async def test_its_own_cancellation_gets_through() -> None:
    async def waits(_: bytes) -> None:
        await asyncio.sleep(60)

    task = asyncio.ensure_future(Handler(waits, RULES)(message()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_of_ours_and_one_of_the_application() -> None:
    async def slow(_: bytes) -> None:
        await asyncio.sleep(60)

    async def theirs(_: bytes) -> None:
        raise TimeoutError("theirs")

    outcome = await Handler(slow, RULES, timeout_s=0.01)(message())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, HandlerTimeout)
    outcome = await Handler(theirs, RULES, timeout_s=5)(message())
    assert isinstance(outcome, Failed)
    assert type(outcome.error) is TimeoutError


# -- threads -------------------------------------------------------------------------------------------------
async def test_plain_functions_run_in_threads() -> None:
    names: list[str] = []

    def handle(order: dict[str, int]) -> None:
        names.append(threading.current_thread().name)
        if order:
            raise KeyError("x")

    handler = Handler(handle, RULES, concurrency=2)
    assert await handler(message()) is DONE
    assert isinstance(ended(await handler(message(b'{"n": 1}'))), decision.Park)
    assert all(name.startswith("handler-") for name in names)
    handler.close()


async def test_a_thread_out_of_time_keeps_its_place_and_its_message() -> None:
    go = threading.Event()
    begun: list[bytes] = []

    def handle(body: bytes) -> None:
        begun.append(body)
        go.wait(20)

    handler = Handler(handle, RULES, timeout_s=0.1, concurrency=1)
    first = await handler(message(b"a"))
    assert isinstance(first, Failed)
    assert isinstance(first.error, HandlerTimeout)
    # The same message comes back while its thread still runs: it is not run beside it.
    again = await handler(message(b"a"))
    assert isinstance(again, Failed)
    assert "still runs in a thread" in str(again.error)
    assert begun == [b"a"]
    # Another message waits for the one place there is; its clock has not begun.
    other = asyncio.ensure_future(handler(message(b"b")))
    await asyncio.sleep(0.3)
    assert not other.done()
    assert begun == [b"a"]
    go.set()
    assert await other is DONE
    assert await handler(message(b"a")) is DONE
    assert begun == [b"a", b"b", b"a"]
    handler.close()


async def test_a_cancelled_wait_does_not_let_the_message_run_twice_at_once() -> None:
    go = threading.Event()
    running = most = 0

    def handle(_: bytes) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        go.wait(20)
        running -= 1

    handler = Handler(handle, RULES, concurrency=5)
    task = asyncio.ensure_future(handler(message(b"a")))
    while not running:  # noqa: ASYNC110 -- it is another thread that begins
        await asyncio.sleep(0.01)
    task.cancel()  # as when the connection is lost
    with pytest.raises(asyncio.CancelledError):
        await task
    again = asyncio.ensure_future(handler(message(b"a")))
    await asyncio.sleep(0.1)
    go.set()
    assert await again is DONE
    assert most == 1
    handler.close()


# -- ids -----------------------------------------------------------------------------------------------------
async def test_what_is_done_is_not_run_again() -> None:
    ran: list[bytes] = []

    async def handle(body: bytes, message: Message) -> None:
        ran.append(body)
        assert not message.begun_before  # an end that was an error is an end
        if body == b"fail":
            raise ValueError

    handler = Handler(handle, RULES, idempotent=MemoryIds())
    assert await handler(message(b"1", "a")) is DONE
    assert await handler(message(b"2", "a")) is ALREADY_DONE
    assert isinstance(ended(await handler(message(b"fail", "b"))), decision.Retry)
    assert await handler(message(b"3", "b")) is DONE  # it had failed
    assert await handler(message(b"4")) is DONE  # without an id there is nothing to know it by
    assert await handler(message(b"4")) is DONE
    assert ran == [b"1", b"fail", b"3", b"4", b"4"]


async def test_a_key_of_ones_own() -> None:
    ran: list[dict[str, int]] = []

    async def handle(order: dict[str, int]) -> None:
        ran.append(order)

    handler = Handler(handle, RULES, idempotent=MemoryIds(), key=lambda m: m.body.decode() * 300)
    assert await handler(message(b'{"n": 1}')) is DONE
    assert await handler(message(b'{"n": 1}')) is ALREADY_DONE
    assert await handler(message(b'{"n": 2}')) is DONE
    assert ran == [{"n": 1}, {"n": 2}]


async def test_copies_at_the_same_time_run_one_after_the_other() -> None:
    running = most = ran = 0

    async def handle(_: bytes) -> None:
        nonlocal running, most, ran
        running, ran = running + 1, ran + 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        if ran == 1:
            raise ValueError

    handler = Handler(handle, RULES, idempotent=MemoryIds())
    outcomes = await asyncio.gather(*(handler(message(b"", "a")) for _ in range(3)))
    assert [type(ended(one)).__name__ for one in outcomes] == ["Retry", "Done", "AlreadyDone"]
    assert most == 1


async def test_begun_and_never_ended_runs_again_and_is_told() -> None:
    told: list[bool] = []

    async def handle(message: Message) -> None:
        told.append(message.begun_before)

    ids = MemoryIds()
    assert await ids.begin("q", "a") is Seen.NEW  # and then the process died
    assert await Handler(handle, RULES, idempotent=ids)(message(b"", "a")) is DONE
    assert told == [True]


async def test_a_mark_that_cannot_be_kept_does_not_undo_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryIds):
        async def done(self, queue: str, key: str) -> None:  # noqa: ARG002
            raise StoreUnreachable("away")

    async def handle(_: bytes) -> None: ...

    assert await Handler(handle, RULES, idempotent=Broken())(message(b"", "a")) is DONE
    assert "could not be kept" in caplog.text


async def test_memory_ids_are_bounded_and_expire() -> None:
    now = 0.0
    ids = MemoryIds(most=3, keep=10, now=lambda: now)
    for key in "abcd":
        await ids.done("q", key)
    assert len(ids) == 3
    assert await ids.begin("q", "a") is Seen.NEW
    assert await ids.begin("q", "d") is Seen.DONE
    now = 10.0
    assert await ids.begin("q", "d") is Seen.NEW
    assert len(ids) == 1
    with pytest.raises(UsageError):
        MemoryIds(most=0)
    with pytest.raises(UsageError):
        MemoryIds(keep=0)


# -- batches -------------------------------------------------------------------------------------------------
async def test_a_batch_returns_and_all_are_done() -> None:
    seen: list[Any] = []

    async def handle(orders: list[dict[str, int]], messages: list[Message]) -> None:
        seen.append((orders, [m.body for m in messages]))

    outcomes = await BatchHandler(handle, RULES)(
        [message(b'{"n": 1}'), message(b"bad"), message(b'{"n": 2}')]
    )
    assert [type(ended(one)).__name__ for one in outcomes] == ["Done", "Park", "Done"]
    assert seen == [([{"n": 1}, {"n": 2}], [b'{"n": 1}', b'{"n": 2}'])]


async def test_a_batch_fails_wholly_or_in_part() -> None:
    async def handle(orders: list[int]) -> None:
        if 0 in orders:
            raise KeyError("all")
        raise BatchFailed({1: ValueError("one"), 2: KeyError("two")})

    handler = BatchHandler(handle, RULES)
    outcomes = await handler([message(b"1"), message(b"2"), message(b"3")])
    assert [type(ended(one)).__name__ for one in outcomes] == ["Done", "Retry", "Park"]
    outcomes = await handler([message(b"0"), message(b"x"), message(b"3")])
    assert [type(ended(one)).__name__ for one in outcomes] == ["Park", "Park", "Park"]
    causes = [one.cause for one in map(ended, outcomes) if isinstance(one, decision.Park)]
    assert causes == ["permanent-error", "undecodable", "permanent-error"]


async def test_places_that_are_not_there_make_all_of_them_fail() -> None:
    async def handle(_: list[int]) -> None:
        raise BatchFailed({5: ValueError()})

    outcomes = await BatchHandler(handle, RULES)([message(b"1"), message(b"2")])
    assert [type(ended(one)).__name__ for one in outcomes] == ["Retry", "Retry"]


async def test_a_plain_batch_function_and_its_time() -> None:
    def slow(_: list[int]) -> None:
        threading.Event().wait(0.5)

    handler = BatchHandler(slow, RULES, timeout_s=0.05)
    outcomes = await handler([message(b"1"), message(b"2")])
    assert [type(ended(one)).__name__ for one in outcomes] == ["Retry", "Retry"]
    handler.close()
    await asyncio.sleep(0.6)


async def test_a_batch_handles_each_id_once() -> None:
    ran: list[list[int]] = []

    async def handle(numbers: list[int]) -> None:
        ran.append(numbers)
        if 3 in numbers:
            raise BatchFailed({numbers.index(3): ValueError()})

    handler = BatchHandler(handle, RULES, idempotent=MemoryIds())
    first = await handler([message(b"1", "a"), message(b"2", "a"), message(b"3", "b"), message(b"3", "b")])
    assert [type(ended(one)).__name__ for one in first] == ["Done", "AlreadyDone", "Retry", "Retry"]
    second = await handler([message(b"1", "a"), message(b"4", "b")])
    assert [type(ended(one)).__name__ for one in second] == ["AlreadyDone", "Done"]
    assert ran == [[1, 3], [4]]


async def test_the_stack_of_a_failure_begins_with_the_application() -> None:
    async def fails(_: bytes) -> None:
        raise ValueError("here")

    outcome = await Handler(fails, RULES)(message())
    assert isinstance(outcome, Failed)
    stack = str(Teller().headers(outcome.error, at_ms=1, first_at_ms=None)[names.ERROR_STACK])
    assert "in fails" in stack
    assert "consumer/handlers/handling.py" not in stack
