"""The running service: an office per vhost, the policies, and a life of start, reload and end.

A broker that is away is waited for, however long, and it is said; a login that is wrong ends the service at
once, because it will be wrong in a minute too. A reload (SIGHUP) finishes what is under way with the old
configuration and goes on with the new one; a configuration that makes no sense changes nothing.
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
from deadletter.errors import ConfigError, DeadletterError
from deadletter.service.crew import Crew
from deadletter.service.events import Event, LifeChanged, Recovered, Stage, Trouble
from deadletter.service.office import Office
from deadletter.service.policies import PolicySource
from deadletter.service.sweeps import Swept

FOR_EVER: Final = Persistence(first_s=None, again_s=None, pause_max_s=5.0)


class Service:
    """`run` it once. `load` reads the configuration, at the start and for each reload."""

    def __init__(
        self,
        load: Callable[[], Settings],
        emit: Callable[[Event], None],
        *,
        store_url: Callable[[Settings], str | None],
        name: str,
        each: bool = False,
    ) -> None:
        self.settings: Settings = load()
        self.offices: list[Office] = []
        self.broker_version: str = ""
        self._load = load
        self._emit = emit
        self._store_url = store_url
        self._name = name
        self._each = each
        """Whether each decision is told, and not only their numbers."""
        self._stopping = False
        self._lost: set[str] = set()
        self._misread = False
        self._working: list[tuple[Office, asyncio.Task[object]]] = []

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
        again = any(office.been_ready for office in self.offices)
        self.offices = [
            Office(settings, address, source, self._emit, each=self._each, again=again)
            for address in _vhosts(settings)
        ]
        crew = Crew()
        following = crew.start(source.run())
        try:
            working = [crew.start(self._work(office, source)) for office in self.offices]
            self._working = list(zip(self.offices, working, strict=True))
            watching = crew.start(self._tell_ready())
            failing = asyncio.ensure_future(crew.wait())
            done = asyncio.ensure_future(asyncio.wait(working))
            await asyncio.wait({failing, done}, return_when=asyncio.FIRST_COMPLETED)
            watching.cancel()
            following.cancel()
            done.cancel()
            if failing.done():
                failing.result()
            failing.cancel()
        finally:
            await crew.dismiss()
            for office in self.offices:
                await office.close()

    async def _work(self, office: Office, source: PolicySource) -> None:
        if self.settings.store.url is not None:
            # A table somebody named may say how often a letter is retried: until it was read, letters keep
            # their home. The file that is ours by default is not worth waiting for.
            await source.read.wait()
        addresses = [replace(one, vhost=office.address.vhost) for one in self.settings.broker.addresses]
        await supervise(
            addresses,
            office.on,
            name=self._name,
            persistence=FOR_EVER,
            on_event=lambda event: self._on_session(office.address.vhost, event),
        )

    async def _tell_ready(self) -> None:
        for office in self.offices:
            await office.ready.wait()
        self._emit(LifeChanged(stage=Stage.READY))

    def _on_session(self, vhost: str, event: session.Event) -> None:
        match event:
            case Connected(server_version=version):
                self.broker_version = version
                if vhost in self._lost:
                    self._lost.discard(vhost)
                    self._emit(Recovered(what="broker", why=f"RabbitMQ {version} answers again"))
            case Waiting(reason=reason, seconds=seconds):
                self._lost.add(vhost)
                self._emit(Trouble(what="broker", why=str(reason), seconds=seconds))

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
        for office, task in self._working:
            office.stop()
            if not office.ready.is_set():
                task.cancel()  # it holds no letter, and may wait for a broker that does not come

    async def sweep(self, dlqs: Sequence[str], why: str) -> list[Swept]:
        """Sweep these now, in whichever vhost they are watched."""
        answers: list[Swept] = []
        for office in self.offices:
            mine = [name for name in dlqs if office.knows(name)]
            if mine or not dlqs:
                answers += await office.sweep(mine, why)
        return answers


def _vhosts(settings: Settings) -> list[Address]:
    """One address for each vhost that a watch names; the broker's own when there is no watch."""
    first = settings.broker.addresses[0]
    vhosts = dict.fromkeys(watch.vhost for watch in settings.watches) or {first.vhost: None}
    return [replace(first, vhost=vhost) for vhost in vhosts]
