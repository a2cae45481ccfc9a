"""The running service: a worker per vhost, the policies, and a life of start, reload and end.

A broker that is away is waited for, however long, and it is said; a login that is wrong ends the service at
once, because it will be wrong in a minute too. Once it worked nothing of that kind ends it: a password that
was changed, a right or a vhost that somebody took away is said, makes it unready, and is waited for.

A reload (SIGHUP) finishes what is under way with the old configuration and goes on with the new one; a
configuration that makes no sense changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from deadletter.amqp.address import Address
from deadletter.broker import session
from deadletter.broker.session import Connected, Persistence, Waiting, supervise
from deadletter.config.settings import Settings
from deadletter.core.grouping.retention import Retention
from deadletter.errors import ConfigError, DeadletterError
from deadletter.service.policies_in_force import PolicySource
from deadletter.service.replay_rules.rules_runner import RulesRunner
from deadletter.service.storing.lasting import why_not_stored
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.sweeps import Swept
from deadletter.service.task_set import TaskSet
from deadletter.service.telling.service_events import LifeChanged, Recovered, ServiceEvent, Stage, Trouble
from deadletter.service.vhost_worker import VhostWorker

FOR_EVER: Final = Persistence(first_s=None, again_s=None, pause_max_s=5.0, forgives=True)


class Service:
    """`run` it once. `load` reads the configuration, at the start and for each reload."""

    def __init__(
        self,
        load: Callable[[], Settings],
        emit: Callable[[ServiceEvent], None],
        *,
        store_url: Callable[[Settings], str | None],
        name: str,
        each: bool = False,
    ) -> None:
        self.settings: Settings = load()
        self.workers: list[VhostWorker] = []
        self.broker_version: str = ""
        self._load = load
        self._emit = emit
        self._store_url = store_url
        self._name = name
        self._each = each
        """Whether each decision is told, and not only their numbers."""
        self._stopping = False
        self._worked = False
        """Whether it was ready once: from then on nothing outside ends it."""
        self._lost: set[str] = set()
        """Vhosts that cannot be used now;"""
        self._in_trouble = False
        """and whether that was said."""
        self._misread = False
        self._working: list[tuple[VhostWorker, asyncio.Task[object]]] = []

    async def run(self) -> None:
        """Until it is stopped. Raises when it cannot go on."""
        self._emit(LifeChanged(stage=Stage.STARTING))
        try:
            while True:
                await self._round()
                if self._stopping:
                    return
                self._emit(LifeChanged(stage=Stage.RELOADED))
        finally:
            self._emit(LifeChanged(stage=Stage.STOPPED))

    async def _round(self) -> None:
        """With one configuration."""
        settings = self.settings
        source = PolicySource(
            settings.policies, self._store_url(settings), settings.policies.default.backoff, self._emit
        )
        keeper = self._keeper(settings)
        self.workers = [self._worker(settings, address, source, keeper) for address in _vhosts(settings)]
        self._lost &= {worker.address.vhost for worker in self.workers}  # a vhost may be watched no more
        task_set = TaskSet()
        following = task_set.start(source.run())
        if keeper is not None:
            task_set.start(keeper.run())
            task_set.start(self._rules(settings, keeper).run())
        try:
            working = [task_set.start(self._work(worker, source)) for worker in self.workers]
            self._working = list(zip(self.workers, working, strict=True))
            watching = task_set.start(self._tell_ready())
            failing = asyncio.ensure_future(task_set.wait())
            done = asyncio.ensure_future(asyncio.wait(working))
            await asyncio.wait({failing, done}, return_when=asyncio.FIRST_COMPLETED)
            watching.cancel()
            following.cancel()
            done.cancel()
            if failing.done():
                failing.result()
            failing.cancel()
        finally:
            await task_set.dismiss()
            for worker in self.workers:
                await worker.close()

    def _keeper(self, settings: Settings) -> Storekeeper | None:
        """Who brings parked letters into the store, if anybody shall."""
        url = self._store_url(settings)
        if url is None or why_not_stored(settings.desk, url) is not None:
            return None
        # Letters of an archive may not say of which vhost they are: their time ends like the others'.
        kept: dict[tuple[str, str], Retention] = {
            (vhost, queue): retention
            for address in _vhosts(settings)
            for queue, retention in settings.desk.in_vhost(address.vhost).items()
            for vhost in (address.vhost, "")
        }
        return Storekeeper(
            url,
            batch=settings.desk.batch,
            retention=kept,
            grouping=settings.desk.grouping,
            emit=self._emit,
        )

    def _rules(self, settings: Settings, keeper: Storekeeper) -> RulesRunner:
        """Who starts replays by rules, and notes what deploys mean."""
        vhosts = [address.vhost for address in _vhosts(settings)]
        return RulesRunner(keeper, settings.desk.replay_rules, vhosts=vhosts, emit=self._emit)

    def _worker(
        self, settings: Settings, address: Address, source: PolicySource, keeper: Storekeeper | None
    ) -> VhostWorker:
        return VhostWorker(
            settings,
            address,
            source,
            self._emit,
            keeper=keeper,
            each=self._each,
            worked=self._worked,
            alone=len(_vhosts(settings)) == 1,
            on_ready=lambda: self._found(address.vhost),
        )

    async def _work(self, worker: VhostWorker, source: PolicySource) -> None:
        if self.settings.store.url is not None:
            # A table somebody named may say how often a letter is retried: until it was read, letters keep
            # their home. The file that is ours by default is not worth waiting for.
            await source.read.wait()
        addresses = [self._address(one, worker.address.vhost) for one in self.settings.broker.addresses]
        await supervise(
            addresses,
            worker.on,
            name=self._name,
            persistence=FOR_EVER,
            on_event=lambda event: self._on_session(worker.address.vhost, event),
            been_there=self._worked,
        )

    def _address(self, address: Address, vhost: str) -> Address:
        """With the heartbeat of the service, unless the URL asks for a shorter one, or for none."""
        heartbeat_s = min(address.heartbeat_s, self.settings.serve.heartbeat_ms // 1000)
        return replace(address, vhost=vhost, heartbeat_s=heartbeat_s)

    async def _tell_ready(self) -> None:
        for worker in self.workers:
            await worker.ready.wait()
        self._worked = True
        self._emit(LifeChanged(stage=Stage.READY))

    def _on_session(self, vhost: str, event: session.SessionEvent) -> None:
        match event:
            case Connected(server_version=version):
                self.broker_version = version  # whether it can be used is known when the worker is ready
            case Waiting(reason=reason, seconds=seconds):
                self._lost.add(vhost)
                self._in_trouble = True
                self._emit(Trouble(what="broker", why=str(reason), seconds=seconds))

    def _found(self, vhost: str) -> None:
        """The worker of this vhost is at work. The broker is well when all of them are."""
        self._lost.discard(vhost)
        if self._in_trouble and not self._lost:
            self._in_trouble = False
            self._emit(Recovered(what="broker", why=f"RabbitMQ {self.broker_version} answers again"))

    # -- what somebody asks for --------------------------------------------------------------------------
    def stop(self, why: str) -> None:
        """Take no more, finish what is under way, end."""
        if not self._stopping:
            self._stopping = True
            self._emit(LifeChanged(stage=Stage.STOPPING, why=why))
        self._end_round()

    def reload(self) -> None:
        """Read the configuration again, and go on with it."""
        try:
            self.settings = self._load()
        except (ConfigError, DeadletterError) as error:
            self._misread = True
            self._emit(Trouble(what="configuration", why=f"{error}; the old one stays in force"))
            return
        if self._misread:
            self._misread = False
            self._emit(Recovered(what="configuration"))
        self._end_round()

    def _end_round(self) -> None:
        for worker, task in self._working:
            worker.stop()
            if not worker.ready.is_set():
                task.cancel()  # it holds no letter, and may wait for a broker that does not come

    async def sweep(
        self, dlqs: Sequence[str], why: str, in_vhost: Callable[[str], bool] = lambda _vhost: True
    ) -> list[Swept]:
        """Sweep these now, in each vhost where they are watched, of those that `in_vhost` says."""
        answers: list[Swept] = []
        for worker in self.workers:
            if not in_vhost(worker.address.vhost):
                continue
            mine = [name for name in dlqs if worker.knows(name)]
            if mine or not dlqs:
                answers += await worker.sweep(mine, why)
        return answers


def _vhosts(settings: Settings) -> list[Address]:
    """One address for each vhost that a watch or the desk names; the broker's own when none does."""
    first = settings.broker.addresses[0]
    stored = [queue.vhost for queue in settings.desk.queues if settings.desk.ingest]
    watched = [watch.vhost for watch in settings.watches]
    vhosts = dict.fromkeys([*watched, *stored]) or {first.vhost: None}
    return [replace(first, vhost=vhost) for vhost in vhosts]
