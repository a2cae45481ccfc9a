"""One worker (`worker.py`) and the conversation with it: questions in, an answer each, as far as it gets.

It is started when it is first needed and replaced when it has ended. What an ended worker means is for those
who ask: `process` (yes or no about bodies) and `edits` (bodies changed).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from deadletter.errors import JqUnavailable
from deadletter.jq import worker

START_S: Final = 30.0
_WORKER: Final = Path(worker.__file__)
_CHUNK_BYTES: Final = 256 * 1024
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""What a Python may need to start at all. The worker forgets them before it runs anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JqLimits:
    """`time_ms`: CPU time per program and body. The clock's limit is far above it, for a stuck process."""

    time_ms: int = 250
    body_bytes: int = 1024 * 1024
    memory_bytes: int = 1024 * 1024 * 1024

    @property
    def clock_s(self) -> float:
        return 2 + self.time_ms / 100


DEFAULT_LIMITS: Final = JqLimits()
Answer = TypeVar("Answer")


class JqQuestion(NamedTuple):
    place: int
    body: bytes
    program: str


class JqWorker(Generic[Answer]):
    """`take`: cuts the answers that are whole off the beginning of what came."""

    def __init__(self, limits: JqLimits, mode: str, take: Callable[[bytearray], list[Answer]]) -> None:
        self._limits = limits
        self._mode = mode
        self._take = take
        self._process: asyncio.subprocess.Process | None = None

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def round(self, questions: Sequence[JqQuestion]) -> list[Answer]:
        """Answers from the first question on, as far as the worker gets."""
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        sending = asyncio.create_task(_send(process.stdin, questions))
        said: list[Answer] = []
        came = bytearray()
        try:
            while len(said) < len(questions):
                async with asyncio.timeout(self._limits.clock_s):
                    more = await process.stdout.read(_CHUNK_BYTES)
                if not more:
                    break
                came += more
                said += self._take(came)
        except TimeoutError:
            pass
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return said

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self.close()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *command(self._mode, self._limits),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C is for us; it ends when we do
            )
            assert process.stdout is not None
            async with asyncio.timeout(START_S):
                ready = await process.stdout.read(1)
        except (OSError, TimeoutError) as error:
            raise JqUnavailable(f"the process that runs jq programs does not start: {error!r}") from error
        if ready != worker.READY:
            raise JqUnavailable(no_jq(await process.wait()))
        return process


async def _send(pipe: asyncio.StreamWriter, questions: Sequence[JqQuestion]) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        for frame in _frames(questions):
            pipe.write(frame)
            if pipe.transport.get_write_buffer_size() > _CHUNK_BYTES:
                await pipe.drain()
        await pipe.drain()


def _frames(questions: Sequence[JqQuestion]) -> Iterator[bytes]:
    for _, same_body in groupby(questions, key=lambda question: question.place):
        together = list(same_body)
        yield frame(together[0].body, [question.program for question in together])


def frame(body: bytes, programs: Sequence[str]) -> bytes:
    parts = [worker.HEAD.pack(len(programs), len(body))]
    for program in programs:
        raw = program.encode("utf-8", "replace")
        parts += (worker.LENGTH.pack(len(raw)), raw)
    return b"".join((*parts, body))


def command(what: str, limits: JqLimits) -> list[str]:
    # -I: no PYTHONPATH, no user site, no directory of the script on the path
    return [sys.executable, "-I", str(_WORKER), what, str(limits.time_ms / 1000), str(limits.memory_bytes)]


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def no_jq(code: int | None) -> str:
    return (
        f"the process that runs jq programs ended at once with {code}; is the package jq installed for "
        f"{sys.executable}?"
    )
