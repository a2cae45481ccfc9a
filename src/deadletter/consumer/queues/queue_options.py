"""One queue of the application, as it was asked for, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from deadletter.consumer.backoffs import Delays, exponential
from deadletter.consumer.handlers.batching import BatchHandler
from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.handlers.once import MessageKey
from deadletter.consumer.idempotency import Ids
from deadletter.consumer.outcomes import OnErrorRule, Rules
from deadletter.consumer.queues.health_wait import HealthCheck
from deadletter.consumer.queues.queue_consumer import ConsumePlan
from deadletter.core.topology.layout_names import LAYOUT_NAMES, LayoutName
from deadletter.errors import UsageError

_ONE_SCHEDULE: Final = ("loop", "native")
HELD_MINUTES: Final = 10
"""Retries over budget wait in hand, and a broker takes back what is held for long (half an hour): so no more
is held than the budget lets go in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """One queue: how it is consumed, by what, in which layout."""

    plan: ConsumePlan
    handler: Handler | BatchHandler
    layout: LayoutName
    budget_per_minute: float | None = None
    health: HealthCheck | None = None

    @property
    def queue(self) -> str:
        return self.plan.queue

    @property
    def rules(self) -> Rules:
        return self.handler.rules


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWishes:
    """What `@app.queue` and `@app.batch` were given."""

    queue: str
    layout: LayoutName
    retries: int
    backoff: Delays | None
    on: Mapping[type[BaseException], OnErrorRule] | None
    prefetch: int
    concurrency: int
    timeout: float | None
    deliveries: int
    budget: float | None
    health: HealthCheck | None
    idempotent: Ids | None
    key: MessageKey | None
    size: int | None = None
    wait: float = 0.0

    def options(self, function: Callable[..., Any]) -> QueueOptions:
        """Raises UsageError for what cannot be."""
        rules = self._rules()
        kind: type[Handler | BatchHandler] = Handler if self.size is None else BatchHandler
        handler = kind(
            function,
            rules,
            timeout_s=self.timeout,
            concurrency=self.concurrency,
            idempotent=self.idempotent,
            key=self.key,
        )
        return QueueOptions(
            plan=ConsumePlan(
                queue=self.queue,
                prefetch=self._held(),
                concurrency=self.concurrency,
                deliveries_max=self.deliveries,
                batch=1 if self.size is None else self.size,
                wait_s=self.wait,
            ),
            handler=handler,
            layout=self.layout,
            budget_per_minute=self.budget,
            health=self.health,
        )

    def check(self) -> None:
        """Raises UsageError for what cannot be, whatever the function is."""
        if self.layout not in LAYOUT_NAMES:
            raise self._refusal("layout", ", ".join(LAYOUT_NAMES), self.layout)
        for what, number, least in (
            ("prefetch", self.prefetch, 1),
            ("concurrency", self.concurrency, 1),
            ("deliveries", self.deliveries, 2),
            ("size", 1 if self.size is None else self.size, 1),
        ):
            if not least <= number <= 65_535:
                raise self._refusal(what, f"a number from {least} to 65535", number)
        if self.timeout is not None and not (isfinite(self.timeout) and self.timeout > 0):
            raise self._refusal("timeout", "seconds, more than 0", self.timeout)
        if not (isfinite(self.wait) and 0 <= self.wait <= 600):
            raise self._refusal("wait", "from 0 to 600 seconds", self.wait)
        if self.budget is not None and not (isfinite(self.budget) and self.budget >= 0.1):
            raise self._refusal("budget", "retries a minute, at least 0.1", self.budget)
        if self.key is not None and self.idempotent is None:
            raise self._refusal("key", "idempotent=… beside it", "none")
        self._rules()

    def _rules(self) -> Rules:
        backoff = exponential(cap=600, jitter=0.2) if self.backoff is None else self.backoff
        rules = Rules(retries=self.retries, backoff=backoff, on=self.on)
        own = rules.schedule.levels_ms
        if self.layout in _ONE_SCHEDULE and any(one.levels_ms - own for one in rules.schedules):
            raise self._refusal(
                "on",
                f"no delays but the queue's own, because layout {self.layout} has no others",
                "a rule with delays of its own; take return or ladder",
            )
        return rules

    def _held(self) -> int:
        if self.budget is None:
            return self.prefetch
        return max(1, min(self.prefetch, int(self.budget * HELD_MINUTES)))

    def _refusal(self, what: str, expected: str, got: object) -> UsageError:
        return UsageError(f"queue {self.queue}: {what}: expected {expected}, got {got!r}")
