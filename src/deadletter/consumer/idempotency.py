"""Idempotency by message id: a message that was done is acked without running its handler again.

    @app.queue("orders", idempotent=MemoryIds())
    @app.queue("orders", idempotent=StoreIds("postgresql://…"))          # in store_ids.py

An id is *begun* before its handler runs, *done* after it succeeded, and forgotten when it failed. The key is
the `message_id` property, or what a function of yours makes of the message; a message without a key is
handled as if there were no such thing.

Between the handler's effect and the mark *done* is a gap, and a process may die in it: such a message was
begun, nobody knows how far it came, and it runs again; `message.begun_before` tells the handler. There is no
gap where the effect is a write in the very database that keeps the ids: a handler with a parameter of type
`Transaction` writes through it, and its writes and the mark are committed together, or not at all.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from deadletter.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

    from deadletter.consumer.publishing.publications import Publication

DAY_S: Final = 86_400.0


class Seen(Enum):
    """What is known of an id."""

    NEW = "never seen, or so long ago that it is forgotten"
    BEGUN = "begun before, and its end is not known"
    DONE = "done"


class Transaction:
    """A transaction of the store in which the message is marked as done, for the handler's own writes.

    It is committed when the handler returns, or raises after `ack()`, and rolled back when it raises
    otherwise. `connection` is SQLAlchemy's. What the handler publishes goes out after the commit.
    """

    __slots__ = ("connection", "outgoing")

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection: AsyncConnection = connection
        self.outgoing: Sequence[Publication] = ()
        """What is published after the commit; told when the handler has returned."""

    async def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """One statement; values by name: `execute("INSERT INTO paid VALUES (:id)", {"id": 7})`."""
        from sqlalchemy import text

        return await self.connection.execute(text(sql), dict(values or {}))


class Ids(Protocol):
    """Where ids are kept. Write your own for another store."""

    async def open(self) -> None:
        """Called when the consumer starts."""

    async def close(self) -> None:
        """Called when it ends."""

    async def begin(self, queue: str, key: str) -> Seen:
        """Mark it as begun unless it is done, and tell what it was before."""

    async def done(self, queue: str, key: str) -> None:
        """Mark it as done."""

    async def forget(self, queue: str, key: str) -> None:
        """The handler failed: whoever comes next begins anew."""


@runtime_checkable
class TransactedIds(Ids, Protocol):
    """Ids that can be marked together with the handler's own writes."""

    def transaction(self, queue: str, key: str) -> AbstractAsyncContextManager[Transaction | None]:
        """None: it is done. Leaving it well marks it as done and commits; an error rolls back."""


@runtime_checkable
class OutboxIds(TransactedIds, Protocol):
    """Ids whose transaction also keeps its `outgoing` messages, until they are known to be published."""

    async def unsent(self, queue: str, key: str) -> Sequence[Publication]:
        """What a message that is done wanted to publish, and nobody knows that it was."""

    async def sent(self, queue: str, key: str) -> None:
        """All of it is published."""


class MemoryIds:
    """Ids in this process: for copies that come close to each other, forgotten when it ends.

    At most `most` of them, the oldest go first; each for `keep` seconds.
    """

    def __init__(
        self,
        *,
        most: int = 100_000,
        keep: float | timedelta = 3600.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if most < 1:
            raise UsageError(f"MemoryIds: most: expected at least 1, got {most!r}")
        self._most = most
        self._keep_s = kept_s("MemoryIds", keep)
        self._now = now
        self._ids: OrderedDict[tuple[str, str], tuple[Seen, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do; the ids stay, should it start again."""

    async def begin(self, queue: str, key: str) -> Seen:
        state, until = self._ids.get((queue, key), (Seen.NEW, 0.0))
        if until <= self._now():
            state = Seen.NEW
        if state is not Seen.DONE:
            self._put(queue, key, Seen.BEGUN)
        return state

    async def done(self, queue: str, key: str) -> None:
        self._put(queue, key, Seen.DONE)

    async def forget(self, queue: str, key: str) -> None:
        self._ids.pop((queue, key), None)

    def _put(self, queue: str, key: str, state: Seen) -> None:
        now = self._now()
        self._ids[queue, key] = state, now + self._keep_s
        self._ids.move_to_end((queue, key))
        while self._ids and (
            len(self._ids) > self._most or next(iter(self._ids.values()))[1] <= now
        ):  # all are kept for the same time, so the first is the oldest
            self._ids.popitem(last=False)


def kept_s(whose: str, keep: float | timedelta) -> float:
    """How long ids are kept, in seconds."""
    seconds = keep.total_seconds() if isinstance(keep, timedelta) else keep
    if not 1 <= seconds <= 3_650 * DAY_S:
        raise UsageError(f"{whose}: keep: expected from a second to ten years, got {keep!r}")
    return seconds
