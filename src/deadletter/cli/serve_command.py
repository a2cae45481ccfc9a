"""`dlq serve`: the retry service, put together: who listens to it, how it is asked, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from deadletter import config
from deadletter.cli.access.service_door import check_door, service_access
from deadletter.cli.stored_here import say_where_letters_go
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit
from deadletter.config.settings import Mode, Settings, Watch
from deadletter.core.letter import names
from deadletter.core.text.glob import glob
from deadletter.desk import server
from deadletter.desk.answers.news import News
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.board import Board
from deadletter.desk.http_app import create_app
from deadletter.desk.view import Status, SweepAnswer, SweepState, anywhere
from deadletter.errors import UsageError
from deadletter.operations.journal.store_journal import LateJournal
from deadletter.operations.outlook.broker_outlook import BrokerOutlook
from deadletter.operations.records.store_records import LateRecords
from deadletter.operations.repairs.body_schemas import read_schemas
from deadletter.operations.replays.before_replay import broker_look
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.operations.rulebook.file_rulebook import FileRulebook
from deadletter.operations.rulebook.rulebook import Rulebook
from deadletter.operations.rulebook.store_rulebook import StoreRulebook
from deadletter.service.running import Service
from deadletter.service.storing.attendance import attend
from deadletter.service.storing.sampling import QueueSampler
from deadletter.service.sweeps import Swept
from deadletter.service.task_set import TaskSet
from deadletter.service.telling import logs, tracing
from deadletter.service.telling.alert_channels import Channels, told_text
from deadletter.service.telling.alerting import AlertSeverity, Notice
from deadletter.service.telling.alerts import AlertBook
from deadletter.service.telling.service_events import Hub
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics
from deadletter.service.telling.systemd import Notifier
from deadletter.store.journal.instances import InstanceSeen

TICK_S: Final = 1.0
LAST_WORDS_S: Final = 3.0
"""How long alerts may still take to be sent at the end."""
OVERTIME_S: Final = 10.0
"""So long after the time for an orderly end it is ended by force."""


def run(*, file: Path | None, options: Mapping[str, object], watch: Sequence[str]) -> Exit:
    def load() -> Settings:
        settings = config.load(config=file, options=options)
        if ours := [one for one in watch if not one or names.is_ours(one)]:
            raise UsageError(f"--watch: expected queues of yours, got {', '.join(map(repr, ours))}")
        more = tuple(Watch(dlq=one, vhost=settings.broker.vhost, mode=Mode.CONSUME) for one in watch)
        settings = replace(settings, watches=(*more, *settings.watches))
        if both := [one.name for one in settings.desk.queues if any(glob(w, one.name) for w in watch)]:
            raise UsageError(f"--watch: expected queues that are not in [desk], got {', '.join(both)}")
        if settings.desk.asked and settings.store.off:
            raise UsageError("--store: expected a store for the letters of [desk] ingest = true, got none")
        check_door(settings)
        if not settings.watches and not settings.desk.asked:
            raise UsageError(
                "expected at least one watch, got none: which dead-letter queues shall be looked after? "
                "dlq serve --watch '*.dlq', or in deadletter.toml: [[watches]] with dlq = \"*.dlq\""
            )
        return settings

    return event_loop.run(_serve(load))


async def _serve(load: Callable[[], Settings]) -> Exit:
    settings = load()
    told = settings.serve
    instance = told.name or f"{socket.gethostname()}-{os.getpid()}"
    log = logs.configure(
        format=told.log_format,
        level=told.log_level,
        stream=sys.stderr,
        instance=instance,
        broker=settings.broker.name,
    )
    say_where_letters_go(settings, log)
    hub = Hub(on_broken=log.broken)
    tracer = tracing.start(instance) if tracing.asked_for(os.environ) else None
    service = Service(
        load,
        hub.emit,
        store_url=lambda settings: settings.store.in_force(os.environ, Path.home()),
        name=f"dlq serve {instance}",
        each=log.listener.wants_decisions or tracer is not None,
    )
    desk = _Desk(service, settings, instance, lambda: log.lines.dropped)
    channels = Channels(
        settings.alerts.channels,
        hub.emit,
        broker=settings.broker.name,
        log=lambda notice: _log_notice(log, notice),
    )
    alerts = AlertBook(settings.alerts, settings.broker.name, channels.deliver)
    notifier = Notifier(os.environ, on_trouble=log.listener.log.warning)
    for listener in (log.listener, desk.metrics, desk.health, desk.board, desk.news, alerts.hear, notifier):
        hub.listen(listener)
    if desk.sampler is not None:
        hub.listen(desk.sampler)
    if tracer is not None:
        hub.listen(tracer)
    task_set = TaskSet()
    try:
        task_set.start(desk.health.run())
        task_set.start(channels.run())
        task_set.start(_ticking(alerts, desk, service))
        task_set.start(notifier.run(lambda: desk.health.live().ok))
        if desk.sampler is not None:
            task_set.start(desk.sampler.run(hub.emit))
        if desk.records is not None:
            task_set.start(attend(desk.records, desk.seen, hub.emit))
        if told.listen is not None:
            task_set.start(desk.news.run(hub.emit))
            task_set.start(_answering(desk, told.listen, settings, log))
        _on_signals(service, notifier, task_set)
        await _until_it_ends(service, task_set)
    finally:
        await channels.close(LAST_WORDS_S)
        await task_set.dismiss()
        await desk.close()
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        log.close()
    return Exit.DONE


async def _answering(desk: _Desk, where: str, settings: Settings, log: logs.Logs) -> None:
    """Answer HTTP. A second instance on this machine that nobody gave an address of its own goes without."""
    try:
        await desk.listen(
            where,
            lambda url, page: _tell_address(log, url, page),
            lambda why: log.listener.log.warning("the machine's own key cannot be kept", why=why),
        )
    except UsageError as error:
        if settings.source("serve.listen").kind != "default":
            raise
        log.listener.log.warning("answers no HTTP", why=str(error))


def _tell_address(log: logs.Logs, url: str, page: str | None) -> None:
    """The log is read by others, so it never has the token; and what systemd keeps of our output is a log."""
    log.listener.log.info("answers HTTP", url=url)
    if page is not None and "JOURNAL_STREAM" not in os.environ:
        # In one piece: unbuffered, a line's end is written by itself, and the log's lines come between.
        print(f"the page: {page}\n", end="", flush=True)


async def _until_it_ends(service: Service, task_set: TaskSet) -> None:
    running = asyncio.ensure_future(service.run())
    failing = asyncio.ensure_future(task_set.wait())
    await asyncio.wait({running, failing}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        service.stop("a part of it failed")
        await asyncio.wait({running})
        failing.result()
    failing.cancel()
    running.result()


async def _ticking(alerts: AlertBook, desk: _Desk, service: Service) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        alerts.tick()
        alerts.settle(service.settings.alerts)
        desk.board.broker_version = service.broker_version
        desk.board.watches = service.settings.watches
        await desk.look_at_keys()


def _on_signals(service: Service, notifier: Notifier, task_set: TaskSet) -> None:
    """SIGTERM, SIGINT: an orderly end, the second one at once. SIGHUP: reload. SIGUSR1: sweep now."""
    running = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        for one in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)  # the kernel's: the second one also ends a loop that hangs
        _end_by_force_after(service.settings.serve.grace_ms / 1000 + OVERTIME_S)
        service.stop(number.name)

    def reload() -> None:
        notifier.reloading()
        service.reload()

    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, end, number)
    running.add_signal_handler(signal.SIGHUP, reload)
    running.add_signal_handler(signal.SIGUSR1, lambda: task_set.start(service.sweep((), "signal")))


def _end_by_force_after(seconds: float) -> None:
    """Whatever hangs, a thread or the loop, does not keep it from ending: no letter is in memory only."""

    def end() -> None:
        print(f"dlq serve: not at an end after {seconds:.0f} s; ended by force", file=sys.stderr, flush=True)
        os._exit(Exit.LEFT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class _Desk:
    """The service, as HTTP sees it."""

    def __init__(
        self, service: Service, settings: Settings, instance: str, lines_dropped: Callable[[], int]
    ) -> None:
        self._service = service
        self.metrics = Metrics(lines_dropped=lines_dropped)
        self.health = ServiceHealth(time.monotonic)
        self._url = url = settings.store.in_force(os.environ, Path.home())
        self.records = None if url is None else LateRecords(url, lambda: service.settings.desk.grouping)
        self._replays = (
            None
            if self.records is None
            else LateReplays(
                self.records,
                look_at=broker_look(lambda: service.settings),
                schemas=lambda: read_schemas(service.settings.desk.schemas),
            )
        )
        self._journal = None if self.records is None else LateJournal(self.records)
        self.news = News(self._journal)
        self.look_at_keys: Callable[[], Awaitable[None]] = self._nobody
        self.sampler = None if self.records is None else QueueSampler(self.records)
        self.board = Board(
            instance=instance,
            broker=settings.broker.name,
            watches=settings.watches,
            now=lambda: datetime.now(UTC),
            next_sweep_at=self._next_sweep_at,
        )

    async def listen(
        self, where: str, on_ready: Callable[[str, str | None], None], on_trouble: Callable[[str], None]
    ) -> None:
        """`on_ready` hears the URL, and the address of the page that lets its owner in."""
        access = service_access(where, lambda: self._service.settings, on_trouble)

        def ready(url: str) -> None:
            on_ready(url, access.begun(url))

        app = create_app(
            self, self.metrics, self.health, access.access, self.records, self._replays, self._more()
        )
        self.look_at_keys = app.state.doorman.look_at_keys
        await server.serve(app, where, on_ready=ready)

    async def close(self) -> None:
        """Also where nobody listens: charts and instances are in the store, too."""
        if self._journal is not None:
            await self._journal.close()
        if self.records is not None:
            await self.records.close()

    async def _nobody(self) -> None:
        """Before it listens nobody comes in."""

    def _more(self) -> MoreSources:
        rulebook: Rulebook = FileRulebook(lambda: self._service.settings)
        if self.records is not None and self._journal is not None and self._url is not None:
            rulebook = StoreRulebook(self._url, lambda: self._service.settings, self.records, self._journal)
        outlook = BrokerOutlook(lambda: self._service.settings, growing=self._growing, records=self.records)
        return MoreSources(journal=self._journal, outlook=outlook, rulebook=rulebook, news=self.news)

    def seen(self) -> InstanceSeen:
        """As other instances are told of this one."""
        status = self.board.status()
        return InstanceSeen(
            name=status.instance,
            broker=status.broker,
            broker_version=status.broker_version,
            version=status.version,
            stage=status.stage,
            started_ms=int(status.started_at.timestamp() * 1000),
            seen_ms=int(time.time() * 1000),
        )

    def _growing(self, vhost: str) -> Mapping[str, datetime]:
        return {
            one.queue: one.growing_since
            for one in self.board.status().queues
            if one.growing_since is not None and one.vhost == vhost
        }

    async def sweep(
        self, dlqs: Sequence[str], *, in_vhost: Callable[[str], bool] = anywhere
    ) -> list[SweepAnswer]:
        workers = [one for one in self._service.workers if in_vhost(one.address.vhost)]
        unknown = [name for name in dlqs if not any(one.knows(name) for one in workers)]
        if unknown:
            raise UsageError(
                f"expected dead-letter queues that a watch looks after, got {', '.join(unknown)}"
            )
        since = {gate.gate: gate.since for gate in self.board.status().gates}
        swept = await self._service.sweep(dlqs, "request", in_vhost)
        return [_answer(one, since) for one in swept]

    def status(self) -> Status:
        return self.board.status()

    def _next_sweep_at(self, queue: str) -> datetime | None:
        for worker in self._service.workers:
            sweeper = worker.queue_workers.sweepers.get(queue)
            if sweeper is not None and sweeper.next_at is not None:
                seconds = sweeper.next_at - asyncio.get_running_loop().time()
                return datetime.now(UTC) + timedelta(seconds=max(0.0, seconds))
        return None


def _answer(swept: Swept, since: Mapping[str, datetime]) -> SweepAnswer:
    ended = swept.ended
    if ended is None:
        state = SweepState.ELSEWHERE if swept.elsewhere else SweepState.FAILED
        return SweepAnswer(dlq=swept.dlq, state=state, why=swept.refused)
    whys = [
        f"{kept.why} (closed since {since[kept.gate]:%Y-%m-%d %H:%M:%S} UTC)"
        if kept.gate in since
        else kept.why
        for kept in ended.kept
    ]
    return SweepAnswer(
        dlq=swept.dlq,
        state=SweepState.SWEPT,
        seen=ended.seen,
        moved=ended.moved,
        left=ended.left,
        failed=ended.failed,
        seconds=ended.seconds,
        why="; ".join(whys),
    )


def _log_notice(log: logs.Logs, notice: Notice) -> None:
    line = log.listener.log.error if notice.severity is AlertSeverity.CRITICAL else log.listener.log.warning
    line("alert", change=notice.change.value, key=notice.key, said=told_text(notice))
