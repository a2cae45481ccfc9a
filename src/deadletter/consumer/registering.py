"""What `@app.queue(…)` and `@app.batch(…)` give: a decorator for a handler, or for several.

    @app.queue("orders")
    async def handle(order: Order) -> None: ...

    events = app.queue("events")

    @events.on(type="order.made")
    async def made(order: Order) -> None: ...

    @events                                  # what no other takes; without it that is put aside
    async def other(body: bytes) -> None: ...

A queue with one handler and no route is that handler and nothing around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.handlers.routing import MessageRoute, RoutedHandler, route_of
from deadletter.consumer.queues.queue_options import QueueOptions, QueueWishes
from deadletter.core.letter.field_table import Value
from deadletter.errors import UsageError

_F = TypeVar("_F", bound=Callable[..., Any])


class QueueHandlers:
    """The handlers of one queue, in the order in which they are registered."""

    def __init__(self, wishes: QueueWishes, queues: dict[str, QueueOptions]) -> None:
        wishes.check()
        self._wishes = wishes
        self._queues = queues
        self._mine: QueueOptions | None = None
        self._routes: list[tuple[MessageRoute, Handler]] = []
        self._default: Handler | None = None

    def __call__(self, function: _F) -> _F:
        """Handle every message with this function, or every one that no other takes."""
        self._only_here(function)
        handler = self._wishes.handler(function)
        if self._default is not None:
            raise self._second(function)
        if isinstance(handler, Handler):
            self._default = handler
            self._register()
        else:
            if self._mine is not None:
                raise self._second(function)
            self._mine = self._queues[self._wishes.queue] = self._wishes.options(handler)
        return function

    def on(
        self,
        *,
        type: str | None = None,  # noqa: A002 -- the name AMQP has for it
        key: str | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> Callable[[_F], _F]:
        """Handle messages of this `type`, routing key (`*` and `#` as in a topic) and with these headers."""
        route = route_of(self._wishes.queue, type_=type, key=key, headers=headers)

        def decorate(function: _F) -> _F:
            self._only_here(function)
            if any(known == route for known, _ in self._routes):
                raise UsageError(
                    f"queue {self._wishes.queue}: on: expected one handler for {route}, got a second"
                )
            handler = self._wishes.handler(function)
            if not isinstance(handler, Handler):
                raise UsageError(f"queue {self._wishes.queue}: on: expected app.queue(…), got a batch")
            self._routes.append((route, handler))
            self._register()
            return function

        return decorate

    def _register(self) -> None:
        if not self._routes:
            assert self._default is not None
            self._mine = self._wishes.options(self._default)
        else:
            self._mine = self._wishes.options(RoutedHandler(self._routes, self._default))
        self._queues[self._wishes.queue] = self._mine

    def _only_here(self, function: Callable[..., Any]) -> None:
        if self._queues.get(self._wishes.queue) is not self._mine:
            raise self._second(function)

    def _second(self, function: Callable[..., Any]) -> UsageError:
        return UsageError(f"queue {self._wishes.queue}: expected one handler, got a second one: {function!r}")
