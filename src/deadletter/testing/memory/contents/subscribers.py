"""The consumers of one queue: whose turn it is, and who may come.

Usually they take turns, the highest priority with room first. With `x-single-active-consumer` one gets
everything and the others wait; who follows it, and whether a consumer of higher priority need not wait, is
not the same for classic and quorum queues, nor for all versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from deadletter.testing.memory.contents.items import QueuedCopy


class Subscriber(Protocol):
    """A consumer, as a queue sees it."""

    priority: int
    exclusive: bool
    held: int
    """How many it has not settled."""

    @property
    def has_room(self) -> bool: ...

    def hand(self, item: QueuedCopy, properties: bytes, *, redelivered: bool) -> None: ...

    def end(self) -> None:
        """The queue is gone."""


class QueueSubscribers:
    """Made with its queue."""

    def __init__(self, *, single_active: bool, by_priority: bool, overtaking: bool) -> None:
        self.single_active = single_active
        self._by_priority = by_priority
        """The next active one is the highest priority, and there the oldest; else the oldest of all."""
        self._overtaking = overtaking
        """A higher priority becomes active as soon as the one before it has settled what it holds."""
        self._waiting: list[Subscriber] = []
        self._active: Subscriber | None = None

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(list(self._waiting))

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def shut(self) -> bool:
        """Whether one of them asked to be alone."""
        return any(subscriber.exclusive for subscriber in self._waiting)

    def add(self, subscriber: Subscriber) -> None:
        self._waiting.append(subscriber)
        self._activated()  # who comes first is active, long before there is something to take

    def remove(self, subscriber: Subscriber) -> None:
        if subscriber in self._waiting:
            self._waiting.remove(subscriber)
            self._activated()

    def next(self) -> Subscriber | None:
        """Who gets the next message; None when nobody can take one."""
        if self.single_active:
            active = self._activated()
            return active if active is not None and active.has_room else None
        able = [subscriber for subscriber in self._waiting if subscriber.has_room]
        return max(able, key=_priority) if able else None

    def served(self, subscriber: Subscriber) -> None:
        """It was handed one: the others' turn."""
        if not self.single_active:
            self._waiting.remove(subscriber)
            self._waiting.append(subscriber)

    def _activated(self) -> Subscriber | None:
        best = max(self._waiting, key=_priority, default=None)
        if self._active not in self._waiting:
            self._active = best if self._by_priority else next(iter(self._waiting), None)
        elif self._overtaking and _priority(best) > _priority(self._active):
            if _held(self._active):
                return None  # it gets no more, and the other waits for what it has
            self._active = best
        return self._active


def _held(subscriber: Subscriber | None) -> int:
    return 0 if subscriber is None else subscriber.held


def _priority(subscriber: Subscriber | None) -> int:
    return 0 if subscriber is None else subscriber.priority
