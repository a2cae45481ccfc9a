"""Asking the jq process: many bodies per round trip, an answer for each, whatever the programs do.

The worker (`worker.py`) ends when a program breaks a bound. Then the question it was at has no answer, a new
worker takes the rest, and nobody else's question suffers. As a new worker takes time, a program that does so
often is switched off for a while: its questions have no answer, at once. A worker that cannot even begin is
another matter: no question is to blame, and `JqUnavailable` says so instead of an answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, Self

from deadletter.core.guards.switch import Position, Switch
from deadletter.errors import JqUnavailable
from deadletter.jq import worker

_WORKER: Final = Path(worker.__file__)
_START_S: Final = 30.0
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


class Asked(NamedTuple):
    """Several programs about one body."""

    body: bytes
    programs: tuple[str, ...]


class _Question(NamedTuple):
    place: int
    body: bytes
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A program was switched off for so long, after so many failures; or on again."""

    program: str
    off_s: float | None
    failures: int


class JqProcess:
    """One worker, started when first needed, replaced when it ends. One batch at a time."""

    def __init__(
        self,
        limits: JqLimits = DEFAULT_LIMITS,
        on_switch: Callable[[Switched], None] = lambda _switched: None,
    ) -> None:
        self._limits = limits
        self._on_switch = on_switch
        self._switches: dict[str, Switch] = {}
        """Of programs that broke a bound and have not made up for it."""
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.restarts: int = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def ask(self, batch: Sequence[Asked]) -> list[dict[str, bool | None]]:
        """What each program says of each body: true, false, or None where a bound was broken, or is so often
        that the program is switched off."""
        answers: list[dict[str, bool | None]] = [dict.fromkeys(asked.programs) for asked in batch]
        open_questions = [
            _Question(place, asked.body, program)
            for place, asked in enumerate(batch)
            if len(asked.body) <= self._limits.body_bytes
            for program in dict.fromkeys(asked.programs)
        ]
        async with self._turn:
            try:
                while open_questions:
                    asked, later = self._admitted(open_questions)
                    said = await self._round(asked) if asked else []
                    for question, answer in zip(asked, said, strict=False):
                        answers[question.place][question.program] = answer
                        self._worked(question.program)
                    if len(said) < len(asked):
                        await self.close()
                        self.restarts += 1
                        self._failed(asked[len(said)].program)
                    open_questions = asked[len(said) + 1 :] + later  # the one without an answer has none
            except BaseException:  # cancelled in the middle, the worker's answers are no longer in step
                await asyncio.shield(self.close())
                raise
        return answers

    # -- programs that are switched off ------------------------------------------------------------------
    def _admitted(self, questions: list[_Question]) -> tuple[list[_Question], list[_Question]]:
        """Those to be asked now, and those to be asked when it is known what became of a trial."""
        if not self._switches:
            return questions, []
        now = asyncio.get_running_loop().time()
        asked: list[_Question] = []
        for place, question in enumerate(questions):
            switch = self._switches.get(question.program)
            position = Position.ON if switch is None else switch.position(now)
            if position is not Position.OFF:
                asked.append(question)
            if position is Position.TRIAL:
                return asked, questions[place + 1 :]
        return asked, []

    def _failed(self, program: str) -> None:
        switch = self._switches.setdefault(program, Switch())
        if switch.failed(asyncio.get_running_loop().time()):
            self._on_switch(Switched(program=program, off_s=switch.pause_s, failures=switch.failures))

    def _worked(self, program: str) -> None:
        switch = self._switches.get(program)
        if switch is None:
            return
        if switch.worked():
            self._on_switch(Switched(program=program, off_s=None, failures=switch.failures))
        elif switch.idle:
            del self._switches[program]

    # -- one worker --------------------------------------------------------------------------------------
    async def _round(self, questions: Sequence[_Question]) -> list[bool | None]:
        """Answers from the first question on, as far as the worker gets."""
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        sending = asyncio.create_task(_send(process.stdin, questions))
        said: list[bool | None] = []
        try:
            while len(said) < len(questions):
                async with asyncio.timeout(self._limits.clock_s):
                    came = await process.stdout.read(_CHUNK_BYTES)
                if not came:
                    break
                said += [_ANSWERS.get(came[n : n + 1]) for n in range(len(came))]
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
                *_command("answer", self._limits),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C is for us; it ends when we do
            )
            assert process.stdout is not None
            async with asyncio.timeout(_START_S):
                ready = await process.stdout.read(1)
        except (OSError, TimeoutError) as error:
            raise JqUnavailable(f"the process that runs jq programs does not start: {error!r}") from error
        if ready != worker.READY:
            raise JqUnavailable(_no_jq(await process.wait()))
        return process


_ANSWERS: Final[dict[bytes, bool | None]] = {worker.YES: True, worker.NO: False, worker.BROKEN: None}


async def _send(pipe: asyncio.StreamWriter, questions: Sequence[_Question]) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        for frame in _frames(questions):
            pipe.write(frame)
            if pipe.transport.get_write_buffer_size() > _CHUNK_BYTES:
                await pipe.drain()
        await pipe.drain()


def _frames(questions: Sequence[_Question]) -> Iterator[bytes]:
    for _, same_body in groupby(questions, key=lambda question: question.place):
        together = list(same_body)
        yield _frame(together[0].body, [question.program for question in together])


def _frame(body: bytes, programs: Sequence[str]) -> bytes:
    parts = [worker.HEAD.pack(len(programs), len(body))]
    for program in programs:
        raw = program.encode("utf-8", "replace")
        parts += (worker.LENGTH.pack(len(raw)), raw)
    return b"".join((*parts, body))


def _command(what: str, limits: JqLimits) -> list[str]:
    # -I: no PYTHONPATH, no user site, no directory of the script on the path
    return [sys.executable, "-I", str(_WORKER), what, str(limits.time_ms / 1000), str(limits.memory_bytes)]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def _no_jq(code: int | None) -> str:
    return (
        f"the process that runs jq programs ended at once with {code}; is the package jq installed for "
        f"{sys.executable}?"
    )


def refusals(programs: Sequence[str], limits: JqLimits = DEFAULT_LIMITS) -> list[str | None]:
    """Why each program cannot be used, None where it can. Takes as long as starting a Python does."""
    said: list[str | None] = []
    while len(said) < len(programs):
        frames = b"".join(_frame(b"", [program]) for program in programs[len(said) :])
        try:
            done = subprocess.run(  # noqa: S603 our own Python, our own file
                _command("check", limits),
                input=frames,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                timeout=_START_S + len(programs) * limits.clock_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JqUnavailable(f"the process that runs jq programs does not start: {error}") from error
        if not done.stdout.startswith(worker.READY):
            raise JqUnavailable(_no_jq(done.returncode))
        said += [json.loads(line) for line in done.stdout[1:].splitlines()]
        if len(said) < len(programs):
            said.append("it cannot be compiled within the limits")
    return said
