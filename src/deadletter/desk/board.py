"""The board on the wall: the facts that still hold, kept by listening, ready to be told as a `Status`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple, TypeVar, assert_never

from deadletter import __version__
from deadletter.config.settings import Watch
from deadletter.core.guards.gate import GateState
from deadletter.core.layouts.naming import HELD, held_name
from deadletter.core.text.glob import glob
from deadletter.desk.view import (
    BudgetStatus,
    FindingStatus,
    GateStatus,
    LeaseStatus,
    PolicyStatus,
    QueueStatus,
    Status,
    TroubleStatus,
    WatchStatus,
)
from deadletter.service.telling import service_events as events
from deadletter.service.telling.log_lines import shown, without_channel

KEPT: Final = 10_000
"""The most facts of one kind that are kept; queues are the most numerous."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Growth(NamedTuple):
    """Since when a queue gets longer, from how many letters, and the most it reached."""

    since: datetime
    start: int
    most: int


class _Place(NamedTuple):
    """Queues of two vhosts may have one name. `vhost` empty: nobody said it."""

    queue: str
    vhost: str


class Board:
    """Listens; `now` is the time of day, in UTC. What no fact tells is set: watches, the broker's version."""

    def __init__(
        self,
        *,
        instance: str,
        broker: str,
        watches: Sequence[Watch],
        now: Callable[[], datetime],
        next_sweep_at: Callable[[str], datetime | None] = lambda _queue: None,
    ) -> None:
        self.watches: tuple[Watch, ...] = tuple(watches)
        """Set anew after a reload."""
        self.broker_version = ""
        self._instance = instance
        self._broker = broker
        self._now = now
        self._next_sweep_at = next_sweep_at
        self._started_at = now()
        self._stage = events.Stage.STARTING
        self._queues: dict[_Place, events.QueueSeen] = {}
        self._growing: dict[_Place, _Growth] = {}
        self._swept: dict[str, tuple[datetime, events.SweepEnded]] = {}
        self._gates: dict[str, GateStatus] = {}
        self._leases: dict[str, bool] = {}
        self._budgets: dict[str, events.BudgetSeen] = {}
        self._policies = PolicyStatus(count=0, where="", problems=())
        self._findings: dict[tuple[str, str], FindingStatus] = {}
        self._troubles: dict[str, TroubleStatus] = {}

    def __call__(self, event: events.ServiceEvent) -> None:
        match event:
            case events.Confirmed() | events.Late() | events.Decided() | events.LettersStored():
                pass  # letters are counted by the metrics
            case events.QueuesAlike():
                pass  # what was told of them is kept
            case events.GroupingSeen():
                pass  # health has a note of it
            case events.QueueSeen(queue=queue, vhost=vhost):
                self._grows(event)
                _keep(self._queues, _Place(queue, vhost), event)
            case events.QueueGone(queue=queue, vhost=vhost):
                self._queues.pop(_Place(queue, vhost), None)
                self._growing.pop(_Place(queue, vhost), None)
                if not any(place.queue == queue for place in self._queues):
                    self._swept.pop(queue, None)
            case events.GateChanged(gate=gate, state=GateState.OPEN):
                self._gates.pop(gate, None)
            case events.GateChanged(gate=gate, origin=origin, guard=guard, state=state, why=why):
                told = GateStatus(
                    gate=gate,
                    origin=origin,
                    guard=guard,
                    state=state.value,
                    why=why,
                    since=self._now(),
                    held=0,
                    held_in=held_name(gate),
                )
                _keep(self._gates, gate, told)
            case events.BudgetSeen(policy=policy):
                _keep(self._budgets, policy, event)
            case events.LeaseChanged(name=name, held=held):
                _keep(self._leases, name, held)
            case (
                events.HousekeepingDone()
                | events.ReplayCounted()
                | events.ReplaysSeen()
                | events.ReplayChanged()
            ):
                pass  # numbers: they are metrics; replays are asked for in the store
            case events.SweepEnded(dlq=dlq):
                _keep(self._swept, dlq, (self._now(), event))
            case events.GrowthFound(origin=origin, letter_id=letter, copies=copies, why=why):
                why = f"{copies} letters of one id ({letter}): {why}"
                self._find(FindingStatus(rule="growth", subject=origin, why=why))
            case events.FindingNamed(rule=rule, subject=subject, why=why):
                self._find(FindingStatus(rule=rule, subject=subject, why=why))
            case events.FindingGone(rule=rule, subject=subject):
                self._findings.pop((rule, subject), None)
            case events.Trouble(what=what, why=why):
                what, why = shown(what, why)
                since = self._troubles[what].since if what in self._troubles else self._now()
                _keep(self._troubles, what, TroubleStatus(what=what, why=why, since=since))
            case events.Recovered(what=what):
                self._troubles.pop(without_channel(what), None)
            case events.PoliciesChanged(count=count, where=where, problems=problems):
                self._policies = PolicyStatus(count=count, where=where, problems=problems)
            case events.LifeChanged(stage=stage):
                self._stage = stage
            case _:
                assert_never(event)

    def _grows(self, seen: events.QueueSeen) -> None:
        """Since it was seen to get longer, until it is back where it began, or at half of what it reached."""
        place = _Place(seen.queue, seen.vhost)
        before, growth = self._queues.get(place), self._growing.get(place)
        if growth is None:
            if before is not None and seen.depth > before.depth:
                _keep(self._growing, place, _Growth(self._now(), before.depth, seen.depth))
        elif seen.depth <= growth.start or seen.depth * 2 < growth.most:
            del self._growing[place]
        elif seen.depth > growth.most:
            self._growing[place] = growth._replace(most=seen.depth)

    def _find(self, finding: FindingStatus) -> None:
        _keep(self._findings, (finding.rule, finding.subject), finding)

    def status(self) -> Status:
        now = self._now()
        return Status(
            instance=self._instance,
            version=__version__,
            stage=self._stage.value,
            broker=self._broker,
            broker_version=self.broker_version,
            started_at=self._started_at,
            uptime_s=(now - self._started_at).total_seconds(),
            watches=tuple(map(self._watch, self.watches)),
            queues=tuple(self._queue(seen) for _, seen in sorted(self._queues.items())),
            gates=tuple(self._gate(gate) for _, gate in sorted(self._gates.items())),
            leases=tuple(LeaseStatus(lease=name, held=held) for name, held in sorted(self._leases.items())),
            budgets=tuple(
                BudgetStatus(policy=policy, used=seen.used, limit=seen.limit)
                for policy, seen in sorted(self._budgets.items())
            ),
            policies=self._policies,
            findings=tuple(finding for _, finding in sorted(self._findings.items())),
            troubles=tuple(trouble for _, trouble in sorted(self._troubles.items())),
        )

    def _gate(self, gate: GateStatus) -> GateStatus:
        seen = [one.depth for place, one in self._queues.items() if place.queue == gate.held_in]
        return replace(gate, held=sum(seen)) if seen else gate

    def _held_by(self, queue: str) -> str:
        if not queue.startswith(HELD):
            return ""
        gate = next((gate for gate in self._gates.values() if gate.held_in == queue), None)
        return f"{gate.guard}: {gate.why}" if gate is not None else ""

    def _watch(self, watch: Watch) -> WatchStatus:
        seen = sorted(one.queue for one in self._queues.values() if _watches(watch, one))
        return WatchStatus(
            dlq=watch.dlq,
            vhost=watch.vhost,
            mode=watch.mode.value,
            layout=watch.layout,
            queues=tuple(seen),
        )

    def _queue(self, seen: events.QueueSeen) -> QueueStatus:
        watched = (watch.mode.value for watch in self.watches if _watches(watch, seen))
        growth = self._growing.get(_Place(seen.queue, seen.vhost))
        at, swept = self._swept.get(seen.queue, (None, None))
        return QueueStatus(
            queue=seen.queue,
            vhost=seen.vhost,
            mode=next(watched, ""),
            depth=seen.depth,
            consumers=seen.consumers,
            growth_per_s=seen.growth_per_s,
            growing_since=growth.since if growth is not None else None,
            oldest_s=seen.oldest_s,
            last_sweep_at=at,
            last_sweep=_in_words(swept) if swept else "",
            next_sweep_at=self._next_sweep_at(seen.queue) if seen.watched else None,
            held_by=self._held_by(seen.queue),
        )


def _watches(watch: Watch, seen: events.QueueSeen) -> bool:
    return seen.watched and glob(watch.dlq, seen.queue) and seen.vhost in ("", watch.vhost)


def _in_words(swept: events.SweepEnded) -> str:
    said = f"{swept.moved:,} of {swept.seen:,} moved in {swept.seconds:.1f} s ({swept.why})"
    parts = [said, *([f"{swept.failed:,} failed"] if swept.failed else []), *(one.why for one in swept.kept)]
    return ", ".join(parts)


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if key in kept or len(kept) < KEPT:
        kept[key] = value
