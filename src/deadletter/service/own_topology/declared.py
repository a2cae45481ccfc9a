"""What the service declares for itself, and what it takes off the queues it watches.

Nothing starts before it is there. Whether letters are safe in it is looked at again and again (`custody`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from deadletter.broker.declare import DeclareOutcome, declare, put_policy
from deadletter.broker.live_topology import topology_of
from deadletter.broker.management import Management
from deadletter.broker.session import Link
from deadletter.config.settings import Settings
from deadletter.core.layouts.service import limit_of, serving
from deadletter.core.letter.names import is_ours
from deadletter.core.topology import safekeeping
from deadletter.core.topology.vhost import Topology, topology
from deadletter.errors import ManagementRefused, ServiceRefused
from deadletter.service.survey import Sight
from deadletter.service.telling.service_events import FindingNamed, ServiceEvent


class OwnTopology:
    """The service's own exchanges, queues and policies, declared on one link."""

    def __init__(
        self, link: Link, asked: Management, settings: Settings, emit: Callable[[ServiceEvent], None]
    ) -> None:
        self._link = link
        self._asked = asked
        self._settings = settings
        self._emit = emit
        self._laid: tuple[frozenset[int], tuple[int, ...] | None, frozenset[str]] | None = None
        self._told: set[str] = set()

    async def lay(
        self,
        shape: Topology | None,
        levels_ms: Iterable[int],
        numbered_ms: Sequence[int] | None,
        look: Callable[[], Awaitable[Sight]] | None = None,
    ) -> Sight | None:
        """Declare what is missing. `shape` is the vhost as it is; None: look first, something is wrong.
        `look` is how whoever asks sees it again where something was declared, and what it saw comes back."""
        wanted = frozenset(levels_ms)
        numbered = None if numbered_ms is None else tuple(numbered_ms)
        if shape is None:
            shape = await topology_of(self._asked, self._link.address)
        there = frozenset(shape.queues)
        plan = serving(shape, levels_ms=wanted, numbered_ms=numbered)
        if self._laid == (wanted, numbered, there & plan.queues.keys()) and plan.queues.keys() <= there:
            return None
        items = await declare(self._link, self._settings.broker.api, plan, shape)
        refused = [item for item in items if item.outcome is DeclareOutcome.REFUSED]
        if refused:
            told = "; ".join(f"{item.subject}: {item.why}" for item in refused[:5])
            raise ServiceRefused(f"what the service needs could not be declared: {told}")
        seen: Sight | None = None
        if any(item.outcome is not DeclareOutcome.THERE for item in items):
            seen = await look() if look is not None else None
            shape = await topology_of(self._asked, self._link.address) if seen is None else seen.shape
        self._adopt(plan, shape)
        self._laid = (wanted, numbered, frozenset(plan.queues))
        return seen

    def _adopt(self, plan: Topology, live: Topology) -> None:
        """Queues that somebody declared before us may hold letters otherwise than planned; what other
        people's policies do to them is another matter."""
        declared = topology(version=live.version, queues=live.queues.values(), policies=plan.policies)
        found = safekeeping.shortfalls(plan, declared)
        if grave := [str(one) for one in found if one.grave]:
            raise ServiceRefused(
                f"letters would not come back: {'; '.join(grave[:5])}; it was declared like this, so delete "
                "it when it is empty, and it is declared as planned"
            )
        whys: dict[str, list[str]] = defaultdict(list)
        for one in found:
            whys[one.queue].append(one.danger.why)
        for queue, said in whys.items():
            why = f"{queue} was declared before us, otherwise than planned: {'; '.join(said)}"
            self._emit(FindingNamed(rule="argument-over-policy", subject=queue, why=why))

    async def take_off_limits(self, sight: Sight, stored: Iterable[str] = ()) -> bool:
        """A crash of ours spends a delivery of what we hold: a queue we take from must not count them.

        Whether something was changed. A policy of ours that somebody deleted is set again.
        """
        changed = False
        foreign = [name for name in stored if name in sight.shape.queues and not is_ours(name)]
        for queue in (*(one.queue for one in sight.watched), *foreign):
            limit = limit_of(sight.shape, sight.shape.queues[queue])
            if limit is None:
                continue
            why = "; declare it anew without the argument" if limit.policy is None else ""
            if limit.policy is not None and self._settings.serve.adjust_dlqs:
                if limit.policy in sight.shape.policies:
                    why = "; our policy is there and has no effect: an operator's overrules it"
                else:
                    try:
                        await put_policy(self._asked, limit.policy)
                    except ManagementRefused as error:
                        why = f"; its limit could not be taken off: {error}"
                    else:
                        changed = True
                        continue
            if queue in self._told:
                continue
            self._told.add(queue)
            self._emit(
                FindingNamed(
                    rule="delivery-limit-into-nothing",
                    subject=queue,
                    why=f"{queue!r} throws a letter away after {limit.limit} deliveries, and each crash "
                    f"of a consumer is one; few letters are taken at a time where that is near{why}",
                )
            )
        return changed
