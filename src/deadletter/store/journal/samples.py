"""How queues were: samples by the minute for a day, by the hour for 90 days. All within the caller's
transaction, in small portions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.journal.journal_tables import samples
from deadletter.store.letters.letter_rows import clean, name_ids, unless_there
from deadletter.store.letters.letter_tables import names

MINUTE: Final = 1
HOUR: Final = 60
MINUTES_KEPT: Final = 24 * 60
HOURS_KEPT_MIN: Final = 90 * 24 * 60
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """A queue over a span of time: letters at its end and at most, and how fast they came and went."""

    vhost: str
    queue: str
    minute: int
    """Since 1970."""
    depth: int
    depth_most: int
    consumers: int
    oldest_s: float | None
    in_per_s: float
    out_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePoint:
    """One point of a chart, over a span that the answer names; `at_ms`: where it begins."""

    at_ms: int
    depth: int
    depth_most: int
    consumers: int
    oldest_s: float | None
    in_per_s: float
    out_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeries:
    vhost: str
    queue: str
    points: tuple[SamplePoint, ...]


async def put(connection: AsyncConnection, some: Sequence[QueueSample]) -> None:
    """By the minute. Where another instance was quicker its sample stays: both saw the same queue."""
    ids = await name_ids(connection, sorted({clean(name) for one in some for name in (one.vhost, one.queue)}))
    rows = [
        {
            "vhost": ids[clean(one.vhost)],
            "queue": ids[clean(one.queue)],
            "span": MINUTE,
            "minute": one.minute,
            "depth": one.depth,
            "depth_most": one.depth_most,
            "consumers": one.consumers,
            "oldest_s": one.oldest_s,
            "in_per_s": one.in_per_s,
            "out_per_s": one.out_per_s,
        }
        for one in some
    ]
    if rows:
        await connection.execute(unless_there(connection, samples, _KEY), rows)


_KEY: Final = ("vhost", "queue", "span", "minute")
_MEASURED: Final = (
    func.max(samples.c.depth_most).label("depth_most"),
    func.max(samples.c.consumers).label("consumers"),
    func.max(samples.c.oldest_s).label("oldest_s"),
    func.avg(samples.c.in_per_s).label("in_per_s"),
    func.avg(samples.c.out_per_s).label("out_per_s"),
)


async def fold(connection: AsyncConnection, *, now_ms: int) -> int:
    """Minutes that are older than a day become hours, and hours that are older than 90 days go; how many
    rows went. 0: there are no more."""
    now = now_ms // _MINUTE_MS
    until = (now - MINUTES_KEPT) // HOUR * HOUR
    oldest = await connection.scalar(
        select(func.min(samples.c.minute)).where(samples.c.span == MINUTE, samples.c.minute < until)
    )
    if oldest is not None:
        return await _fold_hour(connection, int(oldest) // HOUR * HOUR)
    over = samples.c.minute < now - HOURS_KEPT_MIN
    first = await connection.scalar(select(func.min(samples.c.minute)).where(samples.c.span == HOUR, over))
    if first is None:
        return 0
    gone = delete(samples).where(samples.c.span == HOUR, samples.c.minute == first)
    return int((await connection.execute(gone)).rowcount)


async def _fold_hour(connection: AsyncConnection, hour: int) -> int:
    inside = (samples.c.span == MINUTE) & samples.c.minute.between(hour, hour + HOUR - 1)
    asked = (
        select(samples.c.vhost, samples.c.queue, func.max(samples.c.minute).label("end"), *_MEASURED)
        .where(inside)
        .group_by(samples.c.vhost, samples.c.queue)
    )
    rows = (await connection.execute(asked)).all()
    at_end = select(samples.c.vhost, samples.c.queue, samples.c.minute, samples.c.depth).where(inside)
    depths = {(v, q, m): depth for v, q, m, depth in await connection.execute(at_end)}
    made = [
        {
            "vhost": row.vhost,
            "queue": row.queue,
            "span": HOUR,
            "minute": hour,
            "depth": depths[row.vhost, row.queue, row.end],
            **{name: getattr(row, name) for name in ("depth_most", "consumers", "oldest_s")},
            "in_per_s": float(row.in_per_s),
            "out_per_s": float(row.out_per_s),
        }
        for row in rows
    ]
    if made:
        await connection.execute(unless_there(connection, samples, _KEY), made)
    return int((await connection.execute(delete(samples).where(inside))).rowcount)


async def queues_sampled(
    connection: AsyncConnection, *, since_ms: int, vhost: str | None, queue: str | None
) -> list[tuple[str, str]]:
    """The queues of which there are samples, by name."""
    of_vhost, of_queue = names.alias("of_vhost"), names.alias("of_queue")
    asked = (
        select(of_vhost.c.name, of_queue.c.name)
        .select_from(samples)
        .join(of_vhost, of_vhost.c.id == samples.c.vhost)
        .join(of_queue, of_queue.c.id == samples.c.queue)
        .where(samples.c.minute >= since_ms // _MINUTE_MS)
        .distinct()
    )
    if vhost is not None:
        asked = asked.where(of_vhost.c.name == clean(vhost))
    if queue is not None:
        asked = asked.where(of_queue.c.name == clean(queue))
    return sorted((str(one), str(other)) for one, other in await connection.execute(asked))


async def series(
    connection: AsyncConnection,
    some: Sequence[tuple[str, str]],
    *,
    from_ms: int,
    until_ms: int,
    step_min: int,
) -> list[QueueSeries]:
    """Of these queues, in steps of so many minutes; where nothing was sampled there is no point."""
    if not some:
        return []
    called = {name for pair in some for name in map(clean, pair)}
    asked_names = select(names.c.name, names.c.id).where(names.c.name.in_(sorted(called)))
    ids = {str(name): int(number) for name, number in await connection.execute(asked_names)}
    found: list[QueueSeries] = []
    for vhost, queue in some:
        at = (ids.get(clean(vhost)), ids.get(clean(queue)))
        if None in at:
            continue
        step = (samples.c.minute - samples.c.minute % step_min).label("step")
        asked = (
            select(step, func.max(samples.c.minute).label("end"), *_MEASURED)
            .where(
                samples.c.vhost == at[0],
                samples.c.queue == at[1],
                samples.c.minute >= from_ms // _MINUTE_MS,
                samples.c.minute <= until_ms // _MINUTE_MS,
            )
            .group_by(step)
            .order_by(step)
        )
        rows = (await connection.execute(asked)).all()
        ends = select(samples.c.minute, samples.c.depth).where(
            samples.c.vhost == at[0],
            samples.c.queue == at[1],
            samples.c.minute.in_([int(row.end) for row in rows]),
        )
        depths: dict[int, Any] = {int(m): depth for m, depth in await connection.execute(ends)}
        points = tuple(
            SamplePoint(
                at_ms=int(row.step) * _MINUTE_MS,
                depth=int(depths[int(row.end)]),
                depth_most=int(row.depth_most),
                consumers=int(row.consumers),
                oldest_s=row.oldest_s,
                in_per_s=float(row.in_per_s),
                out_per_s=float(row.out_per_s),
            )
            for row in rows
        )
        found.append(QueueSeries(vhost=vhost, queue=queue, points=points))
    return found
