"""Each message once: asks the ids before a handler runs, and marks them after it.

Two copies of a message that are here at the same time run one after the other: the second waits for the
first and then finds it done. Two copies in two processes may both run, unless their handler writes in the
ids' own transaction: then the second waits in the database.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from deadletter.consumer.idempotency import Ids, OutboxIds, Seen, TransactedIds, Transaction
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import Discard
from deadletter.consumer.publishing.mailing import AppMail, kept_until_commit
from deadletter.consumer.publishing.publications import Publication
from deadletter.errors import StoreError, UsageError

MessageKey: TypeAlias = Callable[[Message], str | None]
RunOnce: TypeAlias = Callable[[Message, Transaction | None], Awaitable[None]]
KEY_CHARS: Final = 255
"""A longer key is kept as its digest."""
_log: Final = logging.getLogger("deadletter.consumer")


class _NotDone(Exception):
    """The handler said with a verb that it is not done: what it wrote in the transaction goes too."""


class Once:
    """The once-only guard of one queue."""

    def __init__(self, ids: Ids, key: MessageKey | None, *, transacted: bool) -> None:
        if transacted and not isinstance(ids, TransactedIds):
            raise UsageError(
                f"a handler with a Transaction: expected idempotent=StoreIds(…), got {type(ids).__name__}"
            )
        self.ids = ids
        self._key = key
        self._transacted = transacted
        self.mail: AppMail | None = None
        """Sends what waited for a commit."""
        self._here: dict[str, asyncio.Future[None]] = {}
        """Keys whose handlers run in this process."""
        self._said = False

    async def __call__(self, message: Message, run: RunOnce) -> bool:
        """Run the handler unless the message is done; whether it ran."""
        key = self.key_of(message)
        if key is None:
            if self._transacted:
                raise UsageError(
                    "a handler with a Transaction: expected a message_id or a key, got a message without one"
                )
            await run(message, None)
            return True
        while (other := self._here.get(key)) is not None:
            await asyncio.wait({other})
        mine = self._here[key] = asyncio.get_running_loop().create_future()
        try:
            if self._transacted:
                with message.at_stake():
                    return await self._in_transaction(key, message, run)
            return await self._with_a_gap(key, message, run)
        finally:
            del self._here[key]
            mine.set_result(None)

    def key_of(self, message: Message) -> str | None:
        """What it is known by; None for a message that cannot be told from another."""
        key = message.message_id if self._key is None else self._key(message)
        if key:
            return key if len(key) <= KEY_CHARS else hashlib.blake2b(key.encode()).hexdigest()
        if not self._said:
            self._said = True
            _log.warning("a message of %s has no id: such messages are not protected", message.queue)
        return None

    async def begin(self, message: Message, key: str) -> bool:
        """Mark it as begun; False when it is done."""
        seen = await self.ids.begin(message.queue, key)
        if seen is Seen.BEGUN:
            message.begun_before = True
            _log.warning(
                "message %s of %s was begun before and its end is not known; it runs again",
                key,
                message.queue,
            )
        return seen is not Seen.DONE

    async def end(self, message: Message, key: str, *, done: bool) -> None:
        """After the handler. What it has done is done, also where that cannot be written down."""
        try:
            await (self.ids.done if done else self.ids.forget)(message.queue, key)
        except StoreError as error:
            _log.warning(
                "message %s of %s is %s, but that could not be kept (%s); a copy of it would run again",
                key,
                message.queue,
                "done" if done else "not done",
                error,
            )

    async def _with_a_gap(self, key: str, message: Message, run: RunOnce) -> bool:
        if not await self.begin(message, key):
            return False
        try:
            await run(message, None)
        except asyncio.CancelledError:
            raise  # how it ended nobody knows: it stays begun
        except BaseException:
            # A verb stands, whatever was raised after it.
            await self.end(message, key, done=is_done(message, raised=True))
            raise
        await self.end(message, key, done=is_done(message, raised=False))
        return True

    async def _in_transaction(self, key: str, message: Message, run: RunOnce) -> bool:
        assert isinstance(self.ids, TransactedIds)
        with kept_until_commit() as pending:
            try:
                async with self.ids.transaction(message.queue, key) as transaction:
                    if transaction is not None:
                        await run(message, transaction)
                        if not is_done(message, raised=False):
                            raise _NotDone
                        pending.open = False
                        transaction.outgoing = pending.publications
            except _NotDone:
                return True
        if transaction is not None:
            await self._send(message, key, pending.publications)
        elif isinstance(self.ids, OutboxIds):
            # It is done, and its process may have died before all that it wanted to publish was published.
            await self._send(message, key, await self.ids.unsent(message.queue, key))
        return transaction is not None

    async def _send(self, message: Message, key: str, publications: Sequence[Publication]) -> None:
        """Committed. Until the broker has all of it the message is not acked, and comes again."""
        if not publications:
            return
        if self.mail is None:
            raise UsageError("expected publish in a handler of a consumer that serves, got one elsewhere")
        await self.mail.send_all(publications)
        if isinstance(self.ids, OutboxIds):
            await self.ids.sent(message.queue, key)


def is_done(message: Message, *, raised: bool) -> bool:
    """Whether the handler's end is the end of the message."""
    match message.decided:
        case False:
            return not raised
        case True | Discard():
            return True
        case _:
            return False
