"""Who runs a race: a Python mover in its own process, the broker's shovel, or the whole command `dlq move`.

All start on one word. `ready` is everything that is not counted (starting a process, imports). `go` starts
the mover; from there on everything counts for everybody alike: connecting, moving, the last ack. For the
command nothing is ready before: its process is started by `go`, and counted until it is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from bench.checkout import HERE, Checkout
from bench.errors import BenchError
from bench.job import Job, Told
from bench.management import Vhost
from bench.worker import READY, STICKS

SHOVEL: Final = "shovel"
WIDE_SHOVEL: Final = "wide shovel"
"""The shovel with our window: what is left of a ratio between equal windows."""
SHOVEL_PREFETCH: Final = 1000
"""What a shovel has where nobody says otherwise."""
COMMAND: Final = "dlq move"
MOVERS: Final = (COMMAND, SHOVEL, "courier", "spliced", WIDE_SHOVEL, "pika", "aio-pika", "checker")
"""In an order in which those that are compared are neighbours."""

_READY_S: Final = 30.0
_END_S: Final = 30.0


class Racer(Protocol):
    to_exit: bool
    """Whether its own time counts, until its process is gone, and not the arrival of the last letter."""

    async def go(self, job: Job) -> None: ...

    @property
    def ended(self) -> bool:
        """Whether it will do no more, as far as that can be seen without asking anybody."""
        ...

    async def finish(self) -> Told | None:
        """Wait until it is gone; what it tells of itself. Raises when it failed."""
        ...


@asynccontextmanager
async def ready(mover: str, vhost: Vhost, checkout: Checkout = HERE) -> AsyncIterator[Racer]:
    """A mover that waits for the word, and is gone afterwards however the race ended."""
    if mover in (SHOVEL, WIDE_SHOVEL):
        shovel = Shovel(vhost, SHOVEL_PREFETCH if mover == SHOVEL else None)
        try:
            yield shovel
        finally:
            await shovel.remove()
        return
    if mover == COMMAND:
        command = Command(checkout)
        try:
            yield command
        finally:
            await command.remove()
        return
    process = await asyncio.create_subprocess_exec(
        str(checkout.python), "-m", "bench.worker", mover, stdin=PIPE, stdout=PIPE, cwd=checkout.path
    )
    try:
        client = Client(mover, process)
        await client.be_ready()
        yield client
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Client:
    """A Python mover; see `worker`."""

    to_exit = False

    def __init__(self, mover: str, process: Process) -> None:
        assert mover in STICKS
        self._mover = mover
        self._process = process

    async def be_ready(self) -> None:
        assert self._process.stdout is not None
        said = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                said = (await self._process.stdout.readline()).decode()
        if said != READY:
            raise BenchError(f"{self._mover} did not get ready; see what it said above")

    async def go(self, job: Job) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(job.to_line().encode())
        await self._process.stdin.drain()

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def finish(self) -> Told:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_END_S):
                said = (await self._process.stdout.read()).decode()
                code = await self._process.wait()
        except TimeoutError:
            raise BenchError(f"{self._mover} had moved everything and did not end") from None
        if code != 0:
            raise BenchError(f"{self._mover} failed; see what it said above")
        return Told.from_line(said)


class Command:
    """`dlq move`, from Enter to the prompt: the start of the interpreter, imports, settings, all of it."""

    to_exit = True

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._process: subprocess.Popen[bytes] | None = None
        self._told: asyncio.Future[Told] | None = None

    async def go(self, job: Job) -> None:
        arguments = ["move", job.source, job.target, "--json"]  # as it is typed: its window is its own
        started = time.perf_counter()
        # Not asyncio's: of a process that is waited for by hand the kernel tells the CPU time.
        self._process = subprocess.Popen(  # noqa: ASYNC220 -- a millisecond, and it is counted
            [str(self._checkout.dlq), *arguments], stdout=PIPE, env={**os.environ, "DLQ_URL": job.url}
        )
        self._told = asyncio.ensure_future(asyncio.to_thread(self._wait, self._process, started, job.count))

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], started: float, count: int) -> Told:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if process.returncode or (moved := json.loads(said)["moved"]) != count:
            got = f"exit code {process.returncode}" if process.returncode else f"{moved:,} moved"
            raise BenchError(
                f"expected dlq move to move {count:,} letters, got {got}; see what it said above"
            )
        return Told(seconds=seconds, cpu_s=usage.ru_utime + usage.ru_stime)

    @property
    def ended(self) -> bool:
        return self._told is not None and self._told.done()

    async def finish(self) -> Told:
        assert self._told is not None
        try:
            async with asyncio.timeout(_END_S):
                return await asyncio.shield(self._told)
        except TimeoutError:
            raise BenchError("dlq move had moved everything and did not end") from None

    async def remove(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        if self._told is not None:
            with suppress(BenchError):
                await self._told


class Shovel:
    """RabbitMQ's own mover: a dynamic shovel that acks on confirm and ends after so many letters. Without a
    prefetch of its own it takes that of the job."""

    to_exit = False
    ended = False
    _name: Final = "bench"

    def __init__(self, vhost: Vhost, prefetch: int | None = None) -> None:
        self._vhost = vhost
        self._prefetch = prefetch

    async def go(self, job: Job) -> None:
        value = {
            "src-protocol": "amqp091",
            "src-uri": job.url,
            "src-queue": job.source,
            "src-prefetch-count": self._prefetch or job.prefetch,
            "src-delete-after": job.count,
            "dest-protocol": "amqp091",
            "dest-uri": job.url,
            "dest-queue": job.target,
            "ack-mode": "on-confirm",
        }
        await asyncio.to_thread(self._vhost.put, "parameters/shovel", self._name, {"value": value})

    async def finish(self) -> None:
        deadline = time.monotonic() + _END_S
        while await asyncio.to_thread(self._vhost.has, "parameters/shovel", self._name):
            if time.monotonic() > deadline:
                raise BenchError("the shovel had moved everything and did not end")
            await asyncio.sleep(0.1)

    async def remove(self) -> None:
        await asyncio.to_thread(self._vhost.delete, "parameters/shovel", self._name)
