"""`METRICS`: the one list of what the service tells in numbers, and `docs/metrics.md` names every one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
REPLAY_LETTERS: Final = _counter(
    "replay_letters_total",
    "Letters of replays by what became of them: sent, refused, doubtful (may have gone twice), done (their "
    "consumer said so), quiet (not returned in time)",
    "what",
)
REPLAYS: Final = _gauge("replays", "Replays this instance works on: going, or waiting for something", "state")
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
    "1 while something does not work: broker, store, store:letters, store:reading, store:retention, "
    "store:replays, store:samples, store:instances, store:lease@VHOST, news, management, watch:NAME, "
    "desk:NAME, policy:NAME@VHOST, condition:PROGRAM, replay:NUMBER, rule:NAME, deploys",
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
