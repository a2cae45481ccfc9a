"""The service in numbers, for Prometheus.

`Metrics` listens to the facts and keeps sums; a fact costs a look into a dictionary. Nothing is put into
words until somebody asks: `snapshot` copies the numbers at once, and the copy may be rendered in a thread, so
that a scrape of many thousand series does not hold up a letter.

`metric_list` has what there is, `metric_series` how values are kept, so that the number of series is bounded,
whatever queues are called and however many there are, and `metric_snapshot` how they are told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from deadletter.core.deciding.states import Step
from deadletter.core.guards.gate import GateState
from deadletter.core.layouts.naming import HELD
from deadletter.service.telling import service_events as events
from deadletter.service.telling.log_lines import without_channel
from deadletter.service.telling.metric_list import (
    BUDGET_LIMIT,
    BUDGET_USED,
    FINDINGS,
    GATE_STATE,
    GROWTH_ALARMS,
    HELD_LETTERS,
    LATENESS,
    LEASE_HELD,
    LETTERS,
    LINES_DROPPED,
    METRICS,
    OVERFLOW,
    POLICIES,
    POLICIES_IGNORED,
    QUEUE_CONSUMERS,
    QUEUE_GROWTH,
    QUEUE_LETTERS,
    QUEUE_OLDEST,
    REPLAY_LETTERS,
    REPLAYS,
    RETRY_DELAY,
    STORE_SECONDS,
    STORED,
    SWEEP_SECONDS,
    SWEEPS,
    TIDIED,
    TROUBLE,
    UP,
)
from deadletter.service.telling.metric_series import Histogram, Series
from deadletter.service.telling.metric_snapshot import Snapshot

GATE_VALUES: Final = {GateState.OPEN: 0, GateState.RAMPING: 1, GateState.PROBING: 2, GateState.CLOSED: 3}
_OF_A_QUEUE: Final = (QUEUE_LETTERS, QUEUE_OLDEST, QUEUE_GROWTH, QUEUE_CONSUMERS, HELD_LETTERS)


class Metrics:
    """The service's counters, gauges and histograms: hears every event, tells the numbers."""

    def __init__(self, *, lines_dropped: Callable[[], int] = lambda: 0) -> None:
        self._lines_dropped = lines_dropped
        self._series = {m: Series(m) for m in METRICS if m.type in ("counter", "gauge")}
        self._histograms = {m: Histogram(m) for m in METRICS if m.type == "histogram"}
        self._letters = self._series[LETTERS]
        self._delays = self._histograms[RETRY_DELAY]

    def __call__(self, event: events.ServiceEvent) -> None:
        match event:
            case events.Confirmed(fates=fates):
                for fate, number in fates.items():
                    level = "" if fate.delay_ms is None else str(fate.delay_ms)
                    key = (fate.step.value, fate.source, fate.origin, fate.reason, fate.policy, level)
                    self._letters.add(key, number)
                    if fate.step is Step.DELAYED and fate.delay_ms is not None:
                        self._delays.observe(fate.delay_ms / 1000, number)
            case events.Late(seconds=lateness):
                observe = self._histograms[LATENESS].observe
                for seconds in lateness:
                    observe(seconds)
            case events.Decided():
                pass  # counted once it is confirmed
            case events.QueueSeen():
                self._see(event)
            case events.QueuesAlike():
                pass  # gauges stay as they are
            case events.LettersStored(new=new, copies=copies, again=again, seconds=took):
                for what, number in (("new", new), ("copy", copies), ("again", again)):
                    self._series[STORED].add((what,), number)
                self._histograms[STORE_SECONDS].observe(took)
            case events.GroupingSeen():
                pass  # health has a note of it
            case events.ReplayCounted(what=what, letters=number):
                self._series[REPLAY_LETTERS].add((what,), number)
            case events.ReplaysSeen(going=going, waiting=waiting):
                self._series[REPLAYS].set(("going",), going)
                self._series[REPLAYS].set(("waiting",), waiting)
            case events.ReplayChanged():
                pass  # a log line
            case events.QueueGone(queue=queue):
                for gauge in _OF_A_QUEUE:
                    self._series[gauge].remove((queue,))
                self._letters.fold(lambda key: key[1] == queue)
                self._series[SWEEPS].fold(lambda key: key[0] == queue)
            case events.GateChanged(gate=gate, guard=guard, state=state):
                self._series[GATE_STATE].set((gate, guard), GATE_VALUES[state])
            case events.BudgetSeen(policy=policy, used=used, limit=limit):
                self._series[BUDGET_USED].set((policy,), used)
                self._series[BUDGET_LIMIT].set((policy,), limit)
            case events.LeaseChanged(name=name, held=held):
                self._series[LEASE_HELD].set((name,), int(held))
            case events.HousekeepingDone(delays=delays, held=queues, ways=ways):
                self._series[TIDIED].add(("delay",), delays)
                self._series[TIDIED].add(("held",), queues)
                self._series[TIDIED].add(("way back",), ways)
            case events.SweepEnded(dlq=dlq, why=why, seconds=took):
                self._series[SWEEPS].add((dlq, why), 1)
                self._histograms[SWEEP_SECONDS].observe(took)
            case events.GrowthFound(origin=origin):
                self._series[GROWTH_ALARMS].add((origin,), 1)
            case events.FindingNamed(rule=rule, subject=subject):
                self._series[FINDINGS].set((rule, subject), 1)
            case events.FindingGone(rule=rule, subject=subject):
                self._series[FINDINGS].remove((rule, subject))
            case events.Trouble(what=what) | events.Recovered(what=what):
                self._series[TROUBLE].set((without_channel(what),), int(isinstance(event, events.Trouble)))
            case events.PoliciesChanged(count=count, problems=problems):
                self._series[POLICIES].set((), count)
                self._series[POLICIES_IGNORED].set((), len(problems))
            case events.LifeChanged(stage=stage):
                for each in events.Stage:
                    self._series[UP].set((each.value,), int(each is stage))
            case _:
                assert_never(event)

    def _see(self, seen: events.QueueSeen) -> None:
        key = (seen.queue,)
        self._series[QUEUE_LETTERS].set(key, seen.depth)
        self._series[QUEUE_GROWTH].set(key, seen.growth_per_s)
        self._series[QUEUE_CONSUMERS].set(key, seen.consumers)
        if seen.oldest_s is None:
            self._series[QUEUE_OLDEST].remove(key)
        else:
            self._series[QUEUE_OLDEST].set(key, seen.oldest_s)
        if seen.queue.startswith(HELD):
            self._series[HELD_LETTERS].set(key, seen.depth)

    def snapshot(self) -> Snapshot:
        """The numbers as they are now. The copy may be rendered in another thread."""
        series = {metric: found.told() for metric, found in self._series.items()}
        series[OVERFLOW] = {(m.name,): s.overflowed for m, s in self._series.items() if s.overflowed}
        series[LINES_DROPPED] = {(): self._lines_dropped()}
        histograms = {m: (tuple(h.counts), h.sum) for m, h in self._histograms.items()}
        return Snapshot(series=series, histograms=histograms)
