"""Body conditions answered: the jq programs that `decide` wants to know about, many letters at a time.

`core.deciding.decide.questions` says which conditions a letter needs; their answers go back into `decide`:

* **yes** when the program puts out anything but `false` and `null` (jq's own `select`: any output counts);
* **no** when it does not, when it ends in an error, and when the body is not one JSON text in UTF-8;
* **unanswered** when it broke a bound (time, memory, size of the body) or its process died of it; and, for a
  while, without being asked, when it did so often.

The programs run in a process of their own (`deadletter.jq`), without our environment. A letter whose program
runs for ever costs its time limit and a new process, and its neighbours keep their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from deadletter.core.deciding.decide import NO_ANSWERS, Answer
from deadletter.core.deciding.policy import JqCondition
from deadletter.jq.process import Asked, JqProcess, Switched
from deadletter.jq.worker_process import DEFAULT_LIMITS, JqLimits
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

_ANSWERS: Final = {True: Answer.YES, False: Answer.NO, None: Answer.UNANSWERED}


_NAME_CHARS: Final = 100
"""So much of a program names it."""


def _say_nothing(_event: ServiceEvent) -> None:
    return


class Question(NamedTuple):
    """What must be known about one body."""

    body: bytes
    conditions: tuple[JqCondition, ...]


class Conditions:
    """Answers conditions; starts its process with the first question, so without any it costs nothing."""

    def __init__(
        self, limits: JqLimits = DEFAULT_LIMITS, emit: Callable[[ServiceEvent], None] = _say_nothing
    ) -> None:
        self._emit = emit
        self._jq = JqProcess(limits, self._on_switch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._jq.close()

    @property
    def restarts(self) -> int:
        """How often a program ended the process; a number that grows is a program to look at."""
        return self._jq.restarts

    def _on_switch(self, switched: Switched) -> None:
        what = f"condition:{switched.program[:_NAME_CHARS]}"
        if switched.off_s is None:
            self._emit(Recovered(what=what, why="the jq program keeps within its limits again"))
        else:
            why = (
                f"this jq program broke its limits {switched.failures} times and is switched off for "
                f"{switched.off_s:.0f} s, then tried once; letters that ask for it are parked meanwhile "
                "(condition-unanswered)"
            )
            self._emit(Trouble(what=what, why=why, seconds=switched.off_s))

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
