"""Letters of an archive into a queue, or through an exchange, of a broker: mandatory and confirmed.

Each goes as it was, property by property (`core.letter.restored`). Into a queue it goes by the fanout
exchange that leads to that queue alone, so that it keeps its routing key and no `CC` copies it; where we may
not declare or bind, by the queue's name through the default exchange.

The archive stays what it is, so nothing can be lost here; how letters are sent, sent again and counted is
`move.sending`. One that no queue takes, or that the broker refuses, will not be the last: it ends the import,
and the numbers of all that are not there are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deadletter.amqp.address import Address
from deadletter.amqp.channel import ignore
from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link, SessionEvent, supervise
from deadletter.core.letter.archive_format import ArchivedLetter
from deadletter.core.letter.key_bytes import as_text
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.restored import Restored, restored
from deadletter.errors import ArchiveError, NotFound, QueueMissing, SendingRefused, UsageError
from deadletter.move.sending import PackedLetter, Sending, Stayed
from deadletter.operations.archiving.left_over import left_text

_PORTION: Final = 50
_PORTION_BYTES: Final = 1024 * 1024


class Target(NamedTuple):
    """A queue by name, or an exchange and (None: each letter's own) routing key."""

    queue: str | None = None
    exchange: str = ""
    key: str | None = None


@dataclass(slots=True, kw_only=True)
class Restoration:
    """What became of the letters of an archive."""

    arrived: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    """By number: why they are not there."""
    left: str = ""
    """The numbers of all that are not there; empty: all are."""
    maybe_twice: int = 0
    reconnects: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    expiring: int = 0
    transient: int = 0
    by_name: bool = False
    """They went by the queue's name: their routing keys are that name now."""
    stopped: bool = False


class _Way(NamedTuple):
    exchange: str
    key: str | None
    may_copy: bool


class QueueImport:
    """One import. `stop` ends it early and cleanly; `done` tells what became of the letters."""

    def __init__(
        self,
        addresses: Sequence[Address],
        target: Target,
        letters: Iterator[ArchivedLetter],
        *,
        on_event: Callable[[SessionEvent], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self.done: Final = Restoration()
        self._addresses = addresses
        self._target = target
        self._letters = letters
        self._on_event = on_event
        self._on_progress = on_progress
        self._way = _Way("", None, may_copy=True)
        self._sent: dict[int, Restored] = {}
        """By number: what has to be said of it when it arrives."""
        self._top = 0
        self._ended = False
        self._sending: Sending[ArchivedLetter] = Sending(self, ahead=1)

    def stop(self) -> None:
        self._sending.stop()

    async def run(self) -> Restoration:
        """Raises when it cannot go on; `done` is right then too."""
        sending = self._sending
        try:
            await supervise(self._addresses, sending.on, name="dlq import", on_event=self._on_event)
        except SendingRefused as error:
            raise ArchiveError(f"{error}; nothing was lost, they are in the archive") from error
        finally:
            await sending.close()
            missing = {*self.done.failed, *(one.number for one in sending.unsent)}
            self.done.left = left_text(missing, None if self._ended else self._top)
            self.done.reconnects = max(0, sending.links - 1)
        return self.done

    # -- what the sending asks for -----------------------------------------------------------------------
    async def on(self, link: Link) -> None:
        self._way = await self._find_way(link)

    async def more(self) -> Sequence[ArchivedLetter] | None:
        some: list[ArchivedLetter] = []
        size = 0
        while len(some) < _PORTION and size < _PORTION_BYTES:
            one = next(self._letters, None)
            if one is None:
                self._ended = True
                break
            self._top = one.number
            size += len(one.message.body)
            some.append(one)
        return some or None

    def pack(self, one: ArchivedLetter, _number: int, user: str) -> PackedLetter:
        sent = restored(one.message, user=user, may_copy=self._way.may_copy)
        self._sent[one.number] = sent
        key = as_text(one.came_by.routing_key) if self._way.key is None else self._way.key
        return PackedLetter(self._way.exchange, key, sent.message.properties, sent.message.body)

    def number_of(self, _returned: RawMessage) -> None:
        """It goes as it was, and carries no mark of ours."""

    def arrived(self, some: Sequence[ArchivedLetter]) -> None:
        for one in some:
            sent = self._sent.pop(one.number)
            self.done.arrived += 1
            self.done.set_aside.update(sent.set_aside)
            self.done.expiring += sent.expires
            self.done.transient += sent.transient
            self._on_progress(self.done.arrived)

    def stayed(self, one: ArchivedLetter, what: Stayed, why: str) -> None:
        self._sent.pop(one.number, None)
        self.done.failed[one.number] = why
        if what is not Stayed.UNFIT:
            self._sending.stop()

    def doubtful(self, some: Sequence[ArchivedLetter]) -> None:
        self.done.maybe_twice += len(some)

    async def _find_way(self, link: Link) -> _Way:
        target = self._target
        if target.queue is None:
            try:
                async with await link.channel() as channel:
                    if target.exchange:
                        await channel.declare_exchange(target.exchange, "direct", passive=True)
            except NotFound as error:
                raise UsageError(
                    f"there is no exchange {target.exchange!r} in vhost {link.address.vhost!r}"
                ) from error
            return _Way(target.exchange, target.key, may_copy=True)
        ways = WaysBack(_nothing, ignore)
        ways.renew(link)
        home = await ways.find(target.queue)
        if home is None:
            raise QueueMissing(target.queue, link.address.vhost)
        if home.exchange:
            return _Way(home.exchange, None, may_copy=False)
        self.done.by_name = True
        return _Way("", target.queue, may_copy=True)


async def _nothing() -> None:
    return
