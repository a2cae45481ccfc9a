"""What became of letters, counted, and told once a second.

Ten thousand letters a second make ten thousand additions, not ten thousand events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.move.verdict import MoveFailure
from deadletter.service.telling.service_events import Confirmed, Late, Recovered, ServiceEvent, Trouble

TELL_S: Final = 1.0
LATE_MAX: Final = 20_000
"""Of one second; the rest is not kept, only the letters are counted."""
TOLD_MAX: Final = 1_000
QUIET: Final = 900
"""After so many tellings without another failure of the kind it is over: lines begin anew before that."""


class FateCounter:
    """`on_confirmed` hears of each bunch before anybody else does."""

    def __init__(
        self, emit: Callable[[ServiceEvent], None], on_confirmed: Callable[[dict[LetterFate, int]], None]
    ) -> None:
        self._emit = emit
        self._on_confirmed = on_confirmed
        self._fates: dict[LetterFate, int] = {}
        self._late: list[list[float]] = []
        self._failures: dict[str, str] = {}
        self._failing: dict[str, int] = {}
        """Queues where letters stay that should have gone, and for how many more tellings that is so."""

    def on_fate(self, fate: object) -> None:
        """A letter is where its verdict sent it."""
        if isinstance(fate, LetterFate):
            self._fates[fate] = self._fates.get(fate, 0) + 1

    def failure_in(self, source: str) -> Callable[[MoveFailure], None]:
        """A letter stays in this queue although it should have gone."""
        fate = LetterFate(step=Step.FAILED, source=source)

        def on_failure(failure: MoveFailure) -> None:
            self.on_fate(fate)
            if len(self._failures) < TOLD_MAX:
                self._failures.setdefault(f"letter:{source}", f"letter {failure.id} stays: {failure.why}")

        return on_failure

    def follow(self, late_s: list[float]) -> None:
        """Somebody writes into this list how late letters were."""
        self._late.append(late_s)

    def tell(self) -> None:
        """What happened since the last time."""
        if self._fates:
            fates, self._fates = self._fates, {}
            self._on_confirmed(fates)
            self._emit(Confirmed(fates=fates))
        late = tuple(second for one in self._late for second in one[:LATE_MAX])
        for one in self._late:
            one.clear()
        if late:
            self._emit(Late(seconds=late))
        self._tell_failures()

    def _tell_failures(self) -> None:
        for what, why in self._failures.items():
            self._emit(Trouble(what=what, why=why))
            self._failing[what] = QUIET
        self._failures.clear()
        for what in list(self._failing):
            self._failing[what] -= 1
            if not self._failing[what]:
                del self._failing[what]
                self._emit(Recovered(what=what))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            self.tell()
