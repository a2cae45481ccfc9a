"""The deaths of a letter: what the broker wrote into `x-death`, and what we kept when we took it off.

RabbitMQ keeps one entry per {queue, reason}, the most recent first. `count` goes up with every further
death of that pair; `exchange`, `routing-keys` and `time` stay those of the pair's first death. What a
client publishes in `x-death` is carried on by 3.x as if it had happened there, and ignored by 4.x.

Before every publish of ours towards a level or an origin the whole `x-death` family comes off, or 3.x
sees a cycle and drops the letter. What it said goes into `deadletter-deaths`, in the same form, and is
read here as the older part of the history, so that counts and the first exchange survive any number of
trips.

Everything here takes whatever the headers hold and never raises: entries that are no deaths are left out
and counted in `skipped`, lists longer than anything a broker writes are cut and marked `truncated`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, assert_never

from deadletter.core.letter import header_values, names

MAX_DEATHS: Final = 1_000
MAX_CARRIED: Final = 32
MAX_ROUTING_KEYS: Final = 64
_UNKNOWN_TIME: Final = datetime.max.replace(tzinfo=UTC)

DELIVERY_LIMIT: Final = "delivery_limit"
REASONS: Final = ("rejected", "expired", "maxlen", DELIVERY_LIMIT)
"""Every reason a broker gives, 3.10 to 4.3."""
FAILURES: Final = frozenset({"rejected", "delivery_limit"})
"""A consumer had it and failed. The other reasons befall a letter that nobody looked at."""
FIRST_DEATH: Final = ("x-first-death-queue", "x-first-death-reason")
"""The pair that died first, as the broker notes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One entry: this pair of queue and reason, `count` times, first at `first_at`."""

    queue: str
    reason: str
    count: int = 1
    exchange: str | None = None
    routing_keys: tuple[str, ...] = ()
    first_at: datetime | None = None
    original_expiration: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All known deaths, newest first: `recent` by the broker since the last publish of ours, then `older`."""

    recent: tuple[Death, ...] = ()
    older: tuple[Death, ...] = ()
    skipped: int = 0
    truncated: bool = False

    @property
    def all(self) -> tuple[Death, ...]:
        return self.recent + self.older

    @property
    def first_at(self) -> datetime | None:
        """When the letter died for the first time, as far as anybody wrote it down."""
        return min((d.first_at for d in self.all if d.first_at is not None), default=None)


def read_history(headers: Mapping[str, object]) -> History:
    """The deaths a letter carries, whatever its headers hold."""
    recent, skipped, truncated = _read_list(headers.get(names.X_DEATH))
    older, _, _ = _read_list(headers.get(names.DEATHS))
    return History(recent=recent, older=older, skipped=skipped, truncated=truncated)


def _read_list(value: object) -> tuple[tuple[Death, ...], int, bool]:
    if value is None:
        return (), 0, False
    if not isinstance(value, list):
        return (), 1, False
    deaths = tuple(death for entry in value[:MAX_DEATHS] if (death := _read_death(entry)) is not None)
    return deaths, min(len(value), MAX_DEATHS) - len(deaths), len(value) > MAX_DEATHS


def _read_death(entry: object) -> Death | None:
    if not isinstance(entry, dict):
        return None
    queue, reason = header_values.name(entry.get("queue")), header_values.name(entry.get("reason"))
    if not queue or not reason:
        return None
    # It is on the list, so it happened at least once, whatever the count says. Before 3.5 there was no count.
    count = header_values.count(entry.get("count")) or 1
    keys = entry.get("routing-keys")
    return Death(
        queue=queue,
        reason=reason,
        count=count,
        exchange=header_values.name(entry.get("exchange")),
        routing_keys=_read_keys(keys) if isinstance(keys, list) else (),
        first_at=header_values.moment(time) if isinstance(time := entry.get("time"), datetime) else None,
        original_expiration=header_values.name(entry.get("original-expiration")),
    )


def _read_keys(keys: list[object]) -> tuple[str, ...]:
    return tuple(key for value in keys[:MAX_ROUTING_KEYS] if (key := header_values.name(value)) is not None)


class OriginBy(StrEnum):
    """Which of a letter's deaths decides: it names the origin, and the reason and the count are its own."""

    FAILURE = "failure"
    """The newest by `rejected` or `delivery_limit`; where nobody failed, the oldest."""
    FIRST = "first"
    """The oldest."""
    LAST = "last"
    """The newest, be it in a dead-letter queue."""


def newer_than_ours(deaths: tuple[Death, ...]) -> tuple[Death, ...]:
    """The deaths since it last left a queue of ours."""
    for place, death in enumerate(deaths):
        if names.is_ours(death.queue):
            return deaths[:place]
    return deaths


def decisive(headers: Mapping[str, object], deaths: tuple[Death, ...], by: OriginBy) -> Death | None:
    """The death that decides; `deaths` are all that the broker wrote. None: there is none but in ours."""
    candidates = newer_than_ours(deaths)
    if not candidates:
        return None
    match by:
        case OriginBy.LAST:
            return candidates[0]
        case OriginBy.FIRST:
            return _oldest(headers, candidates, whole=len(candidates) == len(deaths))
        case OriginBy.FAILURE:
            failed = next((d for d in candidates if d.reason in FAILURES), None)
            return failed or _oldest(headers, candidates, whole=len(candidates) == len(deaths))
        case _:
            assert_never(by)


def _oldest(headers: Mapping[str, object], candidates: tuple[Death, ...], *, whole: bool) -> Death:
    """`x-death` is ordered by the last death of each pair, so in a loop the one that died first stands first.

    The broker notes which pair that was; after a queue of ours (not `whole`) that is one of ours. Then the
    pairs' first times, which have a resolution of one second; then the larger count, then the place.
    """
    if whole and len(candidates) > 1:
        first = tuple(header_values.name(headers.get(name)) for name in FIRST_DEATH)
        for death in candidates:
            if (death.queue, death.reason) == first:
                return death
    timed = all(d.first_at is not None for d in candidates)
    places = range(len(candidates))
    return candidates[min(places, key=lambda p: _age_rank(candidates[p], p, timed=timed))]


def _age_rank(death: Death, place: int, *, timed: bool) -> tuple[datetime, int, int]:
    at = death.first_at if timed and death.first_at is not None else _UNKNOWN_TIME
    return at, -death.count, -place


def carried(history: History) -> list[dict[str, object]]:
    """What goes into `deadletter-deaths` when the `x-death` family comes off: the broker's form, bounded.

    Deaths of one pair become one entry as the broker itself would have it: the newest place, the sum of the
    counts, everything else from the first. Deaths in queues of ours are our own waiting, not failures.
    """
    pairs: dict[tuple[str, str], Death] = {}
    for death in history.all:
        if not names.is_ours(death.queue):
            pair = (death.queue, death.reason)
            newer = pairs.get(pair)
            total = death.count + (newer.count if newer else 0)
            pairs[pair] = replace(death, count=min(total, header_values.MAX_COUNT))
    kept = list(pairs.values())
    if len(kept) > MAX_CARRIED:  # the oldest knows the first exchange: never the one to go
        kept = [*kept[: MAX_CARRIED - 1], kept[-1]]
    return [_as_table(death) for death in kept]


def _as_table(death: Death) -> dict[str, object]:
    table: dict[str, object] = {"count": death.count, "reason": death.reason, "queue": death.queue}
    if death.first_at is not None:
        table["time"] = death.first_at
    if death.exchange is not None:
        table["exchange"] = death.exchange
    table["routing-keys"] = list(death.routing_keys)
    if death.original_expiration is not None:
        table["original-expiration"] = death.original_expiration
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstEntry:
    """The pair of the death that decides: mostly the head of `x-death`, which most scripts look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByReason:
    """Every death for this reason; `rejected` is the broker's own count of refusals."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ByQueue:
    """Every death in this queue."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOfAll:
    """Every death anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAttempt:
    """How often we sent it back: `deadletter-attempt`. The same on every broker version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHeader:
    """A count some library keeps: `x-retry-count`, `retry_count`, `goqueue-retry-count`."""

    header: str


CountBy = FirstEntry | ByReason | ByQueue | SumOfAll | OwnAttempt | NamedHeader


def counted_in(by: CountBy) -> tuple[str, ...]:
    """The headers this strategy counts in: `count_deaths` needs no others."""
    match by:
        case OwnAttempt():
            return (names.ATTEMPT,)
        case NamedHeader(header=header):
            return (header,)
        case FirstEntry():
            return (names.X_DEATH, names.DEATHS, *FIRST_DEATH)
        case ByReason() | ByQueue() | SumOfAll():
            return (names.X_DEATH, names.DEATHS)
        case _:
            assert_never(by)


def count_deaths(history: History, headers: Mapping[str, object], by: CountBy) -> int:
    """The raw count by this strategy; 0 when nothing says otherwise. Deaths in queues of ours never count.

    Where a letter circles through a client's republish, 3.x goes on counting and 4.x begins again at 1: only
    `OwnAttempt` and `NamedHeader` are then the same everywhere.
    """
    match by:
        case OwnAttempt():
            return header_values.count(headers.get(names.ATTEMPT)) or 0
        case NamedHeader(header=header):
            return header_values.count(headers.get(header)) or 0
        case FirstEntry() | ByReason() | ByQueue() | SumOfAll():
            foreign = [d for d in history.all if not names.is_ours(d.queue)]
            one = decisive(headers, history.recent, OriginBy.FAILURE) or next(iter(foreign), None)
            total = sum(d.count for d in foreign if one is not None and _counts(d, one, by))
            return min(total, header_values.MAX_COUNT)
        case _:
            assert_never(by)


def _counts(death: Death, one: Death, by: FirstEntry | ByReason | ByQueue | SumOfAll) -> bool:
    match by:
        case FirstEntry():
            return (death.queue, death.reason) == (one.queue, one.reason)
        case ByReason(reason=reason):
            return death.reason == reason
        case ByQueue(queue=queue):
            return death.queue == queue
        case SumOfAll():
            return True
        case _:
            assert_never(by)


def attempts_made(history: History, headers: Mapping[str, object], by: CountBy) -> int:
    """How many times it was sent back, 0 when it dies for the first time.

    A count of deaths is one more than the attempts before it; a count of retries is the attempts themselves.
    """
    counted = count_deaths(history, headers, by)
    match by:
        case OwnAttempt() | NamedHeader():
            return counted
        case FirstEntry() | ByReason() | ByQueue() | SumOfAll():
            return max(counted - 1, 0)
        case _:
            assert_never(by)
