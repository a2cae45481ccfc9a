"""A look around: which queues there are, how deep they are, and what shape they are in.

Every few seconds the list of queues and the policies (three requests); the whole shape when one of them
changed, and now and then.
From it come the queues that a watch's pattern names, the depths that metrics and alerts show, the origins
that throw away their oldest message when they are full, and the one queue from which letters of an origin go
back where a fanout gives a copy to several.

The management API may be away: then what was known stays known, and it is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import COLUMNS, policies_of, queue_state, told_of, topology_of
from deadletter.broker.management import Management
from deadletter.config.settings import Watch
from deadletter.core.layouts.naming import DUE, HELD, PARKED
from deadletter.core.letter.names import is_ours
from deadletter.core.text.glob import glob
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.fanout import NO_FANOUTS, Fanouts
from deadletter.core.topology.merging import BrokerPolicy, Chooser
from deadletter.core.topology.safekeeping import Told
from deadletter.core.topology.vhost import Queue, QueueState, Topology
from deadletter.service.telling.service_events import QueueGone, QueueSeen, ServiceEvent

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
        self._known: frozenset[tuple[str, str]] = frozenset()
        self._told: set[str] = set()
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
        items = [item async for item in asked.every("queues", COLUMNS)]
        policies = await policies_of(asked)
        states = {str(item["name"]): queue_state(item) for item in items}
        known = frozenset((str(item["name"]), str(item.get("arguments"))) for item in items)
        now = self._clock()
        changed = self.sight is None or tuple(Chooser(policies.all).policies) != self.sight.shape.policies
        if changed:
            self._changed_at = now
        if (
            anew
            or changed
            or self.sight is None
            or known != self._known
            or self._read_at is None
            or now - self._read_at > SHAPE_S
            or _hides(policies.all)
        ):
            self.sight = see(await topology_of(asked, self._address), self._watches)
            self._known, self._read_at = known, now
        # Right after a change what we compute is newer than what the broker tells; if we may know it all.
        believed = not policies.complete or now - self._changed_at > FIGURES_S
        told = {str(item["name"]): one for item in items if (one := told_of(item)) is not None}
        self.sight = replace(self.sight, shape=_with(self.sight.shape, states), told=told if believed else {})
        self._looked_ms = looked_ms
        self._tell(states)
        return self.sight

    def _tell(self, states: Mapping[str, QueueState]) -> None:
        assert self.sight is not None
        watched = {one.queue for one in self.sight.watched}
        shown = watched | {
            name for name in states if name in (DUE, PARKED) or name.startswith(HELD) or name in self._stored
        }
        wall_ms = time.time() * 1000
        for name in shown & states.keys():
            state = states[name]
            self._emit(
                QueueSeen(
                    queue=name,
                    watched=name in watched,
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
            )
        for name in self._told - shown:
            self._emit(QueueGone(queue=name, vhost=self._address.vhost))
        self._told = shown


def _with(shape: Topology, states: Mapping[str, QueueState]) -> Topology:
    queues = {
        name: replace(queue, state=states.get(name, queue.state)) for name, queue in shape.queues.items()
    }
    return replace(shape, queues=queues)


def _hides(policies: Iterable[BrokerPolicy]) -> bool:
    """Whether one could give an exchange of ours an alternate; then those declared meanwhile matter too."""
    return any("alternate-exchange" in policy.definition for policy in policies)
