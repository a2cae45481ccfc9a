"""Where does a letter belong, and is it the one our headers speak of?

The origin is the queue that failed: **the newest death by `rejected` or `delivery_limit`** outside our
queues. Not the newest of all, because a dead-letter queue with a TTL dies after its letter did; not the
oldest, because a letter that expired in one queue may have gone on to another whose consumer then failed.
Where no consumer failed (`expired`, `maxlen`), the oldest death that is newer than our own trips: there it
began. A watch may ask for the oldest or the newest instead (`deaths.OriginBy`).

A death is believed only where the shape of the broker says that it can have happened (`place`); what is
known of that is the letter's `Place`. Nobody knows it who reads a letter from a file.

Our headers are believed only where they agree with the deaths. Applications copy headers: a message made from
a letter carries the letter's id, attempt and origin into another queue. If it dies there it is a **new**
letter, and the old id becomes its parent. On 3.x they also copy `x-death`, which the broker then carries on,
and the copy looks like a letter that went from queue to queue by itself. The shape of the broker tells the
two apart; for whoever does not know it the answer is `Ambiguous`, unless the letter's own older history shows
the same way once before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from deadletter.core.deciding.deaths import FAILURES, Death, History, OriginBy, decisive, newer_than_ours
from deadletter.core.deciding.place import Place
from deadletter.core.letter import header_values, names


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
    """No death on record; a header names the queue (`by`), and nothing confirms it.

    `vouched`: the configuration names that queue among the origins.
    """

    origin: Origin
    letter_id: str | None
    by: str
    vouched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubtful:
    candidates: tuple[str, ...]
    why: str


class Ambiguous(_Doubtful):
    """Several queues could be the origin, or the deaths cannot be read as a whole."""


class Unproven(_Doubtful):
    """Its deaths name a queue whose letters do not come to where it was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nothing says where it came from."""


Provenance = Fresh | Returned | Copied | Claimed | Ambiguous | Unproven | Unknown


class Found(NamedTuple):
    """Whose letter it is, which death says so, and the deaths that are its own, newest first."""

    provenance: Provenance
    death: Death | None
    deaths: tuple[Death, ...]


def read_provenance(
    headers: Mapping[str, object],
    history: History,
    *,
    broker_keeps_client_deaths: bool,
    failed_in: tuple[str, str] | None = None,
    by: OriginBy = OriginBy.FAILURE,
    place: Place | None = None,
    came_by: tuple[str, str] = ("", ""),
) -> Found:
    """Whose letter this is. `broker_keeps_client_deaths`: true on 3.x, whose `x-death` may be a copied one.

    `failed_in` is the queue a framework's own header names, and that header: worth a claim, no more.
    `came_by` is the exchange and key with which it came to its `place`; None: nobody knows the place.
    """
    letter_id = header_values.name(headers.get(names.ID)) or None
    claimed_queue = header_values.name(headers.get(names.ORIGIN_QUEUE)) or None
    doubt = _unreadable(history) or _doubt_across_ours(history)
    if doubt is not None:
        return Found(doubt, None, history.recent)
    candidates = newer_than_ours(history.recent)
    if not candidates:
        return Found(_claim(headers, letter_id, claimed_queue, failed_in, place), None, history.recent)
    if place is not None:
        own = place.proven(candidates, came_by)
    else:
        own = candidates
        if broker_keeps_client_deaths and (doubt := _doubt(claimed_queue, history)) is not None:
            return Found(doubt, None, history.recent)
    # What is older than ours goes along only where all that is newer is its own.
    deaths = history.recent if own == candidates else own
    death = decisive(headers, deaths, by)
    if place is not None and (death is None or not _settles(death, by, whole=own == candidates)):
        return Found(_unproven(candidates, len(own), place, came_by), None, history.recent)
    assert death is not None
    return Found(_whose(headers, death, history, deaths, letter_id, claimed_queue), death, deaths)


def _whose(
    headers: Mapping[str, object],
    death: Death,
    history: History,
    deaths: tuple[Death, ...],
    letter_id: str | None,
    claimed_queue: str | None,
) -> Provenance:
    if letter_id is None or claimed_queue is None:
        return Fresh(origin=_origin_of(death, deaths))
    if death.queue == claimed_queue:
        return Returned(origin=_own_origin(headers, claimed_queue, history), letter_id=letter_id)
    if any(d.queue == claimed_queue for d in newer_than_ours(deaths)):
        # It died where we sent it, and went on from there by itself to where it failed.
        return Returned(origin=_origin_of(death, deaths), letter_id=letter_id)
    return Copied(origin=_origin_of(death, deaths), parent_id=letter_id)


def _settles(death: Death, by: OriginBy, *, whole: bool) -> bool:
    """Whether this death decides although older ones are not the letter's own, as far as one can see.

    The newest failure does: what came before it is no matter. An oldest one does not: an older one may be.
    """
    return whole or by is OriginBy.LAST or (by is OriginBy.FAILURE and death.reason in FAILURES)


def _unproven(candidates: tuple[Death, ...], proven: int, place: Place, came_by: tuple[str, str]) -> Unproven:
    queue = candidates[min(proven, len(candidates) - 1)].queue
    if proven:
        why = (
            f"letters that die in {header_values.shown(queue, 100)} do not come to where it died after that: "
            "somebody else wrote that death, or the bindings were others then"
        )
    else:
        why = (
            place.objection(queue, came_by)
            or f"nothing shows that it died in {header_values.shown(queue, 100)}"
        )
    return Unproven(candidates=_queues(candidates), why=f"its x-death is not believed: {why}")


def _unreadable(history: History) -> Ambiguous | None:
    if not history.truncated and not history.skipped:
        return None
    return Ambiguous(candidates=_queues(history.recent), why="its x-death header is not one a broker wrote")


def _doubt(claimed_queue: str | None, history: History) -> Ambiguous | None:
    """On 3.x, deaths in several queues: one letter's way, or a copy that took deaths along?

    The same topology shows the same way each time, so a way seen before, in the older history, is its own.
    Without our headers only failures in several queues make doubt: dead-letter queues that expire are common.
    """
    candidates = newer_than_ours(history.recent)
    if claimed_queue is None:
        candidates = tuple(d for d in candidates if d.reason in FAILURES)
    queues = _queues(candidates)
    if len(queues) < 2:
        return None
    seen_before = {d.queue for d in history.older} | {claimed_queue}
    if claimed_queue in queues and seen_before.issuperset(queues):
        return None
    return Ambiguous(
        candidates=queues,
        why="it carries deaths in several queues, and this broker also keeps deaths that were copied from "
        "another message",
    )


def _doubt_across_ours(history: History) -> Ambiguous | None:
    """Deaths on both sides of a queue of ours: an entry that began before it cannot say when it came back.

    Only where somebody republished without taking `x-death` off; we always take it off.
    """
    candidates = newer_than_ours(history.recent)
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
    came_by = min(same_queue, key=_first_at, default=death)
    return Origin(queue=death.queue, exchange=came_by.exchange, routing_keys=came_by.routing_keys)


def _first_at(death: Death) -> datetime:
    assert death.first_at is not None
    return death.first_at


def _own_origin(headers: Mapping[str, object], queue: str, history: History) -> Origin:
    """What our headers say of the first arrival; else what the oldest deaths there say.

    An exchange of ours is passed over: it is how it came back, not how it came. The key comes back unchanged.
    """
    there = [d for d in reversed(history.all) if d.queue == queue]
    exchange = header_values.name(headers.get(names.ORIGIN_EXCHANGE))
    if exchange is None:
        foreign = (d.exchange for d in there if d.exchange is not None and not names.is_ours(d.exchange))
        exchange = next(foreign, None)
    key = header_values.name(headers.get(names.ORIGIN_ROUTING_KEY))
    keys = (key,) if key is not None else next((d.routing_keys for d in there if d.routing_keys), ())
    return Origin(queue=queue, exchange=exchange, routing_keys=keys)


def _claim(
    headers: Mapping[str, object],
    letter_id: str | None,
    claimed_queue: str | None,
    failed_in: tuple[str, str] | None,
    place: Place | None,
) -> Provenance:
    if claimed_queue is not None and not names.is_ours(claimed_queue):
        origin, by = _own_origin(headers, claimed_queue, History()), names.ORIGIN_QUEUE
    elif failed_in is not None and not names.is_ours(failed_in[0]):
        origin, by = Origin(queue=failed_in[0]), failed_in[1]
    else:
        return Unknown()
    vouched = place is not None and place.vouches_for(origin.queue)
    return Claimed(origin=origin, letter_id=letter_id, by=by, vouched=vouched)
