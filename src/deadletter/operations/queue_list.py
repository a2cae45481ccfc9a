"""The queues of a vhost, for people: how full, how old, how busy, who looks after them, since when they grow.

Most of it is told by the management API. Where that does not answer, queues that are named (in the
configuration, on the command line, and ours) are asked over AMQP for what AMQP tells: letters that are ready,
and consumers. What nobody told is None, never a nought.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import read_topology
from deadletter.broker.queue_counts import QueueCounts, counts_of
from deadletter.broker.session import Link, supervise
from deadletter.config.settings import DeskSettings, Watch
from deadletter.core.letter.names import DUE, PARKED, is_ours
from deadletter.core.text.glob import glob
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.vhost import Queue, QueueState, Topology
from deadletter.errors import ChannelClosed, ManagementRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a queue grew: by so many letters in so many seconds."""

    letters: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """One queue. None: nobody told."""

    name: str
    type: str | None = None
    ready: int
    unacked: int | None = None
    messages: int | None = None
    """All: also those that dead-lettering at least once holds back."""
    consumers: int
    oldest_s: float | None = None
    """By the timestamp that the publisher of the letter at the head wrote: when it was published, not when
    it died. So it is estimated; None: unknown."""
    in_per_s: float | None = None
    out_per_s: float | None = None
    dead_from: tuple[str, ...] | None = None
    """The queues whose dead letters can come here."""
    ours: bool = False
    watch: int | None = None
    """Which of the `[[watches]]` of the configuration looks after it, from 1."""
    watch_mode: str = ""
    taken: bool = False
    """Whether `[desk]` of the configuration takes its letters into the store."""
    stored: int | None = None
    """Letters of it that are in the store, and not discarded."""
    growing_since: datetime | None = None
    """As the running service saw it."""
    growth: Growth | None = None
    """As two looks saw it."""

    @property
    def dead(self) -> bool:
        """Whether dead letters come here, as far as is known."""
        return bool(self.dead_from) or self.watch is not None or self.taken or self.name == PARKED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    vhost: str
    lines: tuple[QueueLine, ...]
    notes: tuple[str, ...] = ()
    """What is not known, and why."""
    missing: tuple[str, ...] = field(default=())
    """Named, and not there."""


async def list_queues(
    addresses: Sequence[Address],
    api: str | None,
    *,
    watches: Sequence[Watch],
    desk: DeskSettings,
    stored: Mapping[str, int] | None = None,
    names: Sequence[str] = (),
    again_s: float | None = None,
    growing: Mapping[str, datetime] | None = None,
) -> QueueList:
    """`stored`: letters in the store by their queue; None where nobody knows. `again_s`: look a second time
    after so long. `growing`: since when, as the running service saw it; None where none answers."""
    address = await supervise(addresses, _address)
    notes: list[str] = []
    missing: tuple[str, ...] = ()
    taken = desk.in_vhost(address.vhost)
    try:
        shape = await read_topology(address, api)
    except ManagementRefused as error:
        notes.append(
            f"the management API does not answer, so only queues that are named are listed, by what AMQP "
            f"tells: {error}"
        )
        known = [
            PARKED,
            DUE,
            *taken,
            *(w.dlq for w in watches if w.vhost == address.vhost and "*" not in w.dlq),
        ]
        wanted = list(dict.fromkeys([*(n for n in names if "*" not in n), *known]))
        told = await supervise(addresses, lambda link: _counts(link, wanted))
        missing = tuple(name for name in names if "*" not in name and name not in told)
        lines = [QueueLine(name=name, ready=q.ready, consumers=q.consumers) for name, q in told.items()]
        lines = [_watched(line, address.vhost, watches) for line in lines]
    else:
        lines = [_watched(line, address.vhost, watches) for line in _lines(shape, time.time())]
        missing = tuple(name for name in names if "*" not in name and name not in shape.queues)
        notes += [
            f"[desk] takes letters of {name}, which is not there"
            for name in taken
            if name != PARKED and name not in shape.queues
        ]
    lines = [
        replace(line, taken=line.name in taken, stored=None if stored is None else stored.get(line.name, 0))
        for line in lines
    ]
    if names:
        lines = [line for line in lines if any(glob(name, line.name) for name in names)]
    if again_s is not None:
        lines = await _grown(addresses, lines, again_s)
    elif growing is None:
        notes.append("since when they grow is known to a running dlq serve; else look twice: --watch 10")
    if growing is not None:
        lines = [_with_since(line, growing) for line in lines]
    return QueueList(vhost=address.vhost, lines=tuple(lines), notes=tuple(notes), missing=missing)


async def _address(link: Link) -> Address:
    return link.address


async def _counts(link: Link, names: Sequence[str]) -> dict[str, QueueCounts]:
    connection = await link.connection("consume")
    found: dict[str, QueueCounts] = {}
    for name in names:
        try:
            told = await counts_of(connection, name)
        except ChannelClosed:
            continue  # exclusive to somebody, or closed to us
        if told is not None:
            found[name] = told
    return found


def _lines(shape: Topology, now_s: float) -> list[QueueLine]:
    descent = Descent(shape)
    sources: dict[str, list[str]] = {}
    for name in shape.queues:
        for target in descent.into(name):
            sources.setdefault(target, []).append(name)
    return [
        _line(queue, queue.state or QueueState(), tuple(sorted(sources.get(name, ()))), now_s)
        for name, queue in sorted(shape.queues.items())
    ]


def _line(queue: Queue, state: QueueState, dead_from: tuple[str, ...], now_s: float) -> QueueLine:
    aged = state.oldest_at_ms is not None and state.messages > 0
    return QueueLine(
        name=queue.name,
        type=queue.type,
        ready=state.ready,
        unacked=state.unacked,
        messages=state.messages,
        consumers=max(state.consumer_count, len(state.consumers)),
        oldest_s=max(0.0, now_s - (state.oldest_at_ms or 0) / 1000) if aged else None,
        in_per_s=state.in_per_s,
        out_per_s=state.delivered_per_s,
        dead_from=dead_from,
        ours=is_ours(queue.name),
    )


def _watched(line: QueueLine, vhost: str, watches: Sequence[Watch]) -> QueueLine:
    for number, watch in enumerate(watches, 1):
        if watch.vhost == vhost and glob(watch.dlq, line.name) and not is_ours(line.name):
            return replace(line, watch=number, watch_mode=watch.mode.value)
    return replace(line, ours=is_ours(line.name))


def _with_since(line: QueueLine, growing: Mapping[str, datetime]) -> QueueLine:
    return replace(line, growing_since=growing.get(line.name))


async def _grown(addresses: Sequence[Address], lines: Sequence[QueueLine], again_s: float) -> list[QueueLine]:
    """Both looks by AMQP: the API's figures are some seconds old."""
    names = [line.name for line in lines]

    async def twice(link: Link) -> tuple[dict[str, QueueCounts], dict[str, QueueCounts], float]:
        first, started = await _counts(link, names), time.monotonic()
        await asyncio.sleep(again_s)
        return first, await _counts(link, names), time.monotonic() - started

    first, second, seconds = await supervise(addresses, twice)
    return [
        replace(
            line,
            ready=second[line.name].ready,
            consumers=second[line.name].consumers,
            growth=Growth(letters=second[line.name].ready - first[line.name].ready, seconds=seconds),
        )
        if line.name in first and line.name in second
        else line
        for line in lines
    ]
