"""The service in numbers, for Prometheus.

`Metrics` listens to the facts and keeps sums; a fact costs a look into a dictionary. Nothing is put into
words until somebody asks: `snapshot` copies the numbers at once, and the copy may be rendered in a thread, so
that a scrape of many thousand series does not hold up a letter.

`METRICS` is the one list of what there is: the collector yields these and no other, and `docs/metrics.md`
names every one.

The number of series is bounded, whatever queues are called and however many there are. A metric has at most
`LABEL_SETS`; what comes later goes into one whose labels say `other` (an outcome stays an outcome), and
`deadletter_label_overflow_total` says that it happened. What a queue that is gone has counted is added to
`other`, so that sums never go back.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, assert_never

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from deadletter import __version__
from deadletter.core.deciding.states import Step
from deadletter.core.guards.gate import GateState
from deadletter.core.layouts.naming import HELD
from deadletter.service.telling import service_events as events
from deadletter.service.telling.log_lines import without_channel

LABEL_SETS: Final = 2_000
"""The most series of one metric that are told apart."""
_KEPT_BESIDE: Final = 18_000
"""Of a gauge so many more are remembered, to be told as one."""
_LABEL_CHARS: Final = 1_000
OTHER: Final = "other"
GATE_VALUES: Final = {GateState.OPEN: 0, GateState.RAMPING: 1, GateState.PROBING: 2, GateState.CLOSED: 3}

_DELAY_BUCKETS_S: Final = (0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)
_LATE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
_STORE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SWEEP_BUCKETS_S: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

Labels: TypeAlias = tuple[str, ...]
Combine: TypeAlias = Literal["sum", "max"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Definition:
    """One metric. `together` says how a gauge's series beyond the bound become one."""

    name: str
    type: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: Labels = ()
    kept: int = 0
    """So many of the first labels stay in the series `other`."""
    together: Combine = "sum"
    buckets: tuple[float, ...] = ()


_defined: list[Definition] = []


def _define(metric: Definition) -> Definition:
    _defined.append(metric)
    return metric


def _counter(name: str, text: str, *labels: str, kept: int = 0) -> Definition:
    return _define(Definition(name=f"deadletter_{name}", type="counter", help=text, labels=labels, kept=kept))


def _gauge(name: str, text: str, *labels: str, together: Combine = "sum") -> Definition:
    return _define(
        Definition(name=f"deadletter_{name}", type="gauge", help=text, labels=labels, together=together)
    )


def _histogram(name: str, text: str, buckets: tuple[float, ...]) -> Definition:
    return _define(Definition(name=f"deadletter_{name}", type="histogram", help=text, buckets=buckets))


LETTERS: Final = _counter(
    "letters_total",
    "Letters by what became of them; level is the delay in milliseconds, empty where there is none",
    "outcome",
    "queue",
    "origin",
    "reason",
    "policy",
    "level",
    kept=1,
)
RETRY_DELAY: Final = _histogram("retry_delay_seconds", "Delays that letters were given", _DELAY_BUCKETS_S)
LATENESS: Final = _histogram(
    "release_lateness_seconds", "How much later than promised letters were released", _LATE_BUCKETS_S
)
QUEUE_LETTERS: Final = _gauge(
    "queue_letters", "Letters in a watched dead-letter queue, or in a queue of ours", "queue"
)
QUEUE_OLDEST: Final = _gauge(
    "queue_oldest_seconds", "Age of a queue's oldest letter, where it is known", "queue", together="max"
)
QUEUE_GROWTH: Final = _gauge(
    "queue_growth_per_second", "How fast a queue grows; below zero it shrinks", "queue"
)
QUEUE_CONSUMERS: Final = _gauge("queue_consumers", "Consumers of a queue", "queue")
HELD_LETTERS: Final = _gauge(
    "held_letters",
    "Letters that are due and that a guard keeps in the broker, by the queue they wait in",
    "queue",
)
GATE_STATE: Final = _gauge(
    "gate_state", "0 open, 1 ramping, 2 probing, 3 closed", "gate", "guard", together="max"
)
BUDGET_USED: Final = _gauge(
    "budget_used", "Retries spent of a policy's budget; policy is empty for the budget over all", "policy"
)
BUDGET_LIMIT: Final = _gauge(
    "budget_limit", "A policy's budget; policy is empty for the budget over all", "policy"
)
LEASE_HELD: Final = _gauge(
    "lease_held", "1 while this instance does the work that only one may do", "lease", together="max"
)
STORED: Final = _counter(
    "stored_total",
    "Messages that were committed in the store: new letters, copies of one that is there, the same again",
    "what",
)
STORE_SECONDS: Final = _histogram("store_seconds", "How long a batch of letters took", _STORE_BUCKETS_S)
TIDIED: Final = _counter("tidied_total", "Unused queues and ways back of ours that were deleted", "what")
SWEEPS: Final = _counter("sweeps_total", "Sweeps that ended, by who asked for them", "queue", "why")
SWEEP_SECONDS: Final = _histogram("sweep_seconds", "How long sweeps took", _SWEEP_BUCKETS_S)
GROWTH_ALARMS: Final = _counter(
    "growth_alarms_total", "Paths that were stopped because one letter became many", "origin"
)
FINDINGS: Final = _gauge(
    "findings", "1 for each flaw in the broker's shape that the service works around", "rule", "subject"
)
TROUBLE: Final = _gauge(
    "trouble",
    "1 while something does not work: broker, store, store:letters, store:retention, management, watch:NAME, "
    "desk:NAME, policy:NAME@VHOST, condition:PROGRAM",
    "what",
    together="max",
)
POLICIES: Final = _gauge("policies", "Policies in force")
POLICIES_IGNORED: Final = _gauge("policies_ignored", "Rows of the policy table that make no sense")
UP: Final = _gauge("up", "1 for the stage of its life the service is in", "stage")
OVERFLOW: Final = _counter(
    "label_overflow_total", "Values that went into the series `other`, by metric", "metric"
)
LINES_DROPPED: Final = _counter(
    "log_lines_dropped_total", "Log lines that were given up because nobody took them"
)
BUILD: Final = _define(
    Definition(name="deadletter_build_info", type="info", help="What runs", labels=("version", "python"))
)

METRICS: Final = tuple(_defined)
_OF_A_QUEUE: Final = (QUEUE_LETTERS, QUEUE_OLDEST, QUEUE_GROWTH, QUEUE_CONSUMERS, HELD_LETTERS)


class Metrics:
    """The service's counters, gauges and histograms: hears every event, tells the numbers."""

    def __init__(self, *, lines_dropped: Callable[[], int] = lambda: 0) -> None:
        self._lines_dropped = lines_dropped
        self._series = {m: _Series(m) for m in METRICS if m.type in ("counter", "gauge")}
        self._histograms = {m: _Histogram(m) for m in METRICS if m.type == "histogram"}
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
            case events.LettersStored(new=new, copies=copies, again=again, seconds=took):
                for what, number in (("new", new), ("copy", copies), ("again", again)):
                    self._series[STORED].add((what,), number)
                self._histograms[STORE_SECONDS].observe(took)
            case events.GroupingSeen():
                pass  # health has a note of it
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


class _Series:
    """One metric's values by their labels, bounded."""

    def __init__(self, metric: Definition) -> None:
        self.overflowed = 0
        self._metric = metric
        self._other = (*metric.labels[: metric.kept], *[OTHER] * (len(metric.labels) - metric.kept))
        self._told: dict[Labels, float] = {}
        self._rest: dict[Labels, float] = {}
        """Of a counter: by the labels of `other`. Of a gauge: by their own."""

    def add(self, key: Labels, number: float) -> None:
        if key in self._told:
            self._told[key] += number
        elif len(self._told) < LABEL_SETS:
            self._told[key] = number
        else:
            self.overflowed += 1
            self._fold(key, number)

    def fold(self, gone: Callable[[Labels], bool]) -> None:
        """Add the counters of what is gone to `other`."""
        for key in [key for key in self._told if gone(key)]:
            self._fold(key, self._told.pop(key))

    def _fold(self, key: Labels, number: float) -> None:
        other = (*key[: self._metric.kept], *self._other[self._metric.kept :])
        self._rest[other] = self._rest.get(other, 0) + number

    def set(self, key: Labels, value: float) -> None:
        if key in self._told or len(self._told) < LABEL_SETS:
            self._told[key] = value
            self._rest.pop(key, None)
            return
        self.overflowed += 1
        if key in self._rest or len(self._rest) < _KEPT_BESIDE:
            self._rest[key] = value

    def remove(self, key: Labels) -> None:
        self._told.pop(key, None)
        self._rest.pop(key, None)

    def told(self) -> dict[Labels, float]:
        together = dict(self._told)
        if self._metric.type == "counter":
            for key, value in self._rest.items():
                together[key] = together.get(key, 0) + value  # a queue may be called `other`
        elif self._rest:
            values = [*self._rest.values(), *([together[self._other]] if self._other in together else [])]
            together[self._other] = max(values) if self._metric.together == "max" else sum(values)
        return together


class _Histogram:
    def __init__(self, metric: Definition) -> None:
        self.counts = [0] * (len(metric.buckets) + 1)
        self.sum = 0.0
        self._bounds = metric.buckets

    def observe(self, value: float, number: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += number
        self.sum += max(value, 0.0) * number


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Snapshot(Collector):
    """All numbers of one moment."""

    series: Mapping[Definition, Mapping[Labels, float]]
    histograms: Mapping[Definition, tuple[tuple[int, ...], float]] = field(default_factory=dict)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics for who accepts it, else the plain format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            match metric.type:
                case "counter" | "gauge":
                    kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
                    family = kind(metric.name, metric.help, labels=metric.labels)
                    for labels, value in _cleaned(self.series[metric]).items():
                        family.add_metric(labels, value)
                    yield family
                case "histogram":
                    counts, total = self.histograms[metric]
                    histogram = HistogramMetricFamily(metric.name, metric.help, labels=())
                    histogram.add_metric((), _cumulative(metric.buckets, counts), total)
                    yield histogram
                case "info":
                    info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.help, labels=())
                    info.add_metric((), {"version": __version__, "python": platform.python_version()})
                    yield info
                case _:
                    assert_never(metric.type)


def _cleaned(series: Mapping[Labels, float]) -> dict[Labels, float]:
    """Labels that can be written as UTF-8 and have an end; two that become one are one series."""
    found: dict[Labels, float] = {}
    for labels, value in series.items():
        key = tuple(map(_label, labels))
        found[key] = found.get(key, 0) + value
    return found


def _label(text: str) -> str:
    if text.isascii() and len(text) <= _LABEL_CHARS:
        return text
    return text[:_LABEL_CHARS].encode("utf-8", "backslashreplace").decode()


def _cumulative(bounds: tuple[float, ...], counts: tuple[int, ...]) -> list[tuple[str, float]]:
    total = 0
    told: list[tuple[str, float]] = []
    for bound, number in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += number
        told.append((bound, total))
    return told
