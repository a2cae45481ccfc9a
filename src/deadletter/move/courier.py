"""The courier: THE safe move, from one queue to wherever a decision says.

    tally = await move(addresses, source="orders.dlq", decide=lambda letter: Send(routing_key="orders"))

Confirmed in the new home, then acked in the old one: a crash can duplicate a letter, never lose it, and
both copies carry the same `deadletter-id`. The work of one pair of connections is a `Passage`; the courier
runs passages until the bounds are reached, over lost connections and broker restarts, and adds up.

When the broker ends the publishing side because of what we published (a frame it does not accept, an
exchange that is not there), one of the letters under way is to blame and nobody knows which. The next
passage sends them one at a time; the one that fails alone is left in its source and said so. One letter
never takes its neighbours. It is not left for good: what was refused may be a right that is back in a minute
(`refused_letters`).
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from deadletter.amqp.address import Address
from deadletter.amqp.channel import ignore
from deadletter.broker import session
from deadletter.broker.queue_counts import counts_of_existing
from deadletter.broker.session import Connected, Link, Persistence, Waiting
from deadletter.core.letter.envelope import Deaths
from deadletter.core.letter.letter import Letter
from deadletter.core.topology.look_cost import Deliveries
from deadletter.errors import (
    ChannelClosed,
    ClosedByBroker,
    ConnectionForced,
    MoveFailed,
    NotFound,
)
from deadletter.move.asked_limits import LimitSource, by_default
from deadletter.move.decision_runner import Judging
from deadletter.move.passage import Passage
from deadletter.move.refused_letters import RefusedLetters
from deadletter.move.verdict import Ended, Leave, MoveFailure, Send, Terms, Verdict

__all__ = [
    "Bounds",
    "BrokerBlocked",
    "Courier",
    "Deaths",
    "Ended",
    "Judging",
    "Leave",
    "Letter",
    "MoveEvent",
    "MoveFailure",
    "MoveTally",
    "Progress",
    "Send",
    "Terms",
    "Verdict",
    "move",
]

CULPRITS_MAX: Final = 5
"""After so many letters the broker does not accept, it is not the letters."""
PROGRESS_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When a move ends. Without `depth_at_start` and `count` it goes on until it is stopped."""

    count: int | None = None
    seconds: float | None = None
    depth_at_start: bool = True
    """Look at no more letters than were there at the start: what comes back meanwhile waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    moved: int
    left: int
    failed: int
    total: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBlocked:
    """The broker accepts no messages at the moment; None: it does again."""

    reason: str | None


MoveEvent: TypeAlias = Progress | BrokerBlocked | Connected | Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTally:
    """What became of the letters. `failed` ones are still in the source, with the reason."""

    run: str
    source: str
    moved: int = 0
    left: int = 0
    failed: int = 0
    dropped: int = 0
    """Thrown away, because the decision said so."""
    renewed: int = 0
    """Of those that stayed: published to their queue anew, because giving them back might destroy them."""
    sheltered: Mapping[str, int] = field(default_factory=dict)
    """Of those: put into `deadletter.parked`, because their own queue did not take them; why."""
    endangered: Mapping[str, int] = field(default_factory=dict)
    """Of those: given back all the same, because nothing took them; the broker may have destroyed them."""
    deliveries: Deliveries | None = None
    """How the source counts deliveries, as far as it was known; None when there was nothing to take."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: Sequence[MoveFailure] = ()
    maybe_twice: int = 0
    """At most so many letters may be in both homes, after a lost connection; same id, both."""
    reconnects: int = 0
    total: int | None = None
    seconds: float = 0.0
    ended: Ended = Ended.COMPLETE


class Courier:
    """One move from one source. `run` it once; `stop` ends it early and cleanly."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        source: str,
        decide: Callable[[Letter], Verdict] | Judging,
        bounds: Bounds = Bounds(),  # noqa: B008 -- frozen
        terms: Terms = Terms(),  # noqa: B008 -- frozen
        persistence: Persistence = Persistence(),  # noqa: B008 -- frozen
        limits: LimitSource = by_default,
        on_event: Callable[[MoveEvent], None] = ignore,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.run_id: str = f"{now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        self._addresses = addresses
        self._source = source
        self._judging = decide if isinstance(decide, Judging) else Judging(decide=decide)
        self._bounds = bounds
        self._terms = terms
        self._persistence = persistence
        self._limits = limits
        self._on_event = on_event
        self._dice = dice
        self._passage: Passage | None = None
        self._stopped = False
        self._total: int | None = None
        self._acked = self._moved = self._published = self._dropped = self._renewed = 0
        self._sheltered = Counter[str]()
        self._endangered = Counter[str]()
        self._deliveries: Deliveries | None = None
        self._maybe_twice = 0
        self._links = 0
        self._refusals = RefusedLetters()
        self._one_by_one = 0
        self._missing = 0
        self._blocked: str | None = None
        self._shown_at = 0.0
        self._deadline: float | None = None

    def stop(self) -> None:
        """Take no more, wait for what is under way, give back the rest."""
        self._stopped = True
        if self._passage is not None:
            self._passage.stop()

    async def run(self) -> MoveTally:
        """Move until the bounds are reached. Raises when it cannot go on; nothing is lost then either."""
        started = self._begin()
        ended = await session.supervise(
            self._addresses,
            self._work,
            name=f"dlq {self.run_id}",
            persistence=self._persistence,
            dice=self._dice,
            on_event=self._on_event,
        )
        return self._tally(ended, started)

    async def on(self, link: Link) -> MoveTally:
        """The same on a link that somebody else keeps; a lost connection is raised."""
        started = self._begin()
        return self._tally(await self._work(link), started)

    def _begin(self) -> float:
        started = asyncio.get_running_loop().time()
        self._missing = 0
        self._refusals.begin(started)
        if self._bounds.seconds is not None:
            self._deadline = started + self._bounds.seconds
        return started

    def _until(self) -> float | None:
        """When the next passage ends. One that would go on for ever ends when a refused letter, which it has
        in hand, may be tried again."""
        now = asyncio.get_running_loop().time()
        again_at = None if self._bounds.depth_at_start else self._refusals.again_at(now)
        return min((at for at in (self._deadline, again_at) if at is not None), default=None)

    def _tally(self, ended: Ended, started: float) -> MoveTally:
        last = self._passage
        failed = Counter[str]() if last is None else last.judge.failed
        tally = MoveTally(
            run=self.run_id,
            source=self._source,
            moved=self._moved,
            left=0 if last is None else last.judge.left,
            failed=failed.total(),
            dropped=self._dropped,
            renewed=self._renewed,
            sheltered=dict(self._sheltered.most_common()),
            endangered=dict(self._endangered.most_common()),
            deliveries=self._deliveries,
            reasons=dict(failed.most_common()),
            examples=() if last is None else tuple(last.judge.examples),
            maybe_twice=self._maybe_twice,
            reconnects=max(0, self._links - 1),
            total=self._total,
            seconds=asyncio.get_running_loop().time() - started,
            ended=ended,
        )
        self._on_event(Progress(moved=tally.moved, left=tally.left, failed=tally.failed, total=self._total))
        return tally

    async def _work(self, link: Link) -> Ended:
        """Passages on one link, until one of them ends well."""
        self._links += 1
        while True:
            remaining = await self._remaining(link)
            if remaining == 0:
                return Ended.COMPLETE
            taking = await link.connection("consume")
            giving = await link.connection("publish")
            # With EXTERNAL the certificate names the user and we do not know the name.
            user = link.address.user if link.address.mechanism == "PLAIN" else ""
            self._deliveries = await self._limits(link, self._source)
            passage = Passage(
                taking=taking,
                giving=giving,
                source=self._source,
                judging=self._judging,
                run=self.run_id,
                user=user,
                budget=remaining,
                terms=self._terms,
                deliveries=self._deliveries,
                number_from=self._published,
                one_by_one=self._one_by_one,
                refused=self._refusals.now(asyncio.get_running_loop().time()),
                deadline=self._until(),
                on_tick=self._tick,
            )
            self._passage = passage
            if self._stopped:
                return Ended.STOPPED
            try:
                ended = await passage.run()
            except (ChannelClosed, ClosedByBroker) as error:
                self._account(passage)
                if isinstance(error, ConnectionForced):
                    raise
                if isinstance(error, NotFound) and passage.suspects and self._find_anew():
                    continue
                if passage.suspects:
                    self._suspect(passage.suspects, error)
                elif isinstance(error, ChannelClosed) or passage.lost_source:
                    raise
                # else a letter of somebody else's on the same connection was to blame: go on with a new one
            except BaseException:
                self._account(passage)
                raise
            else:
                self._account(passage)
                return ended

    async def _remaining(self, link: Link) -> int | None:
        """How many letters this move may still take; None for any number."""
        count = None if self._bounds.count is None else max(0, self._bounds.count - self._acked)
        if not self._bounds.depth_at_start:
            self._total = self._bounds.count
            return count
        depth = (await counts_of_existing(await link.connection("consume"), self._source)).ready
        if self._total is not None:
            # Again after a loss: letters whose ack was lost are back and must be taken once more, and a
            # queue that has just been started may not tell its true depth yet.
            depth = max(depth, self._total - self._acked)
        remaining = depth if count is None else min(depth, count)
        self._total = self._acked + remaining
        return remaining

    def _account(self, passage: Passage) -> None:
        self._acked += passage.acked
        self._moved += passage.judge.moved
        self._dropped += passage.judge.dropped
        self._published += passage.published
        rescue = passage.rescue
        self._renewed += rescue.renewed
        self._sheltered += rescue.sheltered
        self._endangered += rescue.lost_hope
        # Confirmed but not acked, or under way when the line went dead: the copy may be there, and the
        # letter is back in its source.
        settled = passage.judge.moved + passage.judge.dropped + rescue.renewed + rescue.sheltered.total()
        self._maybe_twice += (
            settled - passage.acked + len(passage.suspects) + passage.adrift + passage.under_way
        )
        if passage.lost_source:
            # The last acks may have been lost with the line.
            self._maybe_twice += min(passage.acked, self._terms.prefetch)
        self._one_by_one = max(0, self._one_by_one - passage.seen)

    def _find_anew(self) -> bool:
        """Whether another way may be found to what somebody deleted; that is not the letters' fault."""
        if self._judging.on_missing is None or self._missing >= CULPRITS_MAX:
            return False
        self._missing += 1
        self._judging.on_missing()
        return True

    def _suspect(self, suspects: Sequence[str], error: ChannelClosed | ClosedByBroker) -> None:
        """One of these letters made the broker close the publishing side."""
        if len(suspects) > 1:
            self._one_by_one = len(suspects)
            return
        why = f"the broker does not accept it: {error.code} {error.text}"
        self._refusals.add(suspects[0], why, asyncio.get_running_loop().time())
        if self._refusals.fresh > CULPRITS_MAX:
            raise MoveFailed(
                f"the broker refused {self._refusals.fresh} letters one after the other, the last with "
                f"{error.code} {error.text}; nothing was lost, all of them are still in {self._source!r}"
            ) from error

    def _tick(self) -> None:
        passage = self._passage
        assert passage is not None
        now = asyncio.get_running_loop().time()
        if now - self._shown_at >= PROGRESS_S:
            self._shown_at = now
            self._on_event(
                Progress(
                    moved=self._moved + passage.judge.moved,
                    left=passage.judge.left,
                    failed=passage.judge.failed.total(),
                    total=self._total,
                )
            )
        if passage.blocked_reason != self._blocked:
            self._blocked = passage.blocked_reason
            self._on_event(BrokerBlocked(reason=self._blocked))


async def move(
    addresses: Sequence[Address],
    *,
    source: str,
    decide: Callable[[Letter], Verdict],
    bounds: Bounds = Bounds(),  # noqa: B008 -- frozen
    terms: Terms = Terms(),  # noqa: B008 -- frozen
    persistence: Persistence = Persistence(),  # noqa: B008 -- frozen
    on_event: Callable[[MoveEvent], None] = ignore,
) -> MoveTally:
    """Take letters from `source`, send each where `decide` says, and tell what became of them."""
    courier = Courier(
        addresses,
        source=source,
        decide=decide,
        bounds=bounds,
        terms=terms,
        persistence=persistence,
        on_event=on_event,
    )
    return await courier.run()
