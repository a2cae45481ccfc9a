"""A desk on a free port, with a real uvicorn in the test's own event loop and an office that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from deadletter.config.settings import Mode, Watch
from deadletter.desk.access.access import Access
from deadletter.desk.access.rightful_records import ScopedRecordsSource
from deadletter.desk.access.rightful_replays import ScopedReplaysSource
from deadletter.desk.api.sources import NO_MORE, MoreSources
from deadletter.desk.board import Board
from deadletter.desk.http_app import create_app
from deadletter.desk.server import host_of, serve
from deadletter.desk.view import Status, SweepAnswer, SweepState, anywhere
from deadletter.errors import DeadletterError, UsageError
from deadletter.service.telling.service_events import LifeChanged, QueueSeen, ServiceEvent, Stage
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


class Office:
    """The other side of the Protocol: it watches two queues."""

    def __init__(self) -> None:
        watches = [
            Watch(dlq="*.dlq", vhost="/", mode=Mode.SWEEP),
            Watch(dlq="jobs.dead", vhost="/", mode=Mode.CONSUME),
        ]
        self.board = Board(instance="i1", broker="rabbit:5672", watches=watches, now=lambda: NOW)
        self.asked: list[list[str]] = []
        self.in_vhosts: list[str] = []
        """Those of some that the last sweep was for."""
        self.answers: list[SweepAnswer] = [
            SweepAnswer(dlq="a.dlq", state=SweepState.SWEPT, seen=3, moved=3, seconds=0.25)
        ]
        self.error: DeadletterError | Exception | None = None
        self.hold = asyncio.Event()
        self.hold.set()

    async def sweep(
        self, dlqs: Sequence[str], *, in_vhost: Callable[[str], bool] = anywhere
    ) -> list[SweepAnswer]:
        self.asked.append(list(dlqs))
        self.in_vhosts = [one for one in ("/", "shop", "bank") if in_vhost(one)]
        await self.hold.wait()
        if "unknown" in dlqs:
            raise UsageError("expected a watched queue, got 'unknown'")
        if self.error:
            raise self.error
        return self.answers

    def status(self) -> Status:
        return self.board.status()


@dataclass(kw_only=True)
class Desk:
    office: Office
    metrics: Metrics
    health: ServiceHealth
    url: str
    client: httpx.AsyncClient
    task: asyncio.Task[None] = field(repr=False)

    def emit(self, *events: ServiceEvent) -> None:
        for event in events:
            for listener in (self.office.board, self.metrics, self.health):
                listener(event)


Opened = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def opened() -> Opened:
    """Opens a desk: `async with opened(listen=…, token=…)`; `terms` are further ones of its access."""

    @asynccontextmanager
    async def open_desk(
        listen: str = "127.0.0.1:0",
        token: str | None = None,
        records: ScopedRecordsSource | None = None,
        replays: ScopedReplaysSource | None = None,
        more: MoreSources = NO_MORE,
        **terms: Any,
    ) -> AsyncIterator[Desk]:
        office, metrics, health = Office(), Metrics(), ServiceHealth(lambda: 0.0)
        access = Access(host=host_of(listen), token=token, **terms)
        app = create_app(office, metrics, health, access, records, replays, more)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(app, listen, on_ready=ready.set_result))
        waiting: set[asyncio.Future[Any]] = {task, ready}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        url = ready.result().replace("0.0.0.0", "127.0.0.1")
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client:
            desk = Desk(office=office, metrics=metrics, health=health, url=url, client=client, task=task)
            try:
                yield desk
            finally:
                office.hold.set()
                task.cancel()
                await asyncio.wait({task})

    return open_desk


@pytest.fixture
async def desk(opened: Opened) -> AsyncIterator[Desk]:
    """One on this machine alone, in the middle of its work."""
    async with opened() as found:
        found.emit(
            LifeChanged(stage=Stage.READY),
            QueueSeen(queue="a.dlq", watched=True, depth=7, consumers=1, growth_per_s=0.5, oldest_s=3.0),
            QueueSeen(queue="jobs.dead", watched=True, depth=0, consumers=1),
            QueueSeen(queue="deadletter.due", watched=False, depth=2, consumers=1),
        )
        yield found
