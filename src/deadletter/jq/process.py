"""Asking the jq process: many bodies per round trip, an answer for each, whatever the programs do.

The worker (`worker.py`) ends when a program breaks a bound. Then the question it was at has no answer, a new
worker takes the rest, and nobody else's question suffers. As a new worker takes time, a program that does so
often is switched off for a while: its questions have no answer, at once. A worker that cannot even begin is
another matter: no question is to blame, and `JqUnavailable` says so instead of an answer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from deadletter.core.guards.switch import Position, Switch
from deadletter.errors import JqUnavailable
from deadletter.jq import worker, worker_process
from deadletter.jq.worker_process import (
    DEFAULT_LIMITS,
    START_S,
    JqLimits,
    JqQuestion,
    JqWorker,
    environment,
    frame,
    no_jq,
)


class Asked(NamedTuple):
    """Several programs about one body."""

    body: bytes
    programs: tuple[str, ...]


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
        self._worker = JqWorker(limits, "answer", _take)
        self._turn = asyncio.Lock()
        self.restarts: int = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._worker.close()

    async def ask(self, batch: Sequence[Asked]) -> list[dict[str, bool | None]]:
        """What each program says of each body: true, false, or None where a bound was broken, or is so often
        that the program is switched off."""
        answers: list[dict[str, bool | None]] = [dict.fromkeys(asked.programs) for asked in batch]
        open_questions = [
            JqQuestion(place, asked.body, program)
            for place, asked in enumerate(batch)
            if len(asked.body) <= self._limits.body_bytes
            for program in dict.fromkeys(asked.programs)
        ]
        async with self._turn:
            try:
                while open_questions:
                    asked, later = self._admitted(open_questions)
                    said = await self._worker.round(asked) if asked else []
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
    def _admitted(self, questions: list[JqQuestion]) -> tuple[list[JqQuestion], list[JqQuestion]]:
        """Those to be asked now, and those to be asked when it is known what became of a trial."""
        if not self._switches:
            return questions, []
        now = asyncio.get_running_loop().time()
        asked: list[JqQuestion] = []
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


_ANSWERS: Final[dict[bytes, bool | None]] = {worker.YES: True, worker.NO: False, worker.BROKEN: None}


def _take(came: bytearray) -> list[bool | None]:
    said = [_ANSWERS.get(bytes((one,))) for one in came]
    came.clear()
    return said


def refusals(programs: Sequence[str], limits: JqLimits = DEFAULT_LIMITS) -> list[str | None]:
    """Why each program cannot be used, None where it can. Takes as long as starting a Python does."""
    said: list[str | None] = []
    while len(said) < len(programs):
        frames = b"".join(frame(b"", [program]) for program in programs[len(said) :])
        try:
            done = subprocess.run(  # noqa: S603 our own Python, our own file
                worker_process.command("check", limits),
                input=frames,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment(),
                cwd="/",
                timeout=START_S + len(programs) * limits.clock_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JqUnavailable(f"the process that runs jq programs does not start: {error}") from error
        if not done.stdout.startswith(worker.READY):
            raise JqUnavailable(no_jq(done.returncode))
        said += [json.loads(line) for line in done.stdout[1:].splitlines()]
        if len(said) < len(programs):
            said.append("it cannot be compiled within the limits")
    return said
