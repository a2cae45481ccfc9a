"""`dlq serve` as a process of its own, for measurements: started, ready, and what it costs.

CPU and memory are those of the service and of every process it started, as the kernel counts them (Linux).
"""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.checkout import HERE, Checkout
from bench.errors import BenchError
from bench.management import Vhost

_READY_S: Final = 60.0
_END_S: Final = 40.0
_LOOK_S: Final = 0.02
_SAID_CHARS: Final = 2_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Serving:
    """A service that runs. Made by `serving`."""

    def __init__(self, process: Process, port: int, log: Path) -> None:
        self._process = process
        self._port = port
        self._log = log
        self.ready_after_s = 0.0
        """From the start of the process until it said that it is ready."""

    @property
    def at(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def home(self) -> Path:
        """The home of whoever started it; its key is there."""
        return self._log.parent

    async def until_ready(self) -> None:
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            self.check()
            if await asyncio.to_thread(self._answers, "/health/ready"):
                return
            await asyncio.sleep(_LOOK_S)
        raise BenchError(f"the service is not ready after {_READY_S:.0f} s: {self._said()}")

    async def scrape(self) -> None:
        """Ask for the metrics, as a monitoring system does."""
        if not await asyncio.to_thread(self._answers, "/metrics"):
            self.check()
            raise BenchError("the service does not show its metrics")

    def check(self) -> None:
        """Raises when it has ended."""
        if self._process.returncode is not None:
            raise BenchError(f"the service ended with {self._process.returncode}: {self._said()}")

    @property
    def cpu_s(self) -> float:
        """User and system time since its start, children included, those that have ended too."""
        return sum(_cpu_s(pid) for pid in family(self._process.pid))

    @property
    def rss_bytes(self) -> int:
        """Its resident memory now, children included."""
        return sum(rss_bytes(pid) for pid in family(self._process.pid))

    async def end(self) -> None:
        """As systemd ends it."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
                raise BenchError(f"the service did not end within {_END_S:.0f} s: {self._said()}") from None

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    def _answers(self, path: str) -> bool:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)) as asked:
                asked.request("GET", path)
                answer = asked.getresponse()
                answer.read()
                return answer.status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_SAID_CHARS:]


@asynccontextmanager
async def serving(
    vhost: Vhost, settings: str, *, survey: str = "5s", checkout: Checkout = HERE, store: str | None = None
) -> AsyncIterator[Serving]:
    """`dlq serve` on this vhost, ready. `settings`: its watches, policies and guards, in TOML. `store`: the
    URL of another store than a file of its own."""
    with TemporaryDirectory(prefix="bench-serve-") as directory:
        home = Path(directory)
        port = _free_port()
        config = home / "deadletter.toml"
        config.write_text(
            f'[broker]\nurl = "{vhost.url}"\napi = "{vhost.api}"\n'
            f'[store]\nurl = "{store or f"sqlite:///{home}/store.db"}"\n'
            f'[serve]\nlisten = "127.0.0.1:{port}"\nsurvey = "{survey}"\n{settings}',
            encoding="utf-8",
        )
        began = time.monotonic()
        with (home / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(checkout.dlq), "serve", "--config", str(config),
                stdout=log, stderr=log, env={**os.environ, "HOME": directory},
            )  # fmt: skip
        service = Serving(process, port, home / "log")
        try:
            await service.until_ready()
            service.ready_after_s = time.monotonic() - began
            yield service
            await service.end()
        finally:
            service.kill()
            await process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def family(pid: int) -> Iterator[int]:
    """The process and all it started that still run."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from family(int(child))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third on; empty when it is gone."""
    try:
        # the second is the name in parentheses, and may hold anything
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / _TICKS  # utime, stime, and those of children waited for


def rss_bytes(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[21]) * _PAGE_BYTES if fields else 0
