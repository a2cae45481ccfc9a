"""Delivery: a real server on the other side, that answers, refuses, hangs or is not there.

About `service.telling.alert_channels`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deadletter.errors import UsageError
from deadletter.service.telling import alert_channels
from deadletter.service.telling.alert_channels import Channels
from deadletter.service.telling.alerting import AlertChange, AlertSeverity, Notice
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

SECRET = "T0KEN-s3cret"


def notice(
    number: int = 1,
    *,
    change: AlertChange = AlertChange.RAISED,
    severity: AlertSeverity = AlertSeverity.CRITICAL,
) -> Notice:
    return Notice(
        change=change, severity=severity, key=f"depth:q{number}", text=f"q{number} is deep", since=0.0
    )


class Hook:
    """A small HTTP server. `answers` are the status codes to come, then 200; None does not answer at all."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answers: list[int | None] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/{SECRET}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.lower().split("content-length:")[1].split()[0])
            body = json.loads(await reader.readexactly(length))
            self.paths.append(head.split()[1])
            code = self.answers.pop(0) if self.answers else 200
            if code is None:
                return
            if code < 300:
                self.got.append(body)
            writer.write(f"HTTP/1.1 {code} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            await writer.drain()
        finally:
            writer.close()


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    server = Hook()
    await server.start()
    yield server
    await server.stop()


@asynccontextmanager
async def running(*urls: str, log: Callable[[Notice], None] = lambda _: None) -> AsyncIterator[Running]:
    events: list[ServiceEvent] = []
    channels = Channels(urls, events.append, broker="shop", log=log, clock=lambda: 60.0, pause_s=0.01)
    task = asyncio.create_task(channels.run())
    try:
        yield Running(channels, events)
    finally:
        await channels.close(5)
        await task


class Running:
    def __init__(self, channels: Channels, events: list[ServiceEvent]) -> None:
        self.channels = channels
        self.events = events

    @property
    def words(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 -- what is waited for is the outside world
            await asyncio.sleep(0.005)


async def test_a_webhook_gets_the_notice_as_json(hook: Hook) -> None:
    async with running(hook.url()) as run:
        run.channels.deliver([notice()])
        await until(lambda: bool(hook.got))
    assert hook.got == [
        {
            "broker": "shop",
            "key": "depth:q1",
            "severity": "critical",
            "change": "raised",
            "text": "CRITICAL shop: q1 is deep",
            "since": "1970-01-01T00:00:00Z",
            "at": "1970-01-01T00:01:00Z",
        }
    ]
    assert hook.paths == [f"/{SECRET}"]
    assert run.events == []


async def test_recovery_and_what_was_folded_are_told(hook: Hook) -> None:
    folded = (notice(2, severity=AlertSeverity.WARNING),)
    first = Notice(
        change=AlertChange.RECOVERED,
        severity=AlertSeverity.WARNING,
        key="k",
        text="t",
        since=0.0,
        folded=folded,
    )
    async with running(hook.url()) as run:
        run.channels.deliver([first])
    assert hook.got[0]["text"] == "RECOVERED shop: t"
    assert hook.got[0]["folded"] == [{"key": "depth:q2", "severity": "warning", "change": "raised"}]


async def test_a_webhook_that_fails_is_tried_again_and_said_once(hook: Hook) -> None:
    hook.answers = [500, 503, None, 429, 302]
    async with running(hook.url()) as run:
        run.channels.deliver([notice(1), notice(2)])
        await until(lambda: len(hook.got) == 2)
        await until(lambda: len(run.events) == 2)
        assert [got["key"] for got in hook.got] == ["depth:q1", "depth:q2"]
        hook.answers = [500]
        run.channels.deliver([notice(3)])
        await until(lambda: len(hook.got) == 3)
    assert run.words == ["Trouble", "Recovered", "Trouble", "Recovered"]
    assert run.events[0] == Trouble(
        what=f"alert:http://127.0.0.1:{hook.port}/***", why="it answered 500", seconds=0.01
    )
    assert run.events[1] == Recovered(what=f"alert:http://127.0.0.1:{hook.port}/***")


async def test_a_notice_that_is_refused_for_good_does_not_hold_up_the_next(hook: Hook) -> None:
    hook.answers = [400, 400, 400]
    async with running(hook.url()) as run:
        run.channels.deliver([notice(1), notice(2)])
        await until(lambda: bool(hook.got))
    assert [got["key"] for got in hook.got] == ["depth:q2"]
    assert hook.got[0]["lost"] == 1
    assert hook.got[0]["text"].endswith("(1 older alert could not be delivered)")


async def test_a_server_that_comes_late_gets_what_waited(hook: Hook) -> None:
    await hook.stop()
    async with running(hook.url()) as run:
        run.channels.deliver([notice(n) for n in range(5)])
        await until(lambda: bool(run.events))
        await hook.start()
        await until(lambda: len(hook.got) == 5)
    assert run.words == ["Trouble", "Recovered"]


async def test_one_channel_does_not_wait_for_another(hook: Hook) -> None:
    nobody = Hook()
    await nobody.start()
    await nobody.stop()
    logged: list[Notice] = []
    async with running("log", nobody.url(), hook.url(), log=logged.append) as run:
        run.channels.deliver([notice()])
        assert logged == [notice()]
        await until(lambda: bool(hook.got))
        assert run.channels.waiting >= 1
        await nobody.start()
        await until(lambda: bool(nobody.got))
    await nobody.stop()


async def test_a_queue_is_bounded_and_says_what_went(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_channels, "QUEUE", 100)
    await hook.stop()
    async with running(hook.url()) as run:
        run.channels.deliver([notice(n) for n in range(150)])
        assert run.channels.waiting == 100
        await until(lambda: bool(run.events))
        await hook.start()
        await until(lambda: not run.channels.waiting)
    assert len(hook.got) == 100
    assert [got["lost"] for got in hook.got if "lost" in got] == [50]
    assert [got["key"] for got in hook.got[:2]] == ["depth:q0", "depth:q51"]


async def test_closing_sends_what_is_queued(hook: Hook) -> None:
    channels = Channels([hook.url()], lambda _: None, broker="shop", log=lambda _: None)
    task = asyncio.create_task(channels.run())
    await asyncio.sleep(0)
    channels.deliver([notice(n) for n in range(20)])
    await channels.close(10)
    await task
    assert len(hook.got) == 20


async def test_closing_does_not_wait_for_ever_and_says_what_is_left(hook: Hook) -> None:
    await hook.stop()
    events: list[ServiceEvent] = []
    channels = Channels([hook.url()], events.append, broker="shop", log=lambda _: None, pause_s=0.01)
    task = asyncio.create_task(channels.run())
    channels.deliver([notice(1), notice(2)])
    await until(lambda: bool(events))
    await channels.close(0.05)
    await task
    assert isinstance(events[-1], Trouble)
    assert events[-1].why == "2 alerts could not be sent before the end"
    channels.deliver([notice(3)])
    assert channels.waiting == 2


async def test_apprise_delivers(hook: Hook) -> None:
    async with running(hook.url("json")) as run:
        run.channels.deliver([notice(), notice(2, change=AlertChange.RECOVERED)])
        await until(lambda: len(hook.got) == 2)
    assert [(got["title"], got["message"], got["type"]) for got in hook.got] == [
        ("CRITICAL shop", "q1 is deep", "failure"),
        ("RECOVERED shop", "q2 is deep", "success"),
    ]


async def test_apprise_that_fails_is_tried_again(hook: Hook) -> None:
    hook.answers = [500, 500]
    async with running(hook.url("json")) as run:
        run.channels.deliver([notice()])
        await until(lambda: bool(hook.got))
        await until(lambda: len(run.events) == 2)
    assert run.events[0] == Trouble(what="alert:json://***", why="apprise could not deliver", seconds=0.01)
    assert run.events[1] == Recovered(what="alert:json://***")


async def test_two_channels_of_one_host_have_two_names(hook: Hook) -> None:
    hook.answers = [500, 500]
    async with running(hook.url(), f"{hook.url()}-2") as run:
        run.channels.deliver([notice()])
        await until(lambda: len(hook.got) == 2)
        await until(lambda: len(run.events) == 4)
    name = f"alert:http://127.0.0.1:{hook.port}/***"
    assert {event.what for event in run.events if isinstance(event, Trouble)} == {name, f"{name}#2"}


@pytest.mark.parametrize("url", [f"nosuch://{SECRET}", f"tgram://{SECRET}", f"slack://{SECRET}"])
def test_an_apprise_url_that_cannot_be_is_refused_without_showing_it(
    url: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(UsageError) as refused:
        Channels([url], lambda _: None, broker="shop", log=lambda _: None)
    scheme = url.partition(":")[0]
    assert f"{scheme}://***" in str(refused.value)
    shown = str(refused.value) + caplog.text + "".join(capsys.readouterr())
    assert SECRET not in shown
    assert refused.value.__cause__ is None


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(UsageError, match=r"pip install 'deadletter\[alerts\]'") as refused:
        Channels([f"slack://{SECRET}"], lambda _: None, broker="shop", log=lambda _: None)
    assert SECRET not in str(refused.value)
    Channels(["log", "https://hooks.example/x"], lambda _: None, broker="shop", log=lambda _: None)


@pytest.mark.parametrize("scheme", ["http", "json"])
async def test_nothing_shows_the_url_of_a_channel(
    hook: Hook, scheme: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async def outage(act: Callable[[], Awaitable[None]]) -> list[ServiceEvent]:
        async with running(hook.url(scheme)) as run:
            run.channels.deliver([notice()])
            await until(lambda: bool(run.events))
            await act()
            await until(lambda: bool(hook.got))
        return run.events

    with caplog.at_level(logging.DEBUG):
        hook.answers = [500, 404, None]
        events = await outage(lambda: asyncio.sleep(0))
        await hook.stop()
        hook.got.clear()
        events += await outage(hook.start)
    assert events
    assert hook.paths
    assert set(hook.paths) == {f"/{SECRET}"}, "it was really asked"
    assert SECRET not in caplog.text
    assert SECRET not in repr(events)
    assert SECRET not in "".join(capsys.readouterr())
