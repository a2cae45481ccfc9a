"""One queue of the application, as it was asked for, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from deadletter.consumer.backoffs import Delays, exponential
from deadletter.consumer.handlers.batching import BatchHandler
from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.handlers.middleware import Middleware
from deadletter.consumer.handlers.once import MessageKey
from deadletter.consumer.handlers.routing import AnyHandler
from deadletter.consumer.idempotency import Ids
from deadletter.consumer.outcomes import OnErrorRule, Rules
from deadletter.consumer.queues.health_wait import HealthCheck
from deadletter.consumer.queues.own_queue import PLAIN, Bind, OwnQueue, QueueType, own_queue
from deadletter.consumer.queues.queue_consumer import ConsumePlan
from deadletter.core.letter.field_table import Value
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
    handler: AnyHandler
    layout: LayoutName
    budget_per_minute: float | None = None
    health: HealthCheck | None = None
    own: OwnQueue = PLAIN

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
    bind: Iterable[Bind] = ()
    queue_type: QueueType | None = None
    arguments: Mapping[str, Value] | None = None
    delivery_limit: int | None = None
    middleware: tuple[Middleware, ...] = ()
    size: int | None = None
    wait: float = 0.0

    def handler(self, function: Callable[..., Any]) -> Handler | BatchHandler:
        """Raises UsageError for a function that cannot be one."""
        kind: type[Handler | BatchHandler] = Handler if self.size is None else BatchHandler
        return kind(
            function,
            self._rules(),
            timeout_s=self.timeout,
            concurrency=self.concurrency,
            idempotent=self.idempotent,
            key=self.key,
            middleware=self.middleware,
        )

    def options(self, handler: AnyHandler) -> QueueOptions:
        """Of the queue, with this handler."""
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
            own=self._own(),
        )

    def check(self) -> None:
        """Raises UsageError for what cannot be, whatever the function is."""
        name: object = self.queue  # whatever an application gives; without parentheses, its function
        if not isinstance(name, str):
            decorator = "queue" if self.size is None else "batch"
            raise UsageError(f'expected @app.{decorator}("name"), with the name of a queue, got {name!r}')
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
        if self.size is not None and self.middleware:
            raise self._refusal(
                "middleware", "none around a batch: it stands around one message at a time", "some"
            )
        self._own()
        self._rules()

    def _own(self) -> OwnQueue:
        return own_queue(
            self.queue,
            layout=self.layout,
            queue_type=self.queue_type,
            arguments=self.arguments,
            delivery_limit=self.delivery_limit,
            bind=self.bind,
        )

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
