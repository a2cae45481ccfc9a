"""Letters read for the store, by a second process when there are many.

The process (`reading_worker`) is begun when a batch is well filled and ended when none was for a while: a
desk that takes a letter now and then has none. Until it is ready, and whenever it is not there, letters are
read here. What is read is the same.

**It dies, hangs or answers nonsense**: it is ended, and the letters it had are read here. A new one is begun
with the next full batch; after some failures only after growing pauses (`core.guards.switch`), as there may
be letters that kill it. That is told once, not per batch.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from deadletter.core.grouping.dictionaries import Dictionaries
from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.guards.switch import Position, Switch
from deadletter.core.letter.header_values import shown
from deadletter.service.storing import reading_worker
from deadletter.service.storing.reading_worker import Answers, Questions, ReadingTask, Unread
from deadletter.service.telling.service_events import STORE_READING, Recovered, ServiceEvent, Trouble

COMMAND: Final = (sys.executable, "-P", "-m", reading_worker.__name__)
"""-P: the directory it is begun in is not where its modules are."""
IDLE_S: Final = 30.0
"""So long after the last full batch it ends."""
ANSWER_S: Final = 10.0
"""A thousand letters take it a fifth of a second."""
_START_S: Final = 30.0
_FEW: Final = 10
"""So few are read here before it would have them."""
_FULL_MIN: Final = 50
_TOGETHER_BYTES: Final = 8 * 1024 * 1024
"""Of large letters so many bytes go to it at once: they are twice in memory meanwhile."""
_LOOK_S: Final = 1.0
_IN_A_ROW: Final = 10
"""After so many that are read here others have their turn."""
_BUFFER_BYTES: Final = 1024 * 1024


class _Child:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._questions, self._answers = Questions(), Answers()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def greet(self, reading: ReadingTask) -> None:
        """Until it is ready."""
        await self._send(pickle.dumps(reading, reading_worker.PICKLE))
        await self._out.readexactly(len(reading_worker.READY))

    async def ask(
        self, batch: Sequence[Unread], now_ms: int, dictionaries: Dictionaries
    ) -> list[StoredLetter | None]:
        edition = dictionaries.edition
        await self._send(self._questions.of(batch, now_ms, dictionaries))
        (length,) = reading_worker.LENGTH.unpack(await self._out.readexactly(reading_worker.LENGTH.size))
        return self._answers.read(await self._out.readexactly(length), batch, edition)

    async def _send(self, frame: bytes) -> None:
        self._in.writelines((reading_worker.LENGTH.pack(len(frame)), frame))
        await self._in.drain()

    async def end(self) -> int:
        """Its exit code."""
        self._in.close()
        with suppress(ProcessLookupError):
            self._process.kill()
        return await self._process.wait()


class BatchReader:
    """Of one storekeeper; one batch at a time. `batch`: how many letters a full one has. `divide`: the second
    process divides their texts, for a store that takes words."""

    def __init__(
        self,
        grouping: Grouping,
        *,
        batch: int,
        emit: Callable[[ServiceEvent], None],
        divide: bool = False,
    ) -> None:
        self._reading = ReadingTask(grouping, divide)
        self._full = max(_FULL_MIN, batch // 2)
        self._emit = emit
        self._child: _Child | None = None
        self._asking = False
        self._used_at = 0.0
        self._life: asyncio.Task[None] | None = None
        """Begins the process, and ends it when it is idle."""
        self._none = Dictionaries()
        self._switch = Switch()
        self._trouble = False

    @property
    def pid(self) -> int | None:
        """Of the second process, while there is one."""
        return None if self._child is None else self._child.pid

    async def read(
        self, batch: Sequence[Unread], dictionaries: Dictionaries | None = None
    ) -> list[StoredLetter | Exception]:
        """Each of these, or why it cannot be read. The second process packs them with these dictionaries."""
        known = self._none if dictionaries is None else dictionaries
        now_ms = time.time_ns() // 1_000_000
        if len(batch) >= self._full:
            self._want()
        if self._child is None or len(batch) < _FEW:
            return await self._here(batch, now_ms)
        read: list[StoredLetter | Exception] = []
        for some in _portions(batch):
            read += await self._there(some, now_ms, known) or await self._here(some, now_ms)
        return read

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
        await self._end()

    # -- here --------------------------------------------------------------------------------------------
    async def _here(self, batch: Sequence[Unread], now_ms: int) -> list[StoredLetter | Exception]:
        read: list[StoredLetter | Exception] = []
        for place, unread in enumerate(batch):
            read.append(self._one(unread, now_ms))
            if place % _IN_A_ROW == 0:
                await asyncio.sleep(0)
        return read

    def _one(self, unread: Unread, now_ms: int) -> StoredLetter | Exception:
        letter, vhost = unread
        try:
            return stored_letter(letter, now_ms=now_ms, vhost=vhost, grouping=self._reading.grouping)
        except Exception as error:  # noqa: BLE001 -- one letter must not take its neighbours; it is named
            return error

    # -- in the second process ---------------------------------------------------------------------------
    async def _there(
        self, batch: Sequence[Unread], now_ms: int, dictionaries: Dictionaries
    ) -> list[StoredLetter | Exception] | None:
        """None: it failed, or is not there."""
        child = self._child
        if child is None:
            return None
        self._asking = True
        try:
            async with asyncio.timeout(ANSWER_S):
                answered = await child.ask(batch, now_ms, dictionaries)
        except Exception as error:  # noqa: BLE001 -- whatever it answers or does not: they are read here
            await self._failed(child, error)
            return None
        except BaseException:  # cancelled in the middle, its answers are no longer in step
            await asyncio.shield(self._end())
            raise
        finally:
            self._asking = False
        self._worked()
        return [
            self._one(unread, now_ms) if read is None else read
            for unread, read in zip(batch, answered, strict=True)
        ]

    def _want(self) -> None:
        """There are many: begin it, if it may be begun."""
        now = self._used_at = asyncio.get_running_loop().time()
        if self._life is None or self._life.done():
            if self._switch.position(now) is Position.OFF:
                return
            self._life = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        child: _Child | None = None
        try:
            child = _Child(await _started())
            async with asyncio.timeout(_START_S):
                await child.greet(self._reading)
        except Exception as error:  # noqa: BLE001 -- it cannot be begun: letters are read here
            await self._failed(child, error)
            return
        except BaseException:
            if child is not None:
                await asyncio.shield(child.end())
            raise
        self._child = child
        while self._child is child and (self._asking or loop.time() < self._used_at + IDLE_S):  # noqa: ASYNC110 -- to a time
            await asyncio.sleep(_LOOK_S)
        if self._child is child:
            await self._end()

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    # -- what is told ------------------------------------------------------------------------------------
    async def _failed(self, child: _Child | None, error: Exception) -> None:
        if self._child is child:
            self._child = None
        said = type(error).__name__ if isinstance(error, (EOFError, TimeoutError)) else f"{error!r}"
        if child is not None:
            said += f", its end was {await child.end()}"
        off = self._switch.failed(asyncio.get_running_loop().time())
        if not self._trouble:
            self._trouble = True
            why = "the second process that reads letters for the store failed, they are read in this one"
            self._emit(
                Trouble(
                    what=STORE_READING,
                    why=f"{why}, which is slower: {shown(said, 200)}",
                    seconds=self._switch.pause_s if off else None,
                )
            )

    def _worked(self) -> None:
        self._switch.worked()
        if self._trouble:
            self._trouble = False
            self._emit(Recovered(what=STORE_READING, why="a second process reads letters again"))


async def _started() -> asyncio.subprocess.Process:
    """With our environment, in which are the zone of time and the path of packages: it reads as we do."""
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_BUFFER_BYTES,
        start_new_session=True,  # Ctrl-C is for us; it ends when we do
    )


def _portions(batch: Sequence[Unread]) -> Iterator[Sequence[Unread]]:
    """All at once, unless they are large."""
    start, size = 0, 0
    for place, (letter, _) in enumerate(batch):
        size += (own := len(letter.body) + len(letter.message.properties))
        if size > _TOGETHER_BYTES and place > start:
            yield batch[start:place]
            start, size = place, own
    yield batch[start:]
