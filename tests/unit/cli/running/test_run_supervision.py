"""`dlq run` without processes: who is asked to end and how often, and what a process tells of being ready.

About `cli.running.run_command`, `cli.running.worker`, `consumer.events`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadletter import Consumer
from deadletter.cli.running import run_command
from deadletter.cli.running.run_command import RunWish, Supervisor
from deadletter.cli.running.worker import Telling
from deadletter.cli.terminal.output import Exit
from deadletter.consumer.events import Event, Lost, Ready, Stopping
from deadletter.testing.memory import MemoryBroker, virtual_time

PATIENCE_S = 60.0


# -- the parent ----------------------------------------------------------------------------------------------
class Process:
    """In place of a `WorkerProcess`. It ends when `leave` is set, or by force."""

    ready = was_ready = False
    pid = 1

    def __init__(self) -> None:
        self.asked = 0
        self.killed = False
        self.over = asyncio.Event()

    async def ended(self) -> int:
        await self.over.wait()
        return -9 if self.killed else 0

    def ask_to_end(self) -> None:
        self.asked += 1

    def kill(self) -> None:
        self.killed = True
        self.over.set()


class Starting:
    """Processes that are started when the test lets them."""

    def __init__(self) -> None:
        self.made: list[Process] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def start(self, *_told: object) -> Process:
        self.begun.set()
        await self.go_on.wait()
        self.made.append(Process())
        return self.made[-1]


def supervisor(monkeypatch: pytest.MonkeyPatch, starting: Starting, **wish: Any) -> Supervisor:
    monkeypatch.setattr(run_command, "WorkerProcess", starting)
    monkeypatch.setattr(Supervisor, "_forget_gauges", lambda _self, _pid: None)
    asked: dict[str, Any] = {"reload": False, **wish}
    told = RunWish(app="shop:app", workers=1, listen="off", directory=Path(), grace="60s", **asked)
    return Supervisor(told, grace_s=PATIENCE_S, counts=Path())


async def until(what: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("steps", [1, 50], ids=["before the others are asked", "after that"])
async def test_a_process_that_is_being_started_is_asked_to_end_too(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    starting = Starting()
    one = supervisor(monkeypatch, starting)
    running = asyncio.create_task(one.run())
    await starting.begun.wait()
    one._on_signal()
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.go_on.set()
    await until(lambda: starting.made and starting.made[0].asked)
    starting.made[0].over.set()
    assert await asyncio.wait_for(running, PATIENCE_S) is Exit.DONE
    assert [(process.asked, process.killed) for process in starting.made] == [(1, False)]


async def test_a_second_signal_still_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting()
    starting.go_on.set()
    one = supervisor(monkeypatch, starting)
    running = asyncio.create_task(one.run())
    await until(one._workers)
    one._on_signal()
    await until(lambda: starting.made[0].asked == 1)
    one._on_signal()
    assert starting.made[0].asked == 2
    starting.made[0].over.set()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_a_second_change_does_not_hurry_a_process_that_is_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[list[Path]] = []

    class Files:
        def __init__(self, _directory: Path) -> None: ...

        def since_last(self) -> list[Path]:
            return changes.pop() if changes else []

    monkeypatch.setattr(run_command, "ChangedFiles", Files)
    monkeypatch.setattr(run_command, "LOOK_S", 0.001)
    starting = Starting()
    starting.go_on.set()
    one = supervisor(monkeypatch, starting, reload=True)
    running = asyncio.create_task(one.run())
    await until(one._workers)
    for _ in range(2):
        seen = one._changed
        changes.append([Path("shop.py")])
        await until(seen.is_set)
        await until(lambda: not changes)
    first = starting.made[0]
    assert first.asked == 1
    one._on_signal()  # nor does the first signal
    await asyncio.sleep(0.01)
    assert first.asked == 1
    first.over.set()
    await asyncio.wait_for(running, PATIENCE_S)


# -- what a process tells ------------------------------------------------------------------------------------
@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def heard(reading: int) -> bytes:
    try:
        return os.read(reading, 4096)
    except BlockingIOError:
        return b""


READY = Ready(queues=("a", "b"), layouts=("return", "return"))
A_BACK = Ready(queues=("a",), layouts=("return",))
BROKER = Lost(what="broker", why="x", seconds=1.0)
A, B, DUE = (Lost(what=f"queue {name}", why="x", seconds=1.0) for name in ("a", "b", "deadletter.due"))
DUE_BACK = Lost(what="queue deadletter.due", why="x", seconds=0.0)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([READY], b"+"),
        ([READY, A, A, A_BACK], b"+--+"),
        ([READY, A, B, A_BACK], b"+--"),
        ([READY, A, DUE, A_BACK, DUE_BACK], b"+--+"),
        ([READY, DUE_BACK], b"+"),
        ([READY, A, DUE, BROKER, READY], b"+---+"),
        ([BROKER, READY], b"-+"),
        ([READY, A, Stopping(why="x"), A_BACK], b"+--"),
    ],
)
def test_it_is_ready_while_nothing_is_lost(pipe: tuple[int, int], events: list[Event], told: bytes) -> None:
    telling = Telling(pipe[1])
    for event in events:
        telling(event)
    assert heard(pipe[0]) == told


async def test_after_a_queue_is_back_it_is_ready_again(pipe: tuple[int, int]) -> None:
    app = Consumer("amqp://broker.example")
    app.listen(Telling(pipe[1]))

    @app.queue("orders")
    async def handle(body: bytes) -> None: ...

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        assert heard(pipe[0]) == b"+"
        async with await (await broker.connect()).channel() as channel:
            await channel.delete_queue("orders")
            await clock.advance(30)
            assert set(heard(pipe[0])) == set(b"-")
            await channel.declare_queue("orders", arguments={"x-queue-type": "quorum"})
            await clock.advance(30)
        assert heard(pipe[0]).endswith(b"+")
        app.stop()
        await serving
