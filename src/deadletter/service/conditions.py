"""Body conditions answered: the jq programs that `decide` wants to know about, many letters at a time.

`core.decide.questions` says which conditions a letter needs; their answers go back into `decide`:

* **yes** when the program puts out anything but `false` and `null` (jq's own `select`: any output counts);
* **no** when it does not, when it ends in an error, and when the body is not one JSON text in UTF-8;
* **unanswered** when it broke a bound (time, memory, size of the body) or its process died of it.

The programs run in a process of their own (`deadletter.jq`), without our environment. A letter whose program
runs for ever costs its time limit and a new process, and its neighbours keep their answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from deadletter.core.decide import NO_ANSWERS, Answer
from deadletter.core.policy import JqCondition
from deadletter.jq.process import DEFAULT_LIMITS, Asked, JqProcess, Limits

_ANSWERS: Final = {True: Answer.YES, False: Answer.NO, None: Answer.UNANSWERED}


class Question(NamedTuple):
    """What must be known about one body."""

    body: bytes
    conditions: tuple[JqCondition, ...]


class Conditions:
    """Answers conditions; starts its process with the first question, so without any it costs nothing."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._jq = JqProcess(limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._jq.close()

    @property
    def restarts(self) -> int:
        """How often a program ended the process; a number that grows is a program to look at."""
        return self._jq.restarts

    async def answer(self, questions: Sequence[Question]) -> list[Mapping[JqCondition, Answer]]:
        """One set of answers per question, in order. Raises JqUnavailable when there is nobody to ask."""
        batch = [Asked(question.body, _programs(question.conditions)) for question in questions]
        if not any(asked.programs for asked in batch):
            return [NO_ANSWERS] * len(batch)
        said = await self._jq.ask(batch)
        return [
            {condition: _ANSWERS[answers[condition.program]] for condition in question.conditions}
            for question, answers in zip(questions, said, strict=True)
        ]


def _programs(conditions: Iterable[JqCondition]) -> tuple[str, ...]:
    return tuple(condition.program for condition in conditions)
