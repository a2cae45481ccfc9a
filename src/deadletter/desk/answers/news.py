"""What changed, told to whoever looks at the desk: one watcher for all of them.

It hears the service's own facts, and looks at the store's revision for what other instances and commands did.
Both are gathered: at most once a second everybody who listens is told what it was about (`groups`, `letters`,
…), never what it is; who wants to know asks, with an ETag. While nobody listens nothing is looked at, and
what happened meanwhile is told to the first who comes.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, assert_never

from deadletter.errors import DeadletterError
from deadletter.service.storing.forgetting import mistake
from deadletter.service.telling import service_events as events
from deadletter.store.journal.revision import StoreMarks

STEP_S: Final = 1.0
"""News are told at most so often;"""
LOOK_S: Final = 2.0
"""and the store is looked at so often, while somebody listens."""
HEARTBEAT_S: Final = 15.0
ASKED_S: Final = 2.5
"""So often it is asked whether who listens is still let in, beside before all news."""
LIFE_S: Final = 900.0
"""A stream ends after so long; whoever listens comes again, and is asked again who they are."""
LISTENERS: Final = 100
NEWS: Final = "news"
"""The name of the trouble when it is not known what others do."""
_KEPT: Final = 500
_QUEUES: Final = 10_000


class About(StrEnum):
    """What news are about: what to ask for again."""

    AUDIT = "audit"
    FINDINGS = "findings"
    GROUPS = "groups"
    LETTERS = "letters"
    POLICIES = "policies"
    QUEUES = "queues"
    REPLAYS = "replays"
    SAMPLES = "samples"
    SERVICE = "service"
    TROUBLES = "troubles"
    WAITING = "waiting"


EVERYTHING: Final = frozenset(About)


StillIn: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether who listens is let in now."""


async def _always() -> bool:
    return True


class WatchedStore(Protocol):
    async def revision(self) -> str: ...

    async def marks(self) -> StoreMarks: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulletin:
    """`id`: for `Last-Event-ID`."""

    id: str
    about: tuple[About, ...]
    at_ms: int


@dataclass(slots=True, eq=False)
class _Listener:
    pending: set[About] = field(default_factory=set)
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class TooManyListeners(Exception):
    """There is no place left."""


class News:
    """A listener of the hub. `run` it for as long as the service runs; when it ends, every stream ends."""

    def __init__(self, store: Callable[[], Awaitable[WatchedStore]] | None = None) -> None:
        self._store = store
        self._name = secrets.token_hex(4)
        self._number = 0
        self._told: deque[tuple[int, frozenset[About]]] = deque(maxlen=_KEPT)
        self._heard: set[About] = set()
        self._listeners: set[_Listener] = set()
        self._somebody = asyncio.Event()
        self._ended = False
        self._revision = ""
        self._marks: StoreMarks | None = None
        self._depths: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def now(self) -> str:
        """The id of the last news: who has seen all there is names it as `since`."""
        return f"{self._name}-{self._number}"

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    # -- hearing -----------------------------------------------------------------------------------------
    def __call__(self, event: events.ServiceEvent) -> None:
        match event:
            case events.LettersStored():
                self._heard |= {About.LETTERS, About.GROUPS}
            case events.Confirmed():
                self._heard.add(About.WAITING)
            case events.QueueSeen(queue=queue, vhost=vhost, depth=depth, consumers=consumers):
                if self._depths.get((vhost, queue)) != (depth, consumers):
                    self._heard.add(About.QUEUES)
                    if (vhost, queue) in self._depths or len(self._depths) < _QUEUES:
                        self._depths[vhost, queue] = (depth, consumers)
            case events.QueueGone(queue=queue, vhost=vhost):
                self._depths.pop((vhost, queue), None)
                self._heard.add(About.QUEUES)
            case events.SweepEnded():
                self._heard.add(About.QUEUES)
            case events.ReplayChanged() | events.ReplayCounted():
                self._heard.add(About.REPLAYS)
            case events.GateChanged():
                self._heard |= {About.WAITING, About.SERVICE}
            case events.LeaseChanged() | events.LifeChanged():
                self._heard.add(About.SERVICE)
            case events.GrowthFound() | events.FindingNamed() | events.FindingGone():
                self._heard.add(About.FINDINGS)
            case events.Trouble() | events.Recovered():
                self._heard.add(About.TROUBLES)
            case events.PoliciesChanged():
                self._heard.add(About.POLICIES)
            case events.GroupingSeen():
                self._heard.add(About.GROUPS)
            case (
                events.Late()
                | events.Decided()
                | events.QueuesAlike()
                | events.ReplaysSeen()
                | events.BudgetSeen()
                | events.HousekeepingDone()
            ):
                pass  # numbers, which are metrics
            case _:
                assert_never(event)

    # -- watching ----------------------------------------------------------------------------------------
    async def run(self, emit: events.ServiceListener = lambda _event: None) -> None:
        """Ends only by being cancelled; a mistake of ours is told, and the service goes on."""
        looked = 0.0
        try:
            while True:
                await self._somebody.wait()
                if time.monotonic() - looked >= LOOK_S:
                    looked = time.monotonic()
                    try:
                        await self._look()
                    except Exception as error:  # noqa: BLE001 -- it is said, and pages are told the rest
                        emit(events.Trouble(what=NEWS, why=mistake(error), seconds=LOOK_S))
                self._tell()
                await asyncio.sleep(STEP_S)
        finally:
            self._ended = True
            for one in self._listeners:
                one.woken.set()

    async def _look(self) -> None:
        """At the store, where there is one: what others did."""
        if self._store is None:
            return
        try:
            store = await self._store()
            revision = await store.revision()
            if revision == self._revision:
                return
            marks = await store.marks()
        except DeadletterError:
            return  # that it is away is told by who needs it
        before, self._revision, self._marks = self._marks, revision, marks
        if before is None:
            return
        if marks.letters != before.letters:
            self._heard |= {About.LETTERS, About.GROUPS}
        if marks.audit != before.audit:
            self._heard |= {About.AUDIT, About.GROUPS, About.LETTERS}
        if marks.replays != before.replays:
            self._heard.add(About.REPLAYS)
        if marks.samples != before.samples:
            self._heard.add(About.SAMPLES)

    def _tell(self) -> None:
        if not self._heard:
            return
        about = frozenset(self._heard)
        self._heard.clear()
        self._number += 1
        self._told.append((self._number, about))
        for one in self._listeners:
            one.pending |= about
            one.woken.set()

    # -- listening ---------------------------------------------------------------------------------------
    async def listen(self, since: str = "", is_still_in: StillIn = _always) -> AsyncIterator[Bulletin | None]:
        """News from now on, or since those of this id; None now and then, as a sign of life.

        They end when who listens is let in no longer. TooManyListeners before the first."""
        with self._place(since) as mine:
            until = time.monotonic() + LIFE_S
            alive_at = time.monotonic()
            while not self._ended and time.monotonic() < until and await is_still_in():
                if mine.pending:
                    about = tuple(sorted(mine.pending))
                    mine.pending.clear()
                    mine.woken.clear()
                    yield Bulletin(id=self.now, about=about, at_ms=int(time.time() * 1000))
                    continue
                try:
                    async with asyncio.timeout(ASKED_S):
                        await mine.woken.wait()
                except TimeoutError:
                    if time.monotonic() - alive_at >= HEARTBEAT_S:
                        alive_at = time.monotonic()
                        yield None
                else:
                    mine.woken.clear()

    @contextmanager
    def _place(self, since: str) -> Iterator[_Listener]:
        if len(self._listeners) >= LISTENERS:
            raise TooManyListeners
        mine = _Listener(pending=set(self._missed(since)))
        self._listeners.add(mine)
        self._somebody.set()
        try:
            yield mine
        finally:
            self._listeners.discard(mine)
            if not self._listeners:
                self._somebody.clear()

    def _missed(self, since: str) -> frozenset[About]:
        """What was told after these news; everything, where nobody knows."""
        if not since:
            return frozenset()
        name, _, number = since.partition("-")
        if name != self._name or not number.isdecimal() or int(number) > self._number:
            return EVERYTHING
        first = self._told[0][0] if self._told else self._number + 1
        if int(number) < first - 1:
            return EVERYTHING
        return frozenset(one for told, about in self._told if told > int(number) for one in about)
