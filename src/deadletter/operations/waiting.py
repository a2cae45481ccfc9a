"""Letters that wait: in delays, due, and held by a guard. Counted, let out now, or parked, by a person.

A look takes letters, reads them and gives them back, at most so many of each queue; a letter whose time comes
meanwhile goes on as it would have. Letting one out sends it home at once, past its delay and past any guard:
published to its origin, confirmed, then acked here, as every release. Parking is the one parking. So a letter
has one home throughout, and what does not match stays where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from deadletter.amqp.address import Address
from deadletter.broker.management import management
from deadletter.broker.queue_counts import counts_of
from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link, supervise
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.guards.health import OriginState
from deadletter.core.layouts.naming import ASKED, DUE, HELD
from deadletter.core.letter import header_values, names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.names import PREFIX
from deadletter.core.letter.parking import Cause
from deadletter.core.text.glob import glob
from deadletter.errors import MessageError, QueueMissing
from deadletter.move.courier import Bounds, Courier, Judging, Leave, MoveEvent, MoveTally, Verdict
from deadletter.move.verdict import Send, Wrap
from deadletter.operations.lifting import taking
from deadletter.retrying.parking import PARKED
from deadletter.retrying.release import Bound, Release

_NEED: Final = "it tells which queues of ours hold letters: give its address (DLQ_API, --api)"
_DELAY: Final = f"{PREFIX}delay."
_NAME_CHARS: Final = 255


class Waits(StrEnum):
    """What a letter waits for."""

    DELAY = "delay"
    DUE = "due"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingQueue:
    """A queue of ours in which letters wait."""

    name: str
    waits: Waits
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingKind:
    """Letters alike: of one origin, waiting for the same."""

    origin: str
    waits: Waits
    why: str
    """Which guard keeps them; empty for a delay."""
    attempt: int | None
    letters: int
    due_from_ms: int | None
    due_until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLook:
    """What waits. `looked_at` letters were read; where a queue holds more, its kinds are of the first."""

    queues: tuple[WaitingQueue, ...]
    kinds: tuple[WaitingKind, ...]
    looked_at: int

    @property
    def letters(self) -> int:
        return sum(queue.letters for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingChoice:
    """Which of them; None: whatever it is. `*` stands for any run."""

    origin: str | None = None
    waits: Waits | None = None
    letter_id: str | None = None

    def takes(self, letter: Letter) -> bool:
        """Raises MessageError for one that cannot be read."""
        found = letter.select(_READ)
        origin = header_values.name(found.get(names.ORIGIN_QUEUE)) or ""
        if self.origin is not None and not glob(self.origin, origin):
            return False
        return self.letter_id is None or letter.id == self.letter_id


_READ: Final = frozenset(
    name.encode()
    for name in (names.ORIGIN_QUEUE, names.DUE_AT, names.CAUSE, names.WHY, names.ATTEMPT, names.ID)
)


@dataclass(slots=True)
class _Seen:
    letters: int = 0
    due_ms: list[int] = field(default_factory=list)


async def waiting_queues(addresses: Sequence[Address], api: str | None) -> list[WaitingQueue]:
    """The queues of ours that hold waiting letters now. The management API knows their names; how many
    letters they hold the queues say themselves, because its figures are some seconds old."""

    async def ask(link: Link) -> list[WaitingQueue]:
        async with management(link.address, api, need=_NEED) as asked:
            all_of_them = [str(item["name"]) for item in (await asked.every("queues", "name")).items]
        connection = await link.connection("consume")
        found = []
        for name in all_of_them:
            waits = waits_in(name)
            counts = await counts_of(connection, name) if waits is not None else None
            if waits is not None and counts is not None and counts.ready:
                found.append(WaitingQueue(name=name, waits=waits, letters=counts.ready))
        return sorted(found, key=lambda queue: (queue.waits.value, queue.name))

    return await supervise(addresses, ask)


def waits_in(queue: str) -> Waits | None:
    """What letters in this queue wait for; None: it is no queue in which letters wait."""
    if queue.startswith(HELD):
        return Waits.HELD
    if queue == DUE or queue.startswith(f"{DUE}."):
        return Waits.DUE
    return Waits.DELAY if queue.startswith((_DELAY, f"{ASKED}.")) else None


async def look(
    addresses: Sequence[Address], api: str | None, choice: WaitingChoice, *, most: int
) -> WaitingLook:
    """What waits, by origin and cause; at most `most` letters of each queue are read."""
    queues = [q for q in await waiting_queues(addresses, api) if choice.waits in (None, q.waits)]
    kinds: dict[tuple[str, Waits, str, int | None], _Seen] = {}
    looked_at = 0
    for queue in queues:
        seen: list[Letter] = []

        def decide(letter: Letter, seen: list[Letter] = seen) -> Verdict:
            seen.append(letter)
            return Leave()

        with suppress(QueueMissing):  # it was empty meanwhile, and somebody tidied up
            async with taking(addresses, queue.name, api=api, lift=False) as asked:
                await Courier(
                    addresses,
                    source=queue.name,
                    decide=decide,
                    bounds=Bounds(count=most),
                    limits=asked.limits,
                ).run()
        looked_at += len(seen)
        for letter in seen:
            _add(kinds, queue.waits, letter, choice)
    return WaitingLook(
        queues=tuple(queues),
        kinds=tuple(
            WaitingKind(
                origin=origin,
                waits=waits,
                why=why,
                attempt=attempt,
                letters=seen_.letters,
                due_from_ms=min(seen_.due_ms, default=None),
                due_until_ms=max(seen_.due_ms, default=None),
            )
            for (origin, waits, why, attempt), seen_ in sorted(
                kinds.items(), key=lambda kind: -kind[1].letters
            )
        ),
        looked_at=looked_at,
    )


def _add(
    kinds: dict[tuple[str, Waits, str, int | None], _Seen],
    waits: Waits,
    letter: Letter,
    choice: WaitingChoice,
) -> None:
    try:
        if not choice.takes(letter):
            return
        found = letter.select(_READ)
    except MessageError:
        found = {}
    why = header_values.text(found.get(names.WHY), _NAME_CHARS) or "" if waits is Waits.HELD else ""
    kind = (
        header_values.name(found.get(names.ORIGIN_QUEUE)) or "",
        waits,
        why,
        header_values.count(found.get(names.ATTEMPT)),
    )
    seen = kinds.setdefault(kind, _Seen())
    seen.letters += 1
    due = header_values.count(found.get(names.DUE_AT))
    if due is not None:
        seen.due_ms.append(due)


# -- let out, or parked ----------------------------------------------------------------------------------
class _ByHand(Release):
    """A person lets letters go: no guard is asked, and what its origin refuses stays where it is."""

    def __init__(self, source: str, choice: WaitingChoice, ways: WaysBack, *, park: str | None) -> None:
        super().__init__(source, PARKED, ways)
        self._choice = choice
        self._why = park

    def decide(self, letter: Letter) -> Verdict:
        try:
            if not self._choice.takes(letter):
                return Leave()
        except MessageError:
            return Leave()  # nobody knows whose it is: the service parks it when it is due
        return super().decide(letter)

    def _believed(self, letter: Letter, bound: Bound, letter_id: str) -> Verdict:
        if self._why is not None:
            fate = self._fate(Step.PARKED, bound)
            return self._parked(letter, Cause.BY_HAND, self._why, fate)
        return super()._believed(letter, bound, letter_id)

    def _full(self, _letter: Letter, fate: LetterFate) -> Verdict:
        return Leave(fate=replace(fate, step=Step.LEFT))

    def _refused(self, _verdict: Send | Wrap, _why: str) -> Verdict:
        return Leave(fate=LetterFate(step=Step.LEFT, source=self._source))

    async def _repaired(self, _letter: Letter, _verdict: Send | Wrap) -> Verdict:
        """Where the queue for parked letters is missing nobody here declares it: that is the service's."""
        return Leave(fate=LetterFate(step=Step.LEFT, source=self._source))


@dataclass(frozen=True, slots=True, kw_only=True)
class LetOut:
    """What became of those that were meant."""

    released: int
    parked: int
    left: int
    """Meant, and still where they were: their origin refused them."""
    failed: int
    reasons: dict[str, int]
    maybe_twice: int


async def let_out(
    addresses: Sequence[Address],
    api: str | None,
    choice: WaitingChoice,
    *,
    park: str | None = None,
    on_event: Callable[[MoveEvent], None] = lambda _event: None,
    on_courier: Callable[[Courier], None] = lambda _courier: None,
) -> LetOut:
    """Send home now those that match, or with `park` (the reason) park them. One queue after the other."""
    queues = [q for q in await waiting_queues(addresses, api) if choice.waits in (None, q.waits)]
    fates = Counter[Step]()
    tallies: list[MoveTally] = []

    def heard(fate: object) -> None:
        if isinstance(fate, LetterFate):
            fates[fate.step] += 1

    for queue in queues:
        ways = WaysBack(_nothing_to_repair, _no_state)
        hand = _ByHand(queue.name, choice, ways, park=park)
        with suppress(QueueMissing):  # it was empty meanwhile, and somebody tidied up
            async with taking(addresses, queue.name, api=api, lift=False) as asked:
                courier = Courier(
                    [],
                    source=queue.name,
                    decide=Judging(
                        decide=hand.decide, again=hand.again, on_fate=heard, on_missing=ways.forget
                    ),
                    limits=asked.limits,
                    on_event=on_event,
                )
                on_courier(courier)

                async def work(link: Link, ways: WaysBack = ways, courier: Courier = courier) -> MoveTally:
                    ways.renew(link)
                    return await courier.on(link)

                tallies.append(await supervise(addresses, work))
    reasons = Counter[str]()
    for tally in tallies:
        reasons.update(tally.reasons)
    return LetOut(
        released=fates[Step.RELEASED],
        parked=fates[Step.PARKED],
        left=fates[Step.LEFT],
        failed=sum(tally.failed for tally in tallies),
        reasons=dict(reasons),
        maybe_twice=sum(tally.maybe_twice for tally in tallies),
    )


async def _nothing_to_repair() -> None:
    """What is ours is declared by the service."""


def _no_state(_origin: str, _state: OriginState) -> None:
    """No guard is asked."""
