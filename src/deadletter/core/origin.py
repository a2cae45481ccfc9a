"""Where does a letter belong, and is it the one our headers speak of?

The origin is the queue that failed: **the oldest death newer than any queue of ours**. Not the newest
death, because a dead-letter queue with a TTL dies after its letter did; and never `x-first-death-*` once
a queue of ours is among the deaths, because then it names one of our levels.

"Oldest" needs care. `x-death` is ordered by the last death of each pair, so in a loop `orders →
orders.retry → orders` the origin stands first. The broker notes which pair died first
(`x-first-death-*`); it is asked first where it is sound. Then the pairs' first times, which have a
resolution of one second; then the larger count, then the place in the list.

Our headers are believed only where they agree with that. Applications copy headers: a message made from a
letter carries the letter's id, attempt and origin into another queue. If it dies there it is a **new**
letter, and the old id becomes its parent. On 3.x they also copy `x-death`, which the broker then carries
on, and the copy looks like a letter that went from queue to queue by itself. The letter's own older
history tells the two apart where it shows the same way once before; where it does not, the answer is
`Ambiguous`, and a person looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from deadletter.core import lenient, names
from deadletter.core.deaths import Death, History

_UNKNOWN_TIME: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The queue a letter died in, with the exchange and keys it first came by, where they are known."""

    queue: str
    exchange: str | None = None
    routing_keys: tuple[str, ...] = ()

    @property
    def routing_key(self) -> str | None:
        return self.routing_keys[0] if self.routing_keys else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Nobody of ours has seen it: it gets an id and begins at attempt 0."""

    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A letter of ours that died again where we sent it."""

    origin: Origin
    letter_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A message that an application made with a letter's headers: a new letter, the old id its parent."""

    origin: Origin
    parent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """No death on record; a header names the queue (`by`), and nothing confirms it."""

    origin: Origin
    letter_id: str | None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """Several queues could be the origin, or the deaths cannot be read as a whole."""

    candidates: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nothing says where it came from."""


Provenance = Fresh | Returned | Copied | Claimed | Ambiguous | Unknown


def first_origin(headers: Mapping[str, object], history: History) -> Origin | None:
    """The queue it died in first, since it last left a queue of ours."""
    oldest = _oldest(headers, history)
    return _origin_of(oldest, history.recent) if oldest else None


def last_origin(history: History) -> Origin | None:
    """The queue it died in last, be it a dead-letter queue; queues of ours left out."""
    newest = next((d for d in history.recent if not names.is_ours(d.queue)), None)
    return _origin_of(newest, history.recent) if newest else None


def read_provenance(
    headers: Mapping[str, object],
    history: History,
    *,
    broker_keeps_client_deaths: bool,
    failed_in: tuple[str, str] | None = None,
) -> Provenance:
    """Whose letter this is. `broker_keeps_client_deaths`: true on 3.x, whose `x-death` may be a copied one.

    `failed_in` is the queue a framework's own header names, and that header: worth a claim, no more.
    """
    letter_id = lenient.name(headers.get(names.ID)) or None
    claimed_queue = lenient.name(headers.get(names.ORIGIN_QUEUE)) or None
    if history.truncated or history.skipped:
        return Ambiguous(
            candidates=_queues(history.recent), why="its x-death header is not one a broker wrote"
        )
    if (doubt := _doubt_across_ours(history)) is not None:
        return doubt
    oldest = _oldest(headers, history)
    if oldest is None:
        return _claim(headers, letter_id, claimed_queue, failed_in)
    if letter_id is None or claimed_queue is None:
        return Fresh(origin=_origin_of(oldest, history.recent))
    if broker_keeps_client_deaths and (doubt := _doubt(claimed_queue, history)) is not None:
        return doubt
    if oldest.queue == claimed_queue:
        return Returned(origin=_own_origin(headers, claimed_queue, history), letter_id=letter_id)
    return Copied(origin=_origin_of(oldest, history.recent), parent_id=letter_id)


def _newer_than_ours(history: History) -> tuple[Death, ...]:
    for place, death in enumerate(history.recent):
        if names.is_ours(death.queue):
            return history.recent[:place]
    return history.recent


def _oldest(headers: Mapping[str, object], history: History) -> Death | None:
    candidates = _newer_than_ours(history)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    if len(candidates) == len(history.recent):
        first = (
            lenient.name(headers.get("x-first-death-queue")),
            lenient.name(headers.get("x-first-death-reason")),
        )
        for death in candidates:
            if (death.queue, death.reason) == first:
                return death
    timed = all(d.first_at is not None for d in candidates)
    places = range(len(candidates))
    return candidates[min(places, key=lambda p: _age_rank(candidates[p], p, timed=timed))]


def _age_rank(death: Death, place: int, *, timed: bool) -> tuple[datetime, int, int]:
    at = death.first_at if timed and death.first_at is not None else _UNKNOWN_TIME
    return at, -death.count, -place


def _doubt(claimed_queue: str, history: History) -> Ambiguous | None:
    """On 3.x, deaths in several queues under our headers: one letter's way, or a copy that took deaths along?

    The same topology shows the same way each time, so a way seen before, in the older history, is its own.
    """
    queues = _queues(_newer_than_ours(history))
    if len(queues) < 2:
        return None
    seen_before = {d.queue for d in history.older} | {claimed_queue}
    if claimed_queue in queues and seen_before.issuperset(queues):
        return None
    return Ambiguous(
        candidates=queues,
        why="it carries our headers and deaths in several queues, and this broker also keeps deaths that "
        "were copied from another message",
    )


def _doubt_across_ours(history: History) -> Ambiguous | None:
    """Deaths on both sides of a queue of ours: an entry that began before it cannot say when it came back.

    Only where somebody republished without taking `x-death` off; we always take it off.
    """
    candidates = _newer_than_ours(history)
    if len(candidates) == len(history.recent) or len(queues := _queues(candidates)) < 2:
        return None
    ours_at = history.recent[len(candidates)].first_at
    if ours_at is not None and all(d.first_at is not None and d.first_at >= ours_at for d in candidates):
        return None
    return Ambiguous(candidates=queues, why="it died in several queues, partly before it was in ours")


def _queues(deaths: tuple[Death, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d.queue for d in deaths if not names.is_ours(d.queue)))


def _origin_of(death: Death, deaths: tuple[Death, ...]) -> Origin:
    """With the exchange and keys it came by the first time it died in that queue, for whatever reason."""
    same_queue = [d for d in deaths if d.queue == death.queue and d.first_at is not None]
    came_by = min(same_queue, key=lambda d: d.first_at or _UNKNOWN_TIME, default=death)
    return Origin(queue=death.queue, exchange=came_by.exchange, routing_keys=came_by.routing_keys)


def _own_origin(headers: Mapping[str, object], queue: str, history: History) -> Origin:
    """What our headers say of the first arrival; else what the oldest deaths there say.

    An exchange of ours is passed over: it is how it came back, not how it came. The key comes back unchanged.
    """
    there = [d for d in reversed(history.all) if d.queue == queue]
    exchange = lenient.name(headers.get(names.ORIGIN_EXCHANGE))
    if exchange is None:
        foreign = (d.exchange for d in there if d.exchange is not None and not names.is_ours(d.exchange))
        exchange = next(foreign, None)
    key = lenient.name(headers.get(names.ORIGIN_ROUTING_KEY))
    keys = (key,) if key is not None else next((d.routing_keys for d in there if d.routing_keys), ())
    return Origin(queue=queue, exchange=exchange, routing_keys=keys)


def _claim(
    headers: Mapping[str, object],
    letter_id: str | None,
    claimed_queue: str | None,
    failed_in: tuple[str, str] | None,
) -> Provenance:
    if claimed_queue is not None and not names.is_ours(claimed_queue):
        origin = _own_origin(headers, claimed_queue, History())
        return Claimed(origin=origin, letter_id=letter_id, by=names.ORIGIN_QUEUE)
    if failed_in is not None and not names.is_ours(failed_in[0]):
        return Claimed(origin=Origin(queue=failed_in[0]), letter_id=letter_id, by=failed_in[1])
    return Unknown()
