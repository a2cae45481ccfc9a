"""`dlq run`: starts the processes of a consumer, keeps them alive, ends them in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deadletter.cli.running.changed_files import ChangedFiles
from deadletter.cli.running.worker import FAILED, USAGE
from deadletter.cli.running.worker_process import WorkerProcess
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit
from deadletter.core.text.amounts import parse_span
from deadletter.core.text.durations import elapsed_text
from deadletter.errors import UsageError

COUNTS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
OFF: Final = "off"
USUAL: Final = "127.0.0.1:8026"
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
"""A process that lived so long begins its pauses anew."""
LOOK_S: Final = 0.5
"""Between two looks at a developer's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWish:
    """What was typed."""

    app: str
    workers: int
    reload: bool
    listen: str | None
    """None: the usual place, if nobody else has it."""
    directory: Path
    grace: str


def run(wish: RunWish) -> Exit:
    grace_s = parse_span(wish.grace)
    if not wish.directory.is_dir():
        raise UsageError(f"--dir: expected a directory, got {str(wish.directory)!r}")
    with tempfile.TemporaryDirectory(prefix="dlq-run-") as made:
        counts = Path(os.environ.get(COUNTS_VARIABLE) or made)
        supervisor = Supervisor(wish, grace_s=grace_s, counts=counts)
        return event_loop.run(supervisor.run())


@dataclass(slots=True, kw_only=True)
class _Place:
    """One of the processes that there shall be, whichever it is at the moment."""

    number: int
    worker: WorkerProcess | None = None
    asked: bool = False
    """Whether this process was asked to end: a second time would mean at once."""
    pause_s: float = PAUSE_S
    deaths: int = 0
    ended: bool = field(default=False)


class Supervisor:
    """One run."""

    def __init__(self, wish: RunWish, *, grace_s: float, counts: Path) -> None:
        self._wish = wish
        self._grace_s = grace_s
        self._counts = counts
        self._places = [_Place(number=number) for number in range(1, wish.workers + 1)]
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when files changed since it was made; then there is another one."""
        self._code = Exit.DONE
        self._said_ready = False
        self._signals = 0

    async def run(self) -> Exit:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        helpers: list[asyncio.Task[None]] = [asyncio.create_task(one) for one in self._helpers()]
        keeping = [asyncio.create_task(self._keep(place)) for place in self._places]
        ending = asyncio.create_task(self._wait_for_stop())
        try:
            everyone = asyncio.create_task(_all_of(keeping))
            await asyncio.wait([ending, everyone, *helpers], return_when=asyncio.FIRST_COMPLETED)
            self._stop.set()
            await self._end(keeping)
            await everyone
        finally:
            for one in (*helpers, ending):
                one.cancel()
            told = await asyncio.gather(*helpers, return_exceptions=True)
        for error in told:
            if isinstance(error, Exception):
                raise error
        return self._code

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    def _helpers(self) -> list[Coroutine[Any, Any, None]]:
        helpers: list[Coroutine[Any, Any, None]] = []
        if self._wish.listen != OFF:
            helpers.append(self._answer())
        if self._wish.reload:
            helpers.append(self._watch_files())
        return helpers

    # -- one process -------------------------------------------------------------------------------------
    async def _keep(self, place: _Place) -> None:
        while not self._stop.is_set():
            begun, changed = time.monotonic(), self._changed
            worker = await WorkerProcess.start(
                place.number, self._wish.app, self._wish.directory, self._environment(), self._on_change
            )
            place.worker, place.asked = worker, False
            if self._stop.is_set() or changed.is_set():  # that came while there was nobody to ask yet
                _ask_to_end(place)
            code = await worker.ended()
            place.worker = None
            self._forget_gauges(worker.pid)
            if self._stop.is_set():
                return
            if self._wish.reload and (code in (0, USAGE, FAILED) or changed.is_set()):
                await self._until_any(changed, self._stop)  # it was ended for that, or cannot run as it is
                continue
            if code == 0:
                place.ended = True  # the application stopped itself
                return
            if not worker.was_ready and place.deaths == 0 and code in (USAGE, FAILED):
                self._code = Exit.USAGE if code == USAGE else Exit.LEFT
                self._stop.set()
                return
            await self._pause(place, code, time.monotonic() - begun)

    async def _until_any(self, *events: asyncio.Event) -> None:
        waiting = [asyncio.create_task(one.wait()) for one in events]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()

    async def _pause(self, place: _Place, code: int, lived_s: float) -> None:
        place.deaths += 1
        place.pause_s = PAUSE_S if lived_s > STEADY_S else min(place.pause_s * 2, PAUSE_MAX_S)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        say(
            f"process {place.number} ended {how} after {elapsed_text(lived_s)}; "
            f"it is started again in {elapsed_text(place.pause_s)}"
        )
        try:
            async with asyncio.timeout(place.pause_s):
                await self._stop.wait()
        except TimeoutError:
            return

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, COUNTS_VARIABLE: str(self._counts)}

    def _forget_gauges(self, pid: int) -> None:
        """Counters stay, or they would run backwards."""
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid, str(self._counts))  # type: ignore[no-untyped-call]  # it has no types

    def _on_change(self) -> None:
        ready = sum(place.worker is not None and place.worker.ready for place in self._places)
        if ready == len(self._places) and not self._said_ready:
            self._said_ready = True
            say(f"{self._wish.app} takes messages in {ready} process{'es' if ready > 1 else ''}")
        elif ready < len(self._places):
            self._said_ready = False

    # -- the end -----------------------------------------------------------------------------------------
    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._stop.set()
        else:
            for worker in self._workers():
                worker.ask_to_end()  # a second signal ends a consumer at once

    async def _end(self, keeping: list[asyncio.Task[None]]) -> None:
        """In good order; who is not gone after the grace is ended by force."""
        for place in self._places:
            _ask_to_end(place)
        _, late = await asyncio.wait(keeping, timeout=self._grace_s)
        if late:
            say(f"{len(late)} not gone after {elapsed_text(self._grace_s)}; ended by force")
            for worker in self._workers():
                worker.kill()
            await asyncio.wait(late)

    def _workers(self) -> list[WorkerProcess]:
        return [place.worker for place in self._places if place.worker is not None]

    # -- beside them -------------------------------------------------------------------------------------
    async def _answer(self) -> None:
        from deadletter.cli.running.run_health import WorkersSeen, health_app
        from deadletter.desk import server

        def seen() -> WorkersSeen:
            return WorkersSeen(
                wanted=len(self._places),
                ready=sum(worker.ready for worker in self._workers()),
                restarts=sum(place.deaths for place in self._places),
            )

        app = health_app(seen, self._counts)
        try:
            await server.serve(
                app, self._wish.listen or USUAL, on_ready=lambda url: say(f"health and metrics: {url}")
            )
        except UsageError as error:
            if self._wish.listen is not None:
                raise
            say(f"answers no HTTP: {error}")
            await self._stop.wait()

    async def _watch_files(self) -> None:
        files = await asyncio.to_thread(ChangedFiles, self._wish.directory)
        while True:
            await asyncio.sleep(LOOK_S)
            if changed := await asyncio.to_thread(files.since_last):
                say(f"{changed[0]} changed; the processes begin anew")
                self._changed.set()
                self._changed = asyncio.Event()
                for place in self._places:
                    _ask_to_end(place)


def _ask_to_end(place: _Place) -> None:
    """In good order, and so only once: whoever ends it, for whatever reason, may not be the first."""
    if place.worker is not None and not place.asked:
        place.asked = True
        place.worker.ask_to_end()


async def _all_of(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


def say(words: str) -> None:
    print(f"dlq run: {words}", file=sys.stderr, flush=True)
