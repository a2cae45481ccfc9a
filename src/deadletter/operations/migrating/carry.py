"""Carrying everything from one queue to another, so that an interruption leaves no letter in both.

The courier confirms in the new queue before it acks in the old one, so whoever kills it leaves some letters
in both. Whoever carries on looks at what has arrived, before the first letter moves (`likeness`):

- A letter that is *redelivered* and whose like has arrived by an earlier move is the copy the kill left.
- Where both queues were bound at once (`doubled`: somebody bound the old one again) a letter whose like came
  to the target by itself is the other copy of it; and of two alike in the source one that was moved there
  and one that came there by itself are one letter.

Neither is certain: two letters can be equal in every byte. So a copy is not dropped but *set aside* in a
queue of its own, each as often as its like has arrived and not once more. A person who knows that they were
two moves it back; nothing was lost and nothing was delivered twice.

When the connection is lost in the middle, the same question comes up, and the same look answers it. Where
nobody was interrupted there is nothing to look for, and nothing is looked at: a look takes every letter of
the target and gives it back.

Letters go through a fanout exchange that leads to the target alone, so that each keeps its routing key: a
consumer that tells its letters apart by the key still can.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from deadletter.amqp.address import Address
from deadletter.broker.queue_counts import QueueCounts, counts_of_existing
from deadletter.broker.session import RETRYABLE, Link, Persistence, supervise
from deadletter.core.letter import names
from deadletter.core.letter.same_letter import likeness
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.vhost import Queue
from deadletter.errors import MoveFailed
from deadletter.move import courier
from deadletter.move.courier import Courier, Deaths, Leave, Letter, Send, Terms, Verdict

TRIES: Final = 10
"""So often a lost connection is tried again, each time with a fresh look; the pauses add up to minutes."""
PASSES: Final = 20
"""Each takes what is there at its start. A source that is not empty once after so many is being filled."""
_PAUSE_MAX_S: Final = 20.0
_ONCE: Final = Persistence(first_s=60.0, again_s=0.0)
"""Do not go on by yourself after a loss: first look at what has arrived."""
_MARKS: Final = frozenset({names.SOURCE.encode(), names.MOVE.encode()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    moved: int = 0
    set_aside: int = 0
    maybe_twice: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Carried) -> Carried:
        return Carried(
            moved=self.moved + other.moved,
            set_aside=self.set_aside + other.set_aside,
            maybe_twice=self.maybe_twice + other.maybe_twice,
            failed=Counter(self.failed) + Counter(other.failed),
        )


@dataclass(slots=True)
class Arrived:
    """Letters in the target, about a hundred bytes each: those that a move brought, and the others."""

    moved: Counter[bytes] = field(default_factory=Counter)
    direct: Counter[bytes] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.moved or self.direct)

    def takes(self, letter: Letter) -> bool:
        """Whether this letter looks like a copy of one of them; each of them has one copy at most."""
        like = likeness(letter)
        found = self.moved if letter.redelivered and self.moved[like] > 0 else self.direct
        if found[like] <= 0:
            return False
        found[like] -= 1
        return True


async def carry(
    addresses: Sequence[Address],
    *,
    source: str,
    target: str,
    by: str,
    copies: Queue,
    resumed: bool,
    doubled: bool,
    terms: Terms,
    on_event: Callable[[courier.MoveEvent], None],
) -> Carried:
    """Until the source was empty once, or many passes were made, through the fanout exchange `by`.

    `resumed`: an earlier run may have left letters in both. Raises MoveFailed, or a connection's error after
    many tries.
    """
    carried = Carried()
    tries, looked = 0, not (resumed or doubled)
    arrived, blind = Arrived(), False
    pairs = Pairs(target) if doubled else None
    for _ in range(PASSES):
        try:
            if await depth_of(addresses, source) == 0:
                return carried
            if not looked:
                arrived, blind = await _look(addresses, source, target, doubled=doubled)
                if arrived or pairs is not None:
                    await supervise(addresses, lambda link: _declare(link, copies))
                looked = True
            judge = _Judge(by, copies.name, arrived, blind=blind, pairs=pairs)
            tally = await Courier(
                addresses,
                source=source,
                decide=judge.decide,
                terms=terms,
                persistence=_ONCE,
                on_event=on_event,
            ).run()
        except RETRYABLE:
            tries, looked = tries + 1, False
            if tries > TRIES:
                raise
            await asyncio.sleep(min(2.0**tries / 4, _PAUSE_MAX_S))
            continue
        carried += Carried(
            moved=max(0, tally.moved - judge.set_aside),
            set_aside=judge.set_aside,
            maybe_twice=tally.maybe_twice + judge.maybe_twice,
            failed=tally.reasons,
        )
        if tally.failed or (tally.moved == 0 and await depth_of(addresses, source)):
            if not tally.failed:
                raise MoveFailed(f"no letter of {source} can be taken: {tally.ended.value}")
            return carried
    return carried


class Pairs:
    """Letters of a source that was bound while they were moved there from `moved_from`: each came twice."""

    def __init__(self, moved_from: str) -> None:
        self._moved_from = moved_from
        self._single: tuple[Counter[bytes], Counter[bytes]] = (Counter(), Counter())
        """Without their other copy so far: those that came by themselves, those that were moved."""

    def completes(self, letter: Letter) -> bool:
        """Whether this letter is the second of a pair."""
        like = likeness(letter)
        moved = _moved_from(letter, self._moved_from)
        if self._single[not moved][like] > 0:
            self._single[not moved][like] -= 1
            return True
        self._single[moved][like] += 1
        return False


class _Judge:
    def __init__(self, by: str, copies: str, arrived: Arrived, *, blind: bool, pairs: Pairs | None) -> None:
        self.set_aside = 0
        self.maybe_twice = 0
        self._arrived = arrived
        self._blind = blind
        self._pairs = pairs
        self._go = Send(exchange=by, routing_key="", deaths=Deaths.KEEP)
        self._aside = Send(routing_key=copies, deaths=Deaths.KEEP)

    def decide(self, letter: Letter) -> Verdict:
        if self._arrived and self._arrived.takes(letter):
            self.set_aside += 1
            return self._aside
        if self._pairs is not None and self._pairs.completes(letter):
            self.set_aside += 1
            return self._aside
        if self._blind and letter.redelivered:
            self.maybe_twice += 1
        if self._go.routing_key != letter.routing_key:
            self._go = replace(self._go, routing_key=letter.routing_key)
        return self._go


async def _look(
    addresses: Sequence[Address], source: str, target: str, *, doubled: bool
) -> tuple[Arrived, bool]:
    """What has arrived in the target already; and whether we could not look, because others take from it."""
    arrived = Arrived()

    def note(letter: Letter) -> Verdict:
        by_move = _moved_from(letter, source)
        if by_move or doubled:
            (arrived.moved if by_move else arrived.direct)[likeness(letter)] += 1
        return Leave()

    depth, consumers = await supervise(addresses, lambda link: _counts(link, target))
    if consumers:
        return arrived, True
    if depth:
        await Courier(addresses, source=target, decide=note, persistence=_ONCE).run()
    return arrived, False


def _moved_from(letter: Letter, queue: str) -> bool:
    marks = letter.select(_MARKS)
    return marks.get(names.SOURCE) == queue and names.MOVE in marks


async def depth_of(addresses: Sequence[Address], queue: str) -> int:
    return (await supervise(addresses, lambda link: _counts(link, queue))).ready


async def _counts(link: Link, queue: str) -> QueueCounts:
    return await counts_of_existing(await link.connection("consume"), queue)


async def _declare(link: Link, queue: Queue) -> None:
    async with await link.channel("consume") as channel:
        await channel.declare_queue(queue.name, arguments=declared_arguments(queue))
