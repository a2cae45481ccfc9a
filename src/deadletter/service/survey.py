"""A look around: which queues there are, how deep they are, and what shape they are in.

Every few seconds the list of queues and the policies (three requests, four where there are very many queues);
the whole shape when one of them changed, and now and then. What was told of a queue the last time is not read
again, and of thousands that look as they did nobody is told one by one.
From it come the queues that a watch's pattern names, the depths that metrics and alerts show, the origins
that throw away their oldest message when they are full, and the one queue from which letters of an origin go
back where a fanout gives a copy to several.

The management API may be away: then what was known stays known, and it is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import (
    BRIEF_COLUMNS,
    COLUMNS,
    policies_of,
    queue_state,
    shape_of,
    told_of,
)
from deadletter.broker.management import Listing, Management
from deadletter.config.settings import Watch
from deadletter.core.layouts.naming import DUE, HELD, PARKED
from deadletter.core.letter.names import is_ours
from deadletter.core.text.glob import glob
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.fanout import NO_FANOUTS, Fanouts
from deadletter.core.topology.merging import BrokerPolicy, Chooser
from deadletter.core.topology.safekeeping import Told
from deadletter.core.topology.vhost import Queue, QueueState, Topology
from deadletter.service.telling.service_events import QueueGone, QueuesAlike, QueueSeen, ServiceEvent

SHAPE_S: Final = 60.0
"""The whole shape is read again after this, even if the list of queues did not change."""
FIGURES_S: Final = 15.0
"""What the broker tells of a queue's policies is not older than this."""
LATE_MS: Final = 6_000
"""A broker counts what consumers have in hand every five seconds, and tells the last count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A dead-letter queue that is looked after, and by which watch."""

    queue: str
    watch: Watch


class UnackedSeen(NamedTuple):
    """Letters that consumers of a queue have."""

    letters: int
    at_ms: int
    """What they got until then is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginLimits:
    """What an origin can hold."""

    max_length: int | None
    drops_head: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen."""

    shape: Topology
    watched: tuple[Watched, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    """Queues that a watch names and that cannot be looked after, or are not there, and why."""
    fanouts: Fanouts = NO_FANOUTS
    """Origins whose letters come into several queues, and from which of them they go back."""
    limits: Mapping[str, OriginLimits] = field(default_factory=dict)
    descent: Descent = field(default_factory=lambda: Descent(Topology()))
    """Whose dead letters come into which queue."""
    told: Mapping[str, Told] = field(default_factory=dict)
    """What the broker says of the policies over queues of ours, where that is to be believed."""


def see(shape: Topology, watches: Sequence[Watch]) -> Sight:
    """What a shape means for these watches. Pure."""
    watched, refused = _watched(shape, watches)
    names = frozenset(one.queue for one in watched)
    return Sight(
        shape=shape,
        watched=watched,
        refused=refused,
        fanouts=Fanouts(shape, names),
        limits={
            name: OriginLimits(max_length=queue.max_length, drops_head=queue.overflow == "drop-head")
            for name, queue in shape.queues.items()
            if queue.max_length is not None
        },
        descent=Descent(shape),
    )


def _watched(shape: Topology, watches: Sequence[Watch]) -> tuple[tuple[Watched, ...], dict[str, str]]:
    found: list[Watched] = []
    refused: dict[str, str] = {}
    for name, queue in shape.queues.items():
        watch = next((w for w in watches if w.vhost == shape.vhost and glob(w.dlq, name)), None)
        if watch is None or is_ours(name):
            continue
        if (why := why_not(queue)) is not None:
            refused[name] = why
        else:
            found.append(Watched(queue=name, watch=watch))
    for watch in watches:
        if watch.vhost == shape.vhost and "*" not in watch.dlq and watch.dlq not in shape.queues:
            refused[watch.dlq] = (
                f"there is no queue of this name in vhost {shape.vhost}; "
                "it is looked after as soon as there is one"
            )
    return tuple(found), refused


def why_not(queue: Queue) -> str | None:
    """Why no letter can be taken from it; None: they can."""
    if queue.type not in ("classic", "quorum"):
        return f"it is a {queue.type}, from which no letter can be taken; let letters die into a quorum queue"
    if queue.exclusive:
        return "it is exclusive to the connection that declared it"
    return None


class _Noted(NamedTuple):
    """A queue as the broker told of it, and what that means."""

    item: Mapping[str, Any]
    state: QueueState
    told: Told | None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> _Noted:
        return cls(item, queue_state(item), told_of(item))

    def declared_as(self, item: Mapping[str, Any]) -> bool:
        return bool(self.item.get("arguments") == item.get("arguments"))


class Surveyor:
    """Looks, and tells what it saw."""

    def __init__(
        self,
        address: Address,
        watches: Sequence[Watch],
        emit: Callable[[ServiceEvent], None],
        clock: Callable[[], float] = time.monotonic,
        stored: frozenset[str] = frozenset(),
    ) -> None:
        self._address = address
        self._watches = watches
        self._emit = emit
        self._clock = clock
        self._stored = stored
        """Queues whose letters come into the store."""
        self._listing: Listing | None = None
        self._noted: dict[str, _Noted] = {}
        self._seen: dict[str, tuple[QueueState, QueueSeen]] = {}
        """What was told of queues last, and of which state."""
        self._read_at: float | None = None
        self._changed_at = 0.0
        """When the policies were last seen to be others."""
        self.sight: Sight | None = None
        self._looked_ms = 0

    def in_hand(self, queue: str) -> UnackedSeen | None:
        """As the last look told; None: it did not."""
        found = self.sight.shape.queues.get(queue) if self.sight is not None else None
        if found is None or found.state is None:
            return None
        return UnackedSeen(found.state.unacked, self._looked_ms - LATE_MS)

    async def look(self, asked: Management, *, anew: bool = False) -> Sight:
        """Look now; `anew`: at the whole shape, whatever changed. Raises ManagementRefused."""
        looked_ms = time.time_ns() // 1_000_000
        listing = await asked.every("queues", COLUMNS, before=self._listing)
        sight = await self._see(asked, listing, anew=anew)
        self._looked_ms = looked_ms
        return sight

    async def look_again(self, asked: Management) -> Sight:
        """Right after a look, at what was declared meanwhile: figures are those of the look, which cost a
        broker most. The next one sees everything anew."""
        brief = await asked.every("queues", BRIEF_COLUMNS)
        known = self._noted
        items = [
            noted.item
            if (noted := known.get(str(item["name"]))) is not None and noted.declared_as(item)
            else item
            for item in brief.items
        ]
        sight = await self._see(asked, Listing(items), anew=True)
        self._read_at = None
        return sight

    async def _see(self, asked: Management, listing: Listing, *, anew: bool) -> Sight:
        policies = await policies_of(asked)
        noted, fresh, others = self._compare(listing)
        now = self._clock()
        sight = self.sight
        changed = sight is None or tuple(Chooser(policies.all).policies) != sight.shape.policies
        if changed:
            self._changed_at = now
        if (
            anew
            or changed
            or sight is None
            or others
            or self._read_at is None
            or now - self._read_at > SHAPE_S
            or _hides(policies.all)
        ):
            shape = await shape_of(asked, self._address, listing.items, policies.all)
            sight = see(shape, self._watches)
            self._read_at = now
        elif fresh:
            sight = replace(sight, shape=_with(sight.shape, {name: noted[name].state for name in fresh}))
        # Right after a change what we compute is newer than what the broker tells; if we may know it all.
        believed = not policies.complete or now - self._changed_at > FIGURES_S
        told = {name: one.told for name, one in noted.items() if one.told is not None} if believed else {}
        self._listing, self._noted = listing, noted
        self.sight = replace(sight, told=told)
        self._tell(self.sight)
        return self.sight

    def _compare(self, listing: Listing) -> tuple[dict[str, _Noted], list[str], bool]:
        """Every queue; the names of those that are not as they were told last; and whether there are others
        than last time, or others of the same name."""
        if listing is self._listing:
            return self._noted, [], False
        noted: dict[str, _Noted] = {}
        fresh: list[str] = []
        others = False
        for item in listing.items:
            name = str(item["name"])
            known = self._noted.get(name)
            if known is None or known.item != item:
                others = others or known is None or not known.declared_as(item)
                known = _Noted.of(item)
                fresh.append(name)
            noted[name] = known
        return noted, fresh, others or len(noted) != len(self._noted)

    def _tell(self, sight: Sight) -> None:
        watched = {one.queue for one in sight.watched}
        shown = watched | {
            name
            for name in self._noted
            if name in (DUE, PARKED) or name.startswith(HELD) or name in self._stored
        }
        wall_ms = time.time() * 1000
        seen: dict[str, tuple[QueueState, QueueSeen]] = {}
        alike: list[QueueSeen] = []
        for name in shown & self._noted.keys():
            state = self._noted[name].state
            before = self._seen.get(name)
            if before is not None and before[0] is state and _lasts(before[1], watched=name in watched):
                seen[name] = before
                alike.append(before[1])
            else:
                now = self._as_seen(name, state, watched=name in watched, wall_ms=wall_ms)
                seen[name] = (state, now)
                self._emit(now)
        if alike:
            self._emit(QueuesAlike(queues=tuple(alike)))
        for name in self._seen.keys() - seen.keys():
            self._emit(QueueGone(queue=name, vhost=self._address.vhost))
        self._seen = seen

    def _as_seen(self, name: str, state: QueueState, *, watched: bool, wall_ms: float) -> QueueSeen:
        return QueueSeen(
            queue=name,
            watched=watched,
            depth=state.messages,
            consumers=state.consumer_count,
            growth_per_s=state.growth_per_s,
            oldest_s=None
            if state.oldest_at_ms is None or not state.messages
            else max(0.0, (wall_ms - state.oldest_at_ms) / 1000),
            vhost=self._address.vhost,
            in_per_s=state.in_per_s,
            out_per_s=state.delivered_per_s,
        )


def _lasts(told: QueueSeen, *, watched: bool) -> bool:
    """Whether what was told of a state is still so; a letter grows older, whatever the broker says."""
    return told.oldest_s is None and told.watched is watched


def _with(shape: Topology, states: Mapping[str, QueueState]) -> Topology:
    there = {name: replace(shape.queues[name], state=state) for name, state in states.items()}
    return replace(shape, queues={**shape.queues, **there})


def _hides(policies: Iterable[BrokerPolicy]) -> bool:
    """Whether one could give an exchange of ours an alternate; then those declared meanwhile matter too."""
    return any("alternate-exchange" in policy.definition for policy in policies)
