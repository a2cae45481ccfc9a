"""A consumer in numbers, for Prometheus.

    app.listen(ConsumerMetrics())                       # into prometheus_client's own registry

What is counted by which labels stands below, and in `docs/consumer.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deadletter.consumer.events import Event, Fate, Handled, Paused, Ready, Resumed
from deadletter.errors import UsageError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

OTHER: Final = "other"
ERRORS_MAX: Final = 200
"""Types of errors that are told apart; an application can make them up without end."""
_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class ConsumerMetrics:
    """A listener. `registry`: another one than prometheus_client's own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import REGISTRY, Counter, Gauge, Histogram
        except ImportError as error:
            raise UsageError("ConsumerMetrics: expected prometheus-client to be installed") from error
        into = REGISTRY if registry is None else registry
        self._messages = Counter(
            "deadletter_consumer_messages", "What became of messages.", ("queue", "fate"), registry=into
        )
        self._retries = Counter(
            "deadletter_consumer_retries",
            "Retries, by delay in seconds and type of error.",
            ("queue", "delay", "error"),
            registry=into,
        )
        self._parked = Counter(
            "deadletter_consumer_parked",
            "Parked letters, by cause and type of error.",
            ("queue", "cause", "error"),
            registry=into,
        )
        self._seconds = Histogram(
            "deadletter_consumer_handler_seconds",
            "How long handlers took.",
            ("queue",),
            buckets=_BUCKETS_S,
            registry=into,
        )
        self._paused = Gauge(
            "deadletter_consumer_paused",
            "1 while a health check says no.",
            ("queue",),
            registry=into,
            multiprocess_mode="livemax",
        )
        self._errors: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Hear of one fact."""
        match event:
            case Handled():
                self._count(event)
            case Paused(queue=queue):
                self._paused.labels(queue).set(1)
            case Resumed(queue=queue):
                self._paused.labels(queue).set(0)
            case Ready(queues=queues):
                for queue in queues:
                    self._paused.labels(queue).set(0)
            case _:
                pass

    def _count(self, event: Handled) -> None:
        self._messages.labels(event.queue, event.fate.value).inc()
        if event.seconds is not None:
            self._seconds.labels(event.queue).observe(event.seconds)
        if event.fate is Fate.RETRIED:
            delay = OTHER if event.delay_ms is None else f"{event.delay_ms / 1000:g}"
            self._retries.labels(event.queue, delay, self._error(event.error)).inc()
        elif event.fate is Fate.PARKED:
            self._parked.labels(event.queue, event.cause, self._error(event.error)).inc()

    def _error(self, error: str) -> str:
        if error not in self._errors:
            if len(self._errors) >= ERRORS_MAX:
                return OTHER
            self._errors.add(error)
        return error or OTHER
