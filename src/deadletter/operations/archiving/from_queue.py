"""Letters of a queue into a file: a look that leaves them there, or taken out once they are on the disk.

A look is what `dlq peek` does, over all of the queue. Taking is a move whose new home is the file: written,
on the disk, and only then acked. A crash in between leaves a letter in both; none is in neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from deadletter.amqp.address import Address
from deadletter.broker.session import Connected, Waiting
from deadletter.core.letter.letter import Letter
from deadletter.errors import ArchiveError, ConnectionLost
from deadletter.move.courier import Bounds, Courier, MoveEvent, MoveTally
from deadletter.move.verdict import Drop, Later, Leave, Verdict
from deadletter.operations.archiving.sinks import LetterSink
from deadletter.operations.lifting import Taking


class QueueExport:
    """One export of one queue. `stop` ends it early and cleanly."""

    def __init__(
        self,
        addresses: Sequence[Address],
        queue: str,
        sink: LetterSink,
        asked: Taking,
        *,
        take: bool,
        limit: int | None,
        on_event: Callable[[MoveEvent], None],
    ) -> None:
        self._sink = sink
        self._on_event = on_event
        self._links = 0
        self._take = take
        self._waiting: list[tuple[Letter, asyncio.Future[Verdict]]] = []
        self._came = asyncio.Event()
        self._trouble: Exception | None = None
        self._stopping = False
        self._writing = False
        self._secured = 0
        self._courier = Courier(
            addresses,
            source=queue,
            decide=self._taken if take else self._seen,
            bounds=Bounds(count=limit),
            limits=asked.limits,
            on_event=self._hear,
        )

    def stop(self) -> None:
        """What is being written is taken out of the queue first: else it would be in both."""
        self._stopping = True
        if not self._writing and not self._waiting:
            self._courier.stop()

    def maybe_twice(self, tally: MoveTally) -> int:
        """At most so many are in the file and, after a lost connection or a stop, in the queue as well, or
        twice in the file."""
        return max(0, self._secured - tally.dropped) + tally.maybe_twice if self._take else 0

    async def run(self) -> MoveTally:
        """Raises what kept the file from being written; what was taken by then is in it."""
        writing = asyncio.create_task(self._write()) if self._take else None
        try:
            tally = await self._courier.run()
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.wait([writing])
        if self._trouble is not None:
            raise self._trouble
        return tally

    def _hear(self, event: MoveEvent) -> None:
        if isinstance(event, Connected):
            self._links += 1
            if self._links > 1 and not self._take:
                self._fail(
                    ConnectionLost("the connection was lost in the middle of a look; nothing changed: again")
                )
        if isinstance(event, Waiting):
            # They are back in their queue and come again.
            for _, future in self._waiting:
                future.cancel()
            self._waiting = []
        self._on_event(event)

    def _fail(self, error: Exception) -> None:
        if self._trouble is None:
            self._trouble = error
            self._courier.stop()

    # -- a look ------------------------------------------------------------------------------------------
    def _seen(self, letter: Letter) -> Verdict:
        if self._trouble is None:
            try:
                self._sink.add(letter, None)
            except (ArchiveError, OSError) as error:
                self._fail(error)
        return Leave()

    # -- taking ------------------------------------------------------------------------------------------
    def _taken(self, letter: Letter) -> Verdict:
        if self._trouble is not None or self._stopping:
            return Leave()
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append((letter, future))
        self._came.set()
        return Later(future)

    async def _write(self) -> None:
        """What came while the last ones were brought to the disk goes there together."""
        while True:
            await self._came.wait()
            self._came.clear()
            some, self._waiting = self._waiting, []
            self._writing = True
            try:
                if self._trouble is None:
                    await asyncio.to_thread(self._secure, [letter for letter, _ in some])
                    self._secured += len(some)
            except ArchiveError as error:
                self._trouble = error
            verdict = Drop() if self._trouble is None else Leave()
            for _, future in some:
                if not future.done():
                    future.set_result(verdict)
            self._writing = False
            if self._trouble is not None or (self._stopping and not self._waiting):
                # After the futures have told: what is on the disk is acked before the end.
                asyncio.get_running_loop().call_soon(self._courier.stop)

    def _secure(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._sink.add(letter, None)
        self._sink.secure()
