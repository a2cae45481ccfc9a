"""Several handlers for one queue: by the message's type, its routing key, its headers.

The first whose route fits has the message, in the order in which they were registered; what none of them
takes goes to the default handler, or aside for a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from deadletter.consumer.handlers.batching import BatchHandler
from deadletter.consumer.handlers.handler_end import Failed, HandlerEnd
from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.idempotency import Ids
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import Park, Rules
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.routing_keys import topic_matches
from deadletter.errors import MessageError, UsageError

TOLD_CHARS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRoute:
    """Which messages a handler takes: those for which everything that is said here holds."""

    type: str | None = None
    key: str | None = None
    """As a topic exchange reads it: `*` is one word, `#` any number."""
    headers: Mapping[str, Value] = field(default_factory=dict)

    def takes(self, message: Message) -> bool:
        return (
            (self.type is None or message.type == self.type)
            and (self.key is None or topic_matches(self.key, message.routing_key))
            and all(
                name in message.headers and message.headers[name] == value
                for name, value in self.headers.items()
            )
        )

    def __str__(self) -> str:
        told = [f"type={self.type!r}"] if self.type is not None else []
        told += [f"key={self.key!r}"] if self.key is not None else []
        told += [f"headers={dict(self.headers)!r}"] if self.headers else []
        return ", ".join(told)


class RoutedHandler:
    """Many handlers, which look like one."""

    def __init__(self, routes: Sequence[tuple[MessageRoute, Handler]], default: Handler | None) -> None:
        self._routes = tuple(routes)
        self._default = default
        self._all = [handler for _, handler in routes] + ([] if default is None else [default])
        self.rules: Rules = self._all[0].rules

    @property
    def name(self) -> str:
        return " | ".join(handler.name for handler in self._all)

    @property
    def ids(self) -> Ids | None:
        """All of them have the queue's."""
        return self._all[0].ids

    @property
    def leaving(self) -> SystemExit | KeyboardInterrupt | None:
        return next((handler.leaving for handler in self._all if handler.leaving is not None), None)

    def open(self, on_stubborn: Callable[[asyncio.Task[Any]], None], mail: AppMail | None = None) -> None:
        for handler in self._all:
            handler.open(on_stubborn, mail)

    def close(self) -> None:
        for handler in self._all:
            handler.close()

    async def __call__(self, message: Message) -> HandlerEnd:
        """Handle it with the one that takes it, and say what became of it."""
        try:
            handler = self._of(message)
        except MessageError as error:
            message.close()
            return Failed(error=error)
        if handler is not None:
            return await handler(message)
        message.close()
        kind, key = (message.type or "")[:TOLD_CHARS], message.routing_key[:TOLD_CHARS]
        return Failed(error=Park(f"no handler of {message.queue} takes it: type {kind!r}, key {key!r}"))

    def given_up(
        self, messages: Sequence[Message], ended: asyncio.Future[Any], *, late: bool
    ) -> list[HandlerEnd]:
        """As of the one that runs it."""
        return self._running(messages).given_up(messages, ended, late=late)

    def cancelled(self, messages: Sequence[Message], cancelled: asyncio.CancelledError) -> list[HandlerEnd]:
        """As of the one that runs it."""
        return self._running(messages).cancelled(messages, cancelled)

    def _of(self, message: Message) -> Handler | None:
        return next((handler for route, handler in self._routes if route.takes(message)), self._default)

    def _running(self, messages: Sequence[Message]) -> Handler:
        return self._of(messages[0]) or self._all[0]


AnyHandler: TypeAlias = Handler | RoutedHandler | BatchHandler


def route_of(
    queue: str, *, type_: str | None, key: str | None, headers: Mapping[str, Value] | None
) -> MessageRoute:
    """Raises UsageError for one that says nothing."""
    if type_ is None and key is None and not headers:
        raise UsageError(
            f"queue {queue}: on: expected type=…, key=… or headers=…, got none; the handler for what no "
            "other takes is decorated with the queue itself"
        )
    return MessageRoute(type=type_, key=key, headers=dict(headers or {}))
