"""However a handler ends is an outcome: nothing stands still in silence, and what hangs is named.

Attacked with exceptions that are no `Exception`, with handlers that cancel their own task, that do not heed
being cancelled, that keep the loop or a thread busy, and with somebody who cancels every task there is.

About `consumer.handlers.calling`, `consumer.queues.workers`, `consumer.signals`.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost

from deadletter import Consumer, MemoryIds, fixed, park
from deadletter.consumer.events import Event, Handled, Lost, Paused, Stopping
from deadletter.consumer.handlers import calling
from deadletter.consumer.outcomes import HandlerCancelled
from deadletter.consumer.queues import workers
from deadletter.core.letter import names
from deadletter.core.letter.message import view
from deadletter.testing.memory import MemoryBroker


class OwnEnd(BaseException):
    """Of the application, and no Exception."""


@asynccontextmanager
async def serving(app: Consumer, broker: MemoryBroker) -> AsyncIterator[Callable[..., None]]:
    """The consumer runs within; gives what publishes."""
    task = asyncio.create_task(app.serve(broker))
    await asyncio.sleep(0)
    assert app.ready is not None
    await asyncio.wait_for(app.ready.wait(), 30)
    channel = await (await broker.connect()).channel()

    def post(*bodies: bytes) -> None:
        for body in bodies:
            channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", body)

    try:
        yield post
    finally:
        app.stop()
        await asyncio.wait_for(task, 60)


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.01)


def error_type(broker: MemoryBroker, queue: str = "orders__retry.1") -> list[str]:
    return [
        str((view(one.properties).headers or {})[names.ERROR_TYPE]).rpartition(".")[2]
        for one in broker.messages(queue)
    ]


# -- ends ----------------------------------------------------------------------------------------------------
async def raises_its_own() -> None:
    raise OwnEnd("enough")


async def raises_generator_exit() -> None:
    raise GeneratorExit


async def raises_cancelled() -> None:
    raise asyncio.CancelledError


async def cancels_its_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancels_its_task_three_times() -> None:
    task = asyncio.current_task()
    assert task is not None
    for _ in range(3):
        task.cancel()
    await asyncio.sleep(60)


async def raises_a_group() -> None:
    raise BaseExceptionGroup("both", [OwnEnd("one"), ValueError("two")])


ENDS: dict[Callable[[], Awaitable[None]], str] = {
    raises_its_own: "OwnEnd",
    raises_generator_exit: "GeneratorExit",
    raises_cancelled: "HandlerCancelled",
    cancels_its_task: "HandlerCancelled",
    cancels_its_task_three_times: "HandlerCancelled",
    raises_a_group: "BaseExceptionGroup",
}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("shape", ["queue", "batch", "timeout", "idempotent"])
async def test_it_has_failed_and_the_others_go_on(end: Callable[[], Awaitable[None]], shape: str) -> None:
    """One worker only: if it were gone the good ones would wait for ever."""
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    done: list[bytes] = []

    async def one(body: bytes) -> None:
        if body == b"bad":
            await end()
        await asyncio.sleep(0)
        done.append(body)

    async def many(bodies: list[bytes]) -> None:
        for body in bodies:
            await one(body)

    more: dict[str, Any] = {"layout": "ladder", "backoff": fixed(600), "concurrency": 1}
    match shape:
        case "batch":
            app.batch("orders", size=1, wait=0, **more)(many)
        case "timeout":
            app.queue("orders", timeout=30, **more)(one)
        case "idempotent":
            app.queue("orders", idempotent=MemoryIds(), key=lambda m: m.body.decode(), **more)(one)
        case _:
            app.queue("orders", **more)(one)
    async with serving(app, broker) as post:
        post(b"bad", b"good1", b"bad", b"good2")
        await until(lambda: len(done) == 2, "the good ones")
        await until(lambda: broker.depth("orders__retry.1") == 2, "the bad ones")
    assert done == [b"good1", b"good2"]
    assert error_type(broker) == [ENDS[end]] * 2
    assert broker.depth("orders") == broker.unacked("orders") == 0


@pytest.mark.parametrize("error", [OwnEnd, GeneratorExit, asyncio.CancelledError])
async def test_in_a_thread_too(error: type[BaseException]) -> None:
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    done: list[bytes] = []

    @app.queue("orders", layout="ladder", backoff=fixed(600), concurrency=1)
    def handle(body: bytes) -> None:
        if body == b"bad":
            raise error
        done.append(body)

    async with serving(app, broker) as post:
        post(b"bad", b"good")
        await until(lambda: bool(done), "the good one")
    meant = HandlerCancelled if error is asyncio.CancelledError else error
    assert error_type(broker) == [meant.__name__]


async def test_rules_may_name_it() -> None:
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()

    @app.queue("orders", layout="ladder", on={OwnEnd: park})
    async def handle(_: bytes) -> None:
        raise OwnEnd

    async with serving(app, broker) as post:
        post(b"1")
        await until(lambda: broker.depth("orders__dlq") == 1, "the parked one")


async def test_who_returns_after_cancelling_its_task_is_done_and_takes_no_neighbour() -> None:
    """The cancellation would come at the next await, which is another message's."""
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    done: list[bytes] = []

    @app.queue("orders", layout="ladder", concurrency=1)
    async def handle(body: bytes) -> None:
        if body.startswith(b"last"):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        else:
            await asyncio.sleep(0)
        done.append(body)

    async with serving(app, broker) as post:
        post(b"last1", b"a", b"last2", b"b")
        await until(lambda: len(done) == 4, "all")
    assert done == [b"last1", b"a", b"last2", b"b"]
    assert broker.depth("orders__retry.1") == 0


async def test_somebody_cancels_every_task_of_the_workers(caplog: pytest.LogCaptureFixture) -> None:
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    done: list[bytes] = []
    events: list[Event] = []
    app.listen(events.append)

    @app.queue("orders", layout="ladder", concurrency=3)
    async def handle(body: bytes) -> None:
        done.append(body)

    async with serving(app, broker) as post:
        post(b"0")
        await until(lambda: len(done) == 1, "the first")
        for task in asyncio.all_tasks():
            if "Workers._working" in repr(task.get_coro()):
                task.cancel()
        await until(lambda: any(isinstance(event, Lost) for event in events), "the loss is told")
        post(b"1", b"2")
        await until(lambda: len(done) == 3, "both")
    assert "cancelled by somebody else" in caplog.text


async def test_a_health_check_ends_in_its_own_way() -> None:
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    ends: list[type[BaseException]] = [OwnEnd, asyncio.CancelledError]
    events: list[Event] = []
    app.listen(events.append)
    done: list[bytes] = []

    async def health() -> bool:
        if ends:
            raise ends.pop()
        return True

    @app.queue("orders", layout="ladder", health=health)
    async def handle(body: bytes) -> None:
        done.append(body)

    async with serving(app, broker) as post:
        post(b"1")
        await until(lambda: len(done) == 1, "the message")
    told = [event.why for event in events if isinstance(event, Paused)]
    assert [why.split("failed with ")[1].split(":")[0] for why in told] == ["CancelledError", "OwnEnd"]


# -- who wants out -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_who_asks_for_the_end_gets_it_in_good_order(error: BaseException, plain: bool) -> None:
    app = Consumer("amqp://broker.example")
    left: list[object] = []
    events: list[Event] = []
    app.listen(events.append)
    done: list[bytes] = []

    async def handle(body: bytes) -> None:
        if body == b"exit":
            raise error
        await asyncio.sleep(0.05)
        done.append(body)

    def handle_plainly(body: bytes) -> None:
        if body == b"exit":
            raise error
        time.sleep(0.05)
        done.append(body)

    app.queue("orders", layout="ladder", backoff=fixed(600), concurrency=3)(
        handle_plainly if plain else handle
    )

    async def main() -> None:
        broker = MemoryBroker()
        channel = await (await broker.connect()).channel()
        await channel.declare_queue("orders", arguments={"x-queue-type": "quorum"})
        for body in (b"1", b"exit", b"2"):
            channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", body)
        try:
            await app.serve(broker)
        finally:
            left.extend([broker.depth("orders"), *error_type(broker)])

    with pytest.raises(type(error)) as raised:
        asyncio.run(main())
    assert raised.value is error
    assert sorted(done) == [b"1", b"2"]  # they had begun, and were let end
    assert left == [0, type(error).__name__]
    assert any(isinstance(event, Stopping) for event in events)


# -- what hangs ----------------------------------------------------------------------------------------------
async def swallow(go: asyncio.Event) -> None:
    while not go.is_set():
        with suppress(BaseException):  # that is what is attacked
            await asyncio.wait_for(asyncio.shield(go.wait()), 0.05)


async def test_a_timeout_that_is_not_heeded_is_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calling, "STUBBORN_S", 0.1)
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    go = asyncio.Event()
    seen: list[bytes] = []
    events: list[Event] = []
    app.listen(events.append)

    @app.queue("orders", layout="ladder", backoff=fixed(0.05), retries=1, concurrency=2, timeout=0.1)
    async def handle(body: bytes) -> None:
        seen.append(body)
        if body == b"deaf":
            await swallow(go)

    async with serving(app, broker) as post:
        post(b"deaf", b"a")
        # It is retried, and its retry is not run beside it: that fails too.
        await until(lambda: broker.depth("orders__dlq") == 1, "the deaf one is put aside")
        post(b"b")
        await until(lambda: seen[-1:] == [b"b"], "another")
        go.set()
        await until(lambda: "came to its end late" in caplog.text, "the end is told")
    assert seen == [b"deaf", b"a", b"b"]
    assert "handle of queue orders has not ended after" in caplog.text
    assert __file__ in caplog.text  # where it is
    whys = [event.why for event in events if isinstance(event, Handled) and event.why]
    assert "does not heed that it was cancelled" in whys[0]
    assert "still runs with an earlier try" in whys[-1]


async def test_one_that_does_not_heed_the_end_holds_up_neither_the_end_nor_its_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "LEAVE_S", 0.1)
    app, broker = Consumer("amqp://broker.example", grace=0.1), MemoryBroker()
    go, begun = asyncio.Event(), asyncio.Event()

    @app.queue("orders", layout="ladder")
    async def handle(_: bytes) -> None:
        begun.set()
        await swallow(go)

    async with serving(app, broker) as post:
        post(b"1")
        await begun.wait()
    assert broker.depth("orders") == 1
    assert "its grace of 0.1 s is over" in caplog.text
    assert "is left behind" in caplog.text
    go.set()
    await until(lambda: "came to its end late" in caplog.text, "its end")


async def test_one_that_does_not_heed_a_lost_line_holds_up_no_reconnect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "LEAVE_S", 0.1)
    app, broker = Consumer("amqp://broker.example"), MemoryBroker()
    go, begun = asyncio.Event(), asyncio.Event()
    seen: list[bytes] = []

    @app.queue("orders", layout="ladder", concurrency=2)
    async def handle(body: bytes) -> None:
        seen.append(body)
        if body == b"deaf":
            begun.set()
            await swallow(go)

    async with serving(app, broker) as post:
        post(b"deaf")
        await begun.wait()
        broker.cut()
        channel = await (await broker.connect()).channel()
        channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", b"next")
        await until(lambda: b"next" in seen, "the next, on a new line")
        assert seen.count(b"deaf") == 1  # it is back, and is not run beside the first
        go.set()
        await until(lambda: seen.count(b"deaf") == 2, "it runs when the first has ended")


DEAF = """
import asyncio, logging, sys, time
from deadletter import Consumer, fixed

url, api, kind, log = sys.argv[1:5]
logging.basicConfig(level=logging.WARNING, filename=log)
app = Consumer(url, api=api, grace=float(sys.argv[5]))

async def swallow(body: bytes) -> None:
    logging.warning("begun")
    while True:
        try:
            await asyncio.sleep(600)
        except BaseException:
            logging.warning("swallowed")

async def block(body: bytes) -> None:
    logging.warning("begun")
    time.sleep(600)

def thread(body: bytes) -> None:
    logging.warning("begun")
    time.sleep(600)

async def done(body: bytes) -> None:
    logging.warning("done %s", body)

app.queue("orders", layout="ladder", backoff=fixed(1), concurrency=2)(globals()[kind])
if kind != "block":
    app.queue("bills", layout="ladder", backoff=fixed(1))(done)
app.run()
print("after")
"""


@contextmanager
def deaf(vhost: Vhost, kind: str, log: Path, grace_s: float) -> Iterator[subprocess.Popen[bytes]]:
    words = [vhost.url, vhost.api, kind, str(log), str(grace_s)]
    process = subprocess.Popen([sys.executable, "-c", DEAF, *words], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("swallow", signal.SIGTERM),
        ("block", signal.SIGTERM),
        ("thread", signal.SIGTERM),
        ("swallow", signal.SIGINT),
    ],
)
def test_the_second_signal_ends_the_process_at_once_and_names_what_hangs(
    vhost: Vhost, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    postbox.declare(vhost.url, "orders", "bills", kind="quorum")
    postbox.fill(vhost.url, "orders", [b"1", b"2", b"3"], dead=False)
    log = tmp_path / "log"
    log.touch()
    with deaf(vhost, kind, log, 600) as process:
        postbox.wait_for(lambda: "begun" in log.read_text(), "the handler")
        process.send_signal(number)
        time.sleep(0.5)
        assert process.poll() is None  # it has 600 s of grace
        process.send_signal(number)
        assert process.wait(120) == 128 + number
    said = log.read_text()
    assert "a second signal: the process ends at once" in said
    assert f"{kind} of queue orders has not ended after" in said
    assert len(postbox.drain(vhost.url, "orders", expect=3)) == 3


def test_after_its_grace_the_process_ends_although_a_handler_does_not(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", "bills", kind="quorum")
    postbox.fill(vhost.url, "orders", [b"1"], dead=False)
    log = tmp_path / "log"
    log.touch()
    with deaf(vhost, "swallow", log, 0.2) as process:
        postbox.wait_for(lambda: "begun" in log.read_text(), "the handler")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert said.split() == [b"after"]  # what the program does after `run` it does
    assert "swallow of queue orders has not ended after" in log.read_text()
    assert len(postbox.drain(vhost.url, "orders", expect=1)) == 1


def test_the_exit_code_of_a_handler_is_that_of_the_process(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    postbox.fill(vhost.url, "orders", [b"1"], dead=False)
    program = DEAF.replace("time.sleep(600)", "sys.exit(7)")
    words = [vhost.url, vhost.api, "block", str(tmp_path / "log"), "5"]
    done = subprocess.run([sys.executable, "-c", program, *words], timeout=60, check=False)
    assert done.returncode == 7
    assert "raised SystemExit: 7" in (tmp_path / "log").read_text()
    (back,) = postbox.drain(vhost.url, "orders", expect=1)  # its retry: it has failed
    assert back.headers[names.ATTEMPT] == 1
