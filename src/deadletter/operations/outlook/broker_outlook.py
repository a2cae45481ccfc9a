"""What is asked about the broker, asked of the broker itself: bounded in time, and once for many who ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import read_topology
from deadletter.config.settings import Settings
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery
from deadletter.core.topology.vhost import Topology
from deadletter.doctor.finding import Severity
from deadletter.drawing.graph import graph
from deadletter.drawing.mermaid import mermaid
from deadletter.drawing.svg import svg
from deadletter.errors import DeadletterError, Unreachable, UsageError
from deadletter.operations.examining import examine_broker
from deadletter.operations.outlook.outlook import (
    LOOKED_AT,
    Drawing,
    FindingsTold,
    QueuePage,
    QueueQuery,
    QueueTold,
    TopologyTold,
    WaitingTold,
)
from deadletter.operations.queue_list import QueueLine, QueueList, list_queues
from deadletter.operations.records.records import Records
from deadletter.operations.waiting import LetOut, WaitingChoice, let_out, look, waiting_queues

LOOK_S: Final = 20.0
"""So long the broker is waited for."""
KEPT_S: Final = 5.0
"""A look at the broker is as good as new for so long: many pages cost it one."""
_KEPT: Final = 100
_T = TypeVar("_T")


class BrokerOutlook:
    """`settings`: those in force. `growing`: since when queues of a vhost grow. `records`: of the store, if
    there is one."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        growing: Callable[[str], Mapping[str, datetime]] = lambda _vhost: {},
        records: Callable[[], Awaitable[Records]] | None = None,
    ) -> None:
        self._settings = settings
        self._growing = growing
        self._records = records
        self._looks: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}
        self._examined: dict[str, FindingsTold] = {}
        self._letting = asyncio.Lock()

    def vhosts(self) -> tuple[str, ...]:
        now = self._settings()
        named = [watch.vhost for watch in now.watches]
        named += [queue.vhost for queue in now.desk.queues if now.desk.ingest]
        return tuple(dict.fromkeys([now.broker.vhost, *named]))

    async def waiting(self, choice: WaitingChoice, *, vhost: str, most: int) -> WaitingTold:
        if not 0 <= most <= LOOKED_AT:
            raise UsageError(f"most: expected 0 to {LOOKED_AT:,} letters of each queue, got {most}")
        addresses, api = self._at(vhost)
        return await self._look(
            ("waiting", vhost, choice, most), lambda: _waiting(addresses, api, choice, most)
        )

    async def let_out(self, choice: WaitingChoice, *, vhost: str, park: str | None) -> LetOut:
        addresses, api = self._at(vhost)
        async with self._letting:
            try:
                return await let_out(addresses, api, choice, park=park)
            finally:
                self._looks.clear()

    async def queues(self, query: QueueQuery) -> QueuePage:
        addresses, api = self._at(query.vhost)
        if not 0 < query.limit <= MAX_LIMIT:
            raise UsageError(f"limit: expected 1 to {MAX_LIMIT:,}, got {query.limit}")

        async def listed() -> QueueList:
            now = self._settings()
            return await list_queues(
                addresses,
                api,
                watches=now.watches,
                desk=now.desk,
                stored=await self._stored(),
                names=query.names,
                growing=self._growing(addresses[0].vhost),
            )

        found = await self._look(("queues", query.vhost, query.names), listed)
        lines = sorted((one for one in found.lines if one.dead or not query.dead), key=lambda one: one.name)
        shown = lines[query.after : query.after + query.limit]
        ended = query.after + query.limit
        return QueuePage(
            vhost=found.vhost,
            queues=tuple(map(_told, shown)),
            notes=(*found.notes, *(f"{name} is not there" for name in found.missing)),
            more=ended if ended < len(lines) else None,
        )

    async def findings(self, *, vhost: str) -> FindingsTold:
        name = self._at(vhost)[0][0].vhost
        nobody = FindingsTold(
            vhost=name, at_ms=None, seconds=0.0, version="", queues=0, exchanges=0, bindings=0, findings=()
        )
        return self._examined.get(name, nobody)

    async def examine(self, *, vhost: str) -> FindingsTold:
        addresses, api = self._at(vhost)

        async def examined() -> FindingsTold:
            now = self._settings()
            seen = await examine_broker(
                addresses[0], api, watches=now.watches, ignore=frozenset(), at_least=Severity.NOTE
            )
            (one,) = seen.vhosts
            return FindingsTold(
                vhost=one.vhost,
                at_ms=_now_ms(),
                seconds=seen.seconds,
                version=one.version,
                queues=one.queues,
                exchanges=one.exchanges,
                bindings=one.bindings,
                findings=one.findings,
            )

        told = await self._look(("findings", vhost), examined)
        self._examined[told.vhost] = told
        return told

    async def topology(self, *, vhost: str, around: tuple[str, ...]) -> TopologyTold:
        shape = await self._shape(vhost)
        picture = await asyncio.to_thread(graph, shape, around=around)
        return TopologyTold(
            vhost=shape.vhost, version=shape.version, nodes=picture.nodes, arrows=picture.arrows
        )

    async def drawn(self, *, vhost: str, around: tuple[str, ...], form: Drawing) -> str:
        shape = await self._shape(vhost)
        title = f"vhost {shape.vhost}" + (f", around {', '.join(around)}" if around else "")

        def draw() -> str:
            picture = graph(shape, around=around)
            return svg(picture, title=title) if form is Drawing.SVG else mermaid(picture)

        return await asyncio.to_thread(draw)

    # -- how it is asked ---------------------------------------------------------------------------------
    def _at(self, vhost: str) -> tuple[Sequence[Address], str]:
        broker = self._settings().broker
        if vhost and vhost not in self.vhosts():
            known = ", ".join(map(repr, self.vhosts()))
            raise UsageError(f"vhost: expected one that the service looks after ({known}), got {vhost!r}")
        return [replace(one, vhost=vhost or one.vhost) for one in broker.addresses], broker.api

    async def _shape(self, vhost: str) -> Topology:
        addresses, api = self._at(vhost)
        return await self._look(("shape", vhost), lambda: read_topology(addresses[0], api))

    async def _stored(self) -> Mapping[str, int] | None:
        if self._records is None:
            return None
        try:
            facets = await (await self._records()).facets(LetterQuery())
        except DeadletterError:
            return None  # a store that is away makes no queue unknown
        return {one.value: one.letters for one in facets.by.get("queue", ())}

    async def _look(self, what: Hashable, look_: Callable[[], Awaitable[_T]]) -> _T:
        """One look for all who ask for the same within some seconds."""
        now = time.monotonic()
        began, looking = self._looks.get(what, (0.0, None))
        if looking is None or (looking.done() and now - began > KEPT_S) or _failed(looking):
            for old in [key for key, (at, one) in self._looks.items() if one.done() and now - at > KEPT_S]:
                del self._looks[old]
            if len(self._looks) >= _KEPT:
                raise Unreachable("too many different looks at the broker at once; ask again in a while")
            looking = asyncio.create_task(self._bounded(look_))
            self._looks[what] = (now, looking)
        told: _T = await asyncio.shield(looking)
        return told

    async def _bounded(self, look_: Callable[[], Awaitable[_T]]) -> _T:
        try:
            async with asyncio.timeout(LOOK_S):
                return await look_()
        except TimeoutError:
            name = self._settings().broker.name
            raise Unreachable(f"{name} did not answer within {LOOK_S:.0f} s") from None


def _failed(looking: asyncio.Task[Any]) -> bool:
    return looking.done() and (looking.cancelled() or looking.exception() is not None)


def _now_ms() -> int:
    return int(time.time() * 1000)


async def _waiting(addresses: Sequence[Address], api: str, choice: WaitingChoice, most: int) -> WaitingTold:
    vhost = addresses[0].vhost
    if not most:
        found = await waiting_queues(addresses, api)
        queues = tuple(one for one in found if choice.waits in (None, one.waits))
        letters = sum(one.letters for one in queues)
        return WaitingTold(
            vhost=vhost, at_ms=_now_ms(), letters=letters, queues=queues, kinds=(), looked_at=0
        )
    seen = await look(addresses, api, choice, most=most)
    return WaitingTold(
        vhost=vhost,
        at_ms=_now_ms(),
        letters=seen.letters,
        queues=seen.queues,
        kinds=seen.kinds,
        looked_at=seen.looked_at,
    )


def _told(line: QueueLine) -> QueueTold:
    same = {one.name: getattr(line, one.name) for one in fields(QueueTold) if one.name != "dead"}
    return QueueTold(**same, dead=line.dead)
