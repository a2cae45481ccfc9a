"""What is in the log of an application that set nothing up: each kind of failure once a minute, and counts.

About `consumer.usual_log`, `consumer.events`, `consumer.log_events`, `broker.management`.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable

import httpx
import pytest

from deadletter import Consumer, fixed, log_events, park
from deadletter.amqp.address import parse_addresses
from deadletter.broker.management import management
from deadletter.errors import ManagementRefused
from deadletter.testing.memory import MemoryBroker, virtual_time
from deadletter.testing.memory.clock import LoopClock


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "deadletter.consumer"]


def tracebacks(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.exc_info is not None for record in caplog.records)


async def served(app: Consumer, work: Callable[[LoopClock, MemoryBroker], object]) -> None:
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        found = work(clock, broker)
        if asyncio.iscoroutine(found):
            await found
        app.stop()
        await serving


async def test_a_failure_is_told_once_a_minute_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    app = Consumer("amqp://broker.example")

    @app.queue("orders", retries=9, backoff=fixed(10_000))
    async def handle(body: str) -> None:
        if body == "other":
            raise KeyError(body)
        raise ValueError(body)

    async def work(clock: LoopClock, _broker: MemoryBroker) -> None:
        for _ in range(40):
            await app.publish("one", key="orders")
        await app.publish("other", key="orders")
        await clock.advance(30)
        assert tracebacks(caplog) == 2
        assert len(lines(caplog)) == 2
        await clock.advance(31)
        assert "39 more of them within a minute" in lines(caplog)[2]
        assert "ValueError" in lines(caplog)[2]
        await app.publish("one", key="orders")
        await app.publish("one", key="orders")
        await clock.advance(1)
        assert tracebacks(caplog) == 3

    await served(app, work)
    assert lines(caplog)[0].startswith("orders: a message failed, and is tried again in 10000 s, attempt 0: ")
    assert "1 more of them" in lines(caplog)[-1], "what is counted is said before the end"


async def test_every_parked_message_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    app = Consumer("amqp://broker.example")

    @app.queue("orders", on={ValueError: park})
    async def handle(number: int) -> None:
        raise ValueError(number)

    async def work(clock: LoopClock, _broker: MemoryBroker) -> None:
        for number in range(3):
            await app.publish(number, key="orders")
        await app.publish("no number", key="orders")
        await clock.advance(1)

    await served(app, work)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().split(",")[0] for record in errors] == [
        "orders: a message is parked (permanent-error)"
    ] * 3 + ["orders: a message is parked (undecodable)"]
    assert tracebacks(caplog) == 2


async def test_a_lost_and_a_regained_connection_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    app = Consumer("amqp://broker.example")

    @app.queue("orders")
    async def handle(body: bytes) -> None: ...

    async def work(clock: LoopClock, broker: MemoryBroker) -> None:
        await broker.stop()
        await clock.advance(50)
        assert len(lines(caplog)) == 1
        await clock.advance(100)
        assert 2 <= len(lines(caplog)) <= 3, "once a minute while it stays away"
        broker.start()
        await clock.advance(10)

    await served(app, work)
    told = lines(caplog)
    assert told[0].startswith("broker is away: ")
    assert told[-1] == "broker is back; consuming orders"
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_what_is_redacted_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    app = Consumer("amqp://broker.example", redact=lambda text: text.replace("4242", "****"))

    @app.queue("orders", retries=1, backoff=fixed(10))
    async def handle(body: str) -> None:
        raise ValueError(f"card {body}")

    async def work(clock: LoopClock, _broker: MemoryBroker) -> None:
        await app.publish("4242", key="orders")
        await clock.advance(60)

    await served(app, work)
    assert "4242" not in caplog.text
    assert "card ****" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("hostile", ["\udce9\udcff", "\x1b]0;mine\x07", "a\u202eb"])
async def test_what_an_error_quotes_does_nothing_to_the_log(
    caplog: pytest.LogCaptureFixture, hostile: str
) -> None:
    """It may be anything a message holds: bytes that are no text, what a terminal acts upon."""
    app = Consumer("amqp://broker.example")

    @app.queue("orders", retries=1, backoff=fixed(10_000))
    async def handle(body: str) -> None:
        try:
            raise KeyError(hostile)
        except KeyError as error:
            raise ValueError(f"not {hostile}") from error

    async def work(clock: LoopClock, _broker: MemoryBroker) -> None:
        await app.publish("one", key="orders")
        await clock.advance(1)

    await served(app, work)
    (told,) = lines(caplog)
    assert hostile not in told
    assert hostile not in caplog.text
    assert "Traceback" in told
    assert caplog.text.encode()


async def test_log_events_writes_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    app = Consumer("amqp://broker.example")
    app.listen(log_events())

    @app.queue("orders", on={ValueError: park})
    async def handle(body: str) -> None:
        raise ValueError(body)

    async def work(clock: LoopClock, _broker: MemoryBroker) -> None:
        await app.publish("1", key="orders")
        await clock.advance(1)

    await served(app, work)
    assert [line for line in lines(caplog) if "parked" in line] == [
        line for line in lines(caplog) if line.startswith("orders parked")
    ]
    assert tracebacks(caplog) == 0


SCRIPT = """
import asyncio
from deadletter import Consumer, fixed
from deadletter.testing.memory import MemoryBroker, virtual_time

app = Consumer("amqp://broker.example")

@app.queue("orders", retries=1, backoff=fixed(1))
async def handle(body: str) -> None:
    raise ValueError("no way to pay")

async def main() -> None:
    with virtual_time() as clock:
        serving = asyncio.create_task(app.serve(MemoryBroker(clock=clock)))
        await clock.advance(1)
        await app.publish("1", key="orders")
        await clock.advance(10)
        app.stop()
        await serving

asyncio.run(main())
"""


def test_without_any_set_up_it_is_on_stderr() -> None:
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert "orders: a message failed, and is tried again in 1 s" in said.stderr
    assert "orders: a message is parked (retries-exhausted)" in said.stderr
    assert said.stderr.count("Traceback") == 2  # of the failure, and of the last one


async def test_httpx_is_quiet_about_what_we_ask_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # with a proxy httpx asks for us, too
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with management(parse_addresses("amqp://127.0.0.1")[0], url, need="it is a test") as asked:
            with pytest.raises(ManagementRefused):
                await asked.get("queues")
        assert [record for record in caplog.records if record.name == "httpx"] == []
        async with httpx.AsyncClient() as client:
            await client.get(url)
    assert len([record for record in caplog.records if record.name == "httpx"]) == 1
