"""The one-shot checker: letters that died too often go to a queue for permanent failures, the rest stays.

For each dead letter queue that the pattern names, every letter that was there at the start is looked at once.
`count > max` and it moves: published to the target persistent, mandatory and confirmed, then acked, its
`x-death` left on for whoever reviews it. The others stay. Nothing is created, moved or touched before all
names are known to be right.

Looking is not always free (`core.topology.look_cost`): what must not be given back is renewed by the courier,
and the report says what to do about the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel
from deadletter.broker.management import list_queues
from deadletter.broker.queue_counts import counts_of
from deadletter.broker.session import Connected, Link, supervise
from deadletter.core.deciding.deaths import CountBy, count_deaths, counted_in, read_history
from deadletter.core.letter import names
from deadletter.core.letter.chosen_headers import ChosenHeaders
from deadletter.core.letter.field_table import Value
from deadletter.core.topology import look_cost
from deadletter.core.topology.look_cost import LookCost
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.queue_patterns import Mapping as Names
from deadletter.errors import DeadletterError, QueueMissing, UsageError
from deadletter.move import courier
from deadletter.move.courier import Courier, Deaths, Ended, Leave, Letter, Send, Verdict
from deadletter.operations.lifting import renewed_words, taking

KNOWN_MAX: Final = 4096
KNOWN_BYTES: Final = 1024
"""How many counts are remembered, and of headers of which size at most: four megabytes in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWish:
    """What to check for."""

    names: Names
    max_retries: int
    count_by: CountBy
    dry_run: bool = False
    create: bool = True
    target_type: str = "quorum"
    api: str | None = None
    prefetch: int = 1000
    lift_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """What became of one dead letter queue."""

    queue: str
    target: str
    seen: int = 0
    moved: int = 0
    """Letters that were moved; with a dry run, that would have been."""
    left: int = 0
    renewed: int = 0
    parked: Mapping[str, int] = field(default_factory=dict)
    """Put into `deadletter.parked`: given back they might be destroyed, and their queue is full, say."""
    endangered: Mapping[str, int] = field(default_factory=dict)
    """Given back although that may have destroyed them: nothing took them."""
    failed: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    maybe_twice: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def complete(self) -> bool:
        return self.error is None and not (self.failed or self.parked or self.endangered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of all queues that were checked."""

    queues: tuple[QueueReport, ...]
    seconds: float
    server_version: str
    dry_run: bool


Listen = Callable[[str, courier.MoveEvent], None]


async def check(
    addresses: Sequence[Address], wish: CheckWish, *, on_event: Listen = lambda _q, _e: None
) -> Report:
    """Check every queue the pattern names. Raises before anything moves; later trouble is in the report."""
    started = time.monotonic()
    pairs, version = await supervise(addresses, lambda link: _plan(link, wish))
    reports = [
        await _check_queue(addresses, wish, queue, target, version, on_event) for queue, target in pairs
    ]
    return Report(
        queues=tuple(reports),
        seconds=time.monotonic() - started,
        server_version=version,
        dry_run=wish.dry_run,
    )


async def _plan(link: Link, wish: CheckWish) -> tuple[list[tuple[str, str]], str]:
    """Sources and their targets, all of them there: the targets that were missing are created."""
    connection = await link.connection("consume")
    if wish.names.is_fixed:
        found = [wish.names.name]
    else:
        listed = await list_queues(link.address, wish.api)
        found = sorted(
            queue.name for queue in listed if not queue.exclusive and not names.is_ours(queue.name)
        )
        if streams := [q.name for q in listed if q.type == "stream" and wish.names.names(q.name)]:
            raise UsageError(
                f"{streams[0]!r} is a stream: nothing can be taken out of a stream, so nothing can be moved"
            )
    pairs: list[tuple[str, str]] = []
    doubts: list[str] = []
    for queue in found:
        try:
            target = wish.names.target_of(queue)
        except UsageError as error:
            doubts.append(str(error))
        else:
            if target is not None:
                pairs.append((queue, target))
    if doubts:
        raise UsageError("; ".join(doubts))
    for queue, target in pairs:
        if wish.names.is_fixed and await counts_of(connection, queue) is None:
            raise QueueMissing(queue, link.address.vhost)
        if await counts_of(connection, target) is None:
            if not wish.create:
                raise QueueMissing(target, link.address.vhost)
            if not wish.dry_run:
                await _create(await connection.channel(), target, wish, connection.server_version)
    return pairs, connection.server_version


async def _create(channel: Channel, target: str, wish: CheckWish, server_version: str) -> None:
    arguments: dict[str, Value] = {X_QUEUE_TYPE: wish.target_type}
    if wish.target_type == "quorum":
        arguments |= look_cost.no_limit_arguments(server_version)
    await channel.declare_queue(target, arguments=arguments)
    await channel.close()


async def _check_queue(
    addresses: Sequence[Address], wish: CheckWish, queue: str, target: str, version: str, on_event: Listen
) -> QueueReport:
    judge = _Judge(wish, target)
    started = time.monotonic()

    def hear(event: courier.MoveEvent) -> None:
        judge.hear(event)
        on_event(queue, event)

    try:
        async with taking(addresses, queue, api=wish.api, lift=wish.lift_limit) as asked:
            tally = await Courier(
                addresses,
                source=queue,
                decide=judge.decide,
                terms=courier.Terms(prefetch=wish.prefetch),
                limits=asked.limits,
                on_event=hear,
            ).run()
    except DeadletterError as error:
        # One queue must not stop the others; what was under way there is back in it.
        return QueueReport(queue=queue, target=target, seconds=time.monotonic() - started, error=str(error))
    notes = asked.notes
    cost = asked.deliveries.cost
    if tally.renewed:
        notes.append(f"{renewed_words(tally.renewed, queue, asked.deliveries.limit)}; {asked.advice}")
    elif judge.counted and tally.left and cost is LookCost.A_DELIVERY:
        notes.append(
            f"on RabbitMQ {version} this look cost each letter that stayed {cost.value}; {asked.advice}"
        )
    if tally.ended is Ended.STALLED:
        notes.append(tally.ended.value)
    moved = judge.would_move if wish.dry_run else tally.moved
    left = tally.left - (judge.would_move if wish.dry_run else 0)
    return QueueReport(
        queue=queue,
        target=target,
        seen=tally.moved + tally.left + tally.failed,
        moved=moved,
        left=left,
        renewed=tally.renewed,
        parked=tally.sheltered,
        endangered=tally.endangered,
        failed=tally.failed,
        reasons=tally.reasons,
        maybe_twice=tally.maybe_twice,
        seconds=tally.seconds,
        notes=tuple(notes),
    )


class _Judge:
    """The decision about each letter of one queue, and what it came across."""

    def __init__(self, wish: CheckWish, target: str) -> None:
        self.would_move = 0
        self.counted = False
        """Whether the queue counts deliveries: a quorum queue."""
        self._wish = wish
        self._move = Send(routing_key=target, deaths=Deaths.KEEP)
        self._leave = Leave()
        self._wanted = frozenset(name.encode() for name in counted_in(wish.count_by))
        self._headers = ChosenHeaders(self._wanted)
        self._known: dict[bytes, int] = {}
        """Counts by the bytes they were read from."""

    def hear(self, event: courier.MoveEvent) -> None:
        """After a lost connection everything is looked at again, and counted again."""
        if isinstance(event, Connected):
            self.would_move = 0

    def decide(self, letter: Letter) -> Verdict:
        chosen = self._headers.of(letter.message.properties)
        raw, letter.build = chosen.together, chosen.build
        count = self._known.get(raw)
        if count is None:
            count = self._count(letter, raw)
        if count > self._wish.max_retries:
            if not self._wish.dry_run:
                return self._move
            self.would_move += 1
        if letter.redelivered and not self.counted:
            self.counted = letter.delivery_count > 0
        return self._leave

    def _count(self, letter: Letter, raw: bytes) -> int:
        """As these headers say. Letters that died in one second of a queue have the same ones to the byte."""
        headers = letter.select(self._wanted)
        count = count_deaths(read_history(headers), headers, self._wish.count_by)
        if len(raw) <= KNOWN_BYTES:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[raw] = count
        return count
