"""Keeps the store open and brings letters into it, in batches: committed first, acked then.

A letter that somebody brings (`take`) waits, unacked, for a batch. A batch is read, by a second process where
there are many letters (`reading_process`), and then written, in one transaction; while it is written the next
ones are read (`read_ahead`), and the one after those gathers. When it is committed the letter's verdict is
`Drop`: its home is the store now.

**The store is away** (it does not answer, is locked, read-only, full, is another file than it was): what is
in hand is tried again for some seconds, which outlasts a restart. After that it is let go, `working` is
false, the lines stop, and letters wait in their queue where everybody can see them. Giving back a letter
costs a delivery, so lines do not begin again before the store has taken a write; and the longer it takes
writes but no letters, the longer is the pause.

**Somebody else may have them now** (the lease of a store that is not shared went with the connection): a
letter may say how to be sure that it is still in our hands (`Sure`), which is asked before the commit. What
is not is let go and not stored: it is back in its queue, for whoever stores letters there now.

**One letter that cannot be read** stays in its queue and is named. **One that the store does not take** does
not take its neighbours with it: batches are halved until it is alone. If the store takes a write then, it is
the letter; it stays, too, and is named.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeAlias

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.core.letter.header_values import shown
from deadletter.core.letter.letter import Letter
from deadletter.errors import DeadletterError, StoreError, StoreRefused, StoreUnreachable, TableMissing
from deadletter.move.verdict import Drop, Leave, Verdict
from deadletter.service.storing.forgetting import Forgetting
from deadletter.service.storing.read_ahead import AHEAD, ReadAhead
from deadletter.service.storing.reading_process import BatchReader
from deadletter.service.telling.service_events import (
    STORE_LETTERS,
    LettersStored,
    Recovered,
    ServiceEvent,
    Trouble,
)
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.store_address import PostgresAddress, parse

BATCH: Final = 1_000
BATCH_POSTGRES: Final = 2_000
"""Of more letters more are of one group, whose row is written once. SQLite has one writer at a time: who
resolves a group waits for a batch."""
GATHER_S: Final = 0.02
"""How long a batch waits for more letters; while others are read and written it gathers anyway."""
HOLD_S: Final = 10.0
"""How long letters are kept in hand when the store does not take them."""
LAST_BEGIN_S: Final = 2.0
"""At the end no batch is begun later than this: lines wait for it a second more, and what is committed after
they gave it back comes again."""
QUIET_S: Final = 60.0
"""It did not take letters, it takes a write, and no letter came to be tried: after this it is well."""
PAUSE_S: Final = 0.25
PAUSE_MAX_S: Final = 10.0
PAUSE_FAILING_MAX_S: Final = 300.0
"""Where it takes a write, and then no letters: each try costs letters a delivery."""


FateOf: TypeAlias = Callable[[StoredLetter], LetterFate]
Sure: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether nobody else can have been given the letter meanwhile."""


class _NotOurs(Exception):
    """Letters that came with this are no longer in our hands."""

    def __init__(self, sure: Sure) -> None:
        super().__init__()
        self.sure = sure


class _Brought(NamedTuple):
    """A letter that waits for its batch."""

    letter: Letter
    vhost: str
    fate_of: FateOf
    verdict: asyncio.Future[Verdict]
    sure: Sure | None


class _Read(NamedTuple):
    """A letter that has only to be written."""

    letter: StoredLetter
    fate: LetterFate
    verdict: asyncio.Future[Verdict]
    sure: Sure | None


class Storekeeper:
    """Of one store. `run` it for as long as the service runs; `on_change` hears whether it works."""

    def __init__(
        self,
        url: str,
        *,
        batch: int | None = None,
        retention: Mapping[tuple[str, str], Retention],
        grouping: Grouping = GROUPED_BY_DEFAULT,
        emit: Callable[[ServiceEvent], None],
    ) -> None:
        self.address: Final = parse(url)
        on_postgres = isinstance(self.address, PostgresAddress)
        batch = batch or (BATCH_POSTGRES if on_postgres else BATCH)
        self.working: bool = False
        """Whether letters may be brought."""
        self.on_change: list[Callable[[], None]] = []
        self.replays: ReplayStore | None = None
        """The replays of the store while it is open;"""
        self.store: LetterStore | None = None
        """and the store itself."""
        self.prefetch: Final = (2 + AHEAD) * batch
        """One batch is written, the next ones are read, and the one after those gathers."""
        self._url = url
        self._batch = batch
        self._grouping = grouping
        self._emit = emit
        self._forgetting = Forgetting(retention, emit, grouping=grouping)
        self._reader = BatchReader(grouping, batch=batch, emit=emit, divide=on_postgres)
        self._brought: deque[_Brought] = deque()
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._giving_up = asyncio.Event()
        self._last_begin_at = inf
        self._prepared = False
        self._trouble = False
        self._failures = 0
        """How often it took a write, and then no letters."""

    def take(
        self, letter: Letter, vhost: str, fate_of: FateOf, sure: Sure | None = None
    ) -> asyncio.Future[Verdict]:
        """What becomes of it, once that is known: `Drop` when it is committed, `Leave` when it cannot be."""
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        if not self.working:
            verdict.set_result(Leave())
            return verdict
        self._brought.append(_Brought(letter, vhost, fate_of, verdict, sure))
        self._arrived.set()
        if len(self._brought) >= self._batch:
            self._full.set()
        return verdict

    def hurry(self) -> None:
        """The service ends: what the store does not take at once stays in its queue."""
        if not self._giving_up.is_set():
            self._giving_up.set()
            self._last_begin_at = asyncio.get_running_loop().time() + LAST_BEGIN_S

    async def run(self) -> None:
        """Ends only by being cancelled."""
        try:
            await self._run()
        finally:
            await self._reader.close()

    async def _run(self) -> None:
        tries = 0
        why = ""
        while True:
            try:
                # Once it was prepared nothing is created: an empty database where ours was is a loss.
                async with open_letters(self._url, prepare=not self._prepared) as store:
                    await store.try_writing()
                    await store.regrouping.put_in_force(self._grouping)
                    self._prepared = True
                    tries = 0
                    await self._work(store)
            except DeadletterError as error:
                why = str(error)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is said, and letters wait
                why = f"a mistake of ours, please report it: {type(error).__name__}: {shown(str(error), 300)}"
            finally:
                self._let_go()
            tries += 1
            pause_s = min(PAUSE_S * 2.0 ** min(tries - 1, 30), PAUSE_MAX_S)
            if self._failures:
                pause_s = min(PAUSE_MAX_S * 2.0 ** min(self._failures - 1, 30), PAUSE_FAILING_MAX_S)
            self._fails(why, pause_s)
            await asyncio.sleep(pause_s)

    async def _work(self, store: LetterStore) -> None:
        self.replays, self.store = ReplayStore(store), store
        self._set_working(working=True)
        well = asyncio.get_running_loop().call_later(QUIET_S if self._failures else 0.0, self._works)
        forgetting = asyncio.ensure_future(self._forgetting.run(store))
        reading = ReadAhead(self._read_next)
        try:
            while True:
                if batch := await reading.next():
                    await self._put(store, batch)
                    self._failures = 0
        except StoreError:
            self._failures += 1
            raise
        finally:
            self.replays = self.store = None
            well.cancel()
            forgetting.cancel()
            for batch in await reading.end():
                _leave(batch)
            await asyncio.wait({forgetting})

    async def _read_next(self) -> list[_Read]:
        """The next batch, read. Those that cannot be read are told so."""
        batch = await self._next_batch()
        read: list[_Read] = []
        try:
            known = None if self.store is None else self.store.dictionaries
            found = await self._reader.read([(one.letter, one.vhost) for one in batch], known)
            for one, letter in zip(batch, found, strict=True):
                if isinstance(letter, Exception):
                    if not one.verdict.done():
                        one.verdict.set_exception(letter)
                else:
                    read.append(_Read(letter, one.fate_of(letter), one.verdict, one.sure))
        except BaseException:
            _leave(batch)
            raise
        return read

    async def _next_batch(self) -> list[_Brought]:
        await self._arrived.wait()
        if len(self._brought) < self._batch:
            try:
                async with asyncio.timeout(GATHER_S):
                    await self._full.wait()
            except TimeoutError:
                pass
        batch = [self._brought.popleft() for _ in range(min(len(self._brought), self._batch))]
        if not self._brought:
            self._arrived.clear()
        if len(self._brought) < self._batch:
            self._full.clear()
        return batch

    async def _put(self, store: LetterStore, batch: Sequence[_Read]) -> None:
        """Until it is there; raises when the store does not take it for long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + HOLD_S
        pause_s = PAUSE_S
        try:
            if loop.time() > self._last_begin_at:
                return
            while True:
                try:
                    await self._put_once(store, batch)
                except StoreUnreachable as error:
                    if loop.time() + pause_s >= until or self._giving_up.is_set():
                        raise
                    self._fails(str(error), pause_s)
                else:
                    self._works()
                    return
                await self._rest(pause_s)
                pause_s *= 2
        finally:
            _leave(batch)

    async def _put_once(self, store: LetterStore, batch: Sequence[_Read]) -> None:
        started = asyncio.get_running_loop().time()
        waiting = [one for one in batch if not one.verdict.done()]
        if not waiting:
            return
        sures = {one.sure for one in waiting if one.sure is not None}
        try:
            done = await store.ingest(
                [one.letter for one in waiting], before_commit=partial(_be_sure, sures) if sures else None
            )
        except (StoreUnreachable, TableMissing):
            raise
        except _NotOurs as found:
            _leave(one for one in waiting if one.sure == found.sure)
            await self._put_once(store, waiting)
            return
        except Exception as error:  # noqa: BLE001 -- the store's fault is raised; a letter's is named
            await store.try_writing()
            if len(waiting) == 1:
                _refuse(waiting[0], error)
                return
            half = len(waiting) // 2
            await self._put_once(store, waiting[:half])
            await self._put_once(store, waiting[half:])
            return
        for one in waiting:
            _settle(one, Drop(fate=one.fate))
        seconds = asyncio.get_running_loop().time() - started
        self._emit(
            LettersStored(
                new=done.new,
                copies=done.copies,
                again=done.again,
                new_groups=done.new_groups,
                reopened=done.reopened,
                seconds=seconds,
            )
        )

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._giving_up.wait()
        except TimeoutError:
            return

    # -- what is told ------------------------------------------------------------------------------------
    def _let_go(self) -> None:
        self._set_working(working=False)
        _leave(self._brought)
        self._brought.clear()
        self._arrived.clear()
        self._full.clear()

    def _set_working(self, *, working: bool) -> None:
        if working is not self.working:
            self.working = working
            for hear in self.on_change:
                hear()

    def _fails(self, why: str, pause_s: float) -> None:
        self._trouble = True
        never = "" if self._prepared else "; [desk] ingest = false leaves them there"
        self._emit(
            Trouble(what=STORE_LETTERS, why=f"{why}; letters wait in their queues{never}", seconds=pause_s)
        )

    def _works(self) -> None:
        if self._trouble:
            self._trouble = False
            self._emit(Recovered(what=STORE_LETTERS, why="the store takes letters again"))


async def _be_sure(sures: Iterable[Sure]) -> None:
    for sure in sures:
        if not await sure():
            raise _NotOurs(sure)


def _settle(one: _Brought | _Read, verdict: Verdict) -> None:
    if not one.verdict.done():
        one.verdict.set_result(verdict)


def _leave(some: Iterable[_Brought | _Read]) -> None:
    """Those whose end is not known yet stay in their queue."""
    for one in some:
        _settle(one, Leave())


def _refuse(one: _Read, error: Exception) -> None:
    if not one.verdict.done():
        said = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        one.verdict.set_exception(StoreRefused(f"the store does not take this letter: {shown(said, 300)}"))
