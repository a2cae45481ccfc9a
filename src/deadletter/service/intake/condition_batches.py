"""Body conditions of many letters, asked together.

A jq program runs in a process of its own, and asking it costs a round trip; letters that come in one turn of
the event loop are asked about in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from deadletter.core.deciding.decide import Answer
from deadletter.core.deciding.policy import JqCondition
from deadletter.service.intake.conditions import Conditions, Question

BATCH: Final = 100


class Asker:
    """Gathers questions, and gives each its answers."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._waiting: list[tuple[Question, asyncio.Future[Mapping[JqCondition, Answer]]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, body: bytes, conditions: Sequence[JqCondition]) -> Mapping[JqCondition, Answer]:
        """Raises JqUnavailable when there is nobody to ask."""
        answer: asyncio.Future[Mapping[JqCondition, Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((Question(body, tuple(conditions)), answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await answer

    async def _ask(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            try:
                answers = await self._conditions.answer([question for question, _ in batch])
            except Exception as error:  # noqa: BLE001 -- each of them gets it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
