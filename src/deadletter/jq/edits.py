"""A jq program that changes documents, in the bounded process: an answer for each, whatever the program does.

Unlike a condition (`process`), a program that breaks a bound is never switched off: one letter on which it
hangs is that letter's matter, and says nothing of the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from deadletter.jq import worker
from deadletter.jq.worker_process import DEFAULT_LIMITS, JqLimits, JqQuestion, JqWorker


@dataclass(frozen=True, slots=True)
class Made:
    """What the program made of a document: JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class NotMade:
    """Why it made nothing, in jq's words or ours."""

    why: str


EditAnswer: TypeAlias = Made | NotMade


class JqEdits:
    """One worker, started when first needed, replaced when it ends. One batch at a time."""

    def __init__(self, limits: JqLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._worker = JqWorker(limits, "edit", _take)
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._worker.close()

    async def run(self, program: str, documents: Sequence[bytes]) -> list[EditAnswer]:
        """JqUnavailable: nobody can be asked."""
        too_large = NotMade(f"it is larger than {self._limits.body_bytes:,} bytes, too large for jq")
        answers: list[EditAnswer] = [too_large] * len(documents)
        waiting = [
            JqQuestion(place, document, program)
            for place, document in enumerate(documents)
            if len(document) <= self._limits.body_bytes
        ]
        async with self._turn:
            try:
                while waiting:
                    said = await self._worker.round(waiting)
                    for question, answer in zip(waiting, said, strict=False):
                        answers[question.place] = answer
                    if len(said) < len(waiting):
                        await self._worker.close()
                        answers[waiting[len(said)].place] = self._beyond()
                    waiting = waiting[len(said) + 1 :]
            except BaseException:  # cancelled in the middle, the worker's answers are no longer in step
                await asyncio.shield(self._worker.close())
                raise
        return answers

    def _beyond(self) -> NotMade:
        memory = self._limits.memory_bytes // (1024 * 1024)
        return NotMade(f"the program took more than {self._limits.time_ms} ms, or more than {memory:,} MB")


def _take(came: bytearray) -> list[EditAnswer]:
    said: list[EditAnswer] = []
    position, head = 0, 1 + worker.LENGTH.size
    while position + head <= len(came):
        (length,) = worker.LENGTH.unpack_from(came, position + 1)
        end = position + head + length
        if end > len(came):
            break
        text = came[position + head : end].decode("utf-8", "replace")
        said.append(Made(text) if came[position : position + 1] == worker.YES else NotMade(text))
        position = end
    del came[:position]
    return said
