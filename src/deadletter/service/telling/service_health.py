"""Whether the service is alive, and whether it does its work: what orchestrators ask.

**Live** is: the event loop turns. Whoever is not live is restarted, so nothing outside of the process counts:
a broker that is away is not cured by a restart. **Ready** is: connected to the broker and its management API,
the watches started, letters safe in our queues whatever policies somebody set, not stopping. A store that is
down does not make it unready, because letters keep going by the last known policies; it is told as a note,
like all other trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deadletter.service.telling.log_lines import shown, without_channel
from deadletter.service.telling.service_events import (
    GROUPS_BEHIND,
    GroupingSeen,
    LifeChanged,
    Recovered,
    ServiceEvent,
    Stage,
    Trouble,
)

BEAT_S: Final = 1.0
SILENT_S: Final = 30.0
"""A loop that has not turned for so long hangs."""
_TROUBLES: Final = 1_000
NEEDED: Final = {"broker": "the broker", "management": "the management API"}
"""Troubles that make it unready, and what they are called."""
POLICY: Final = "policy:"
"""Before the name of a RabbitMQ policy that takes letters out of queues of ours; it makes unready too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """An answer: `reasons` is why not, `notes` is what does not work and does not matter for the answer."""

    ok: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class ServiceHealth:
    """Listens to the facts. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._beat_at = clock()
        self._stage: Stage | None = None
        self._started = False
        self._troubles: dict[str, str] = {}
        self._groups_behind = False

    def __call__(self, event: ServiceEvent) -> None:
        match event:
            case LifeChanged(stage=stage):
                self._stage = stage
                self._started = self._started or stage is Stage.READY
            case Trouble(what=what, why=why):
                what, why = shown(what, why)
                if what in self._troubles or _matters(what) or len(self._troubles) < _TROUBLES:
                    self._troubles[what] = why
            case GroupingSeen(behind=behind):
                self._groups_behind = behind
            case Recovered(what=what):
                self._troubles.pop(without_channel(what), None)
            case _:
                pass  # everything else is work, and work is health

    def beat(self) -> None:
        """The event loop has turned."""
        self._beat_at = self._clock()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)

    def live(self) -> Condition:
        silent_s = self._clock() - self._beat_at
        if silent_s <= SILENT_S:
            return Condition(ok=True, notes=self._notes())
        return Condition(ok=False, reasons=(f"the event loop has not turned for {silent_s:.0f} s",))

    def ready(self) -> Condition:
        reasons: list[str] = []
        if self._stage in (Stage.STOPPING, Stage.STOPPED):
            reasons.append("the service is stopping")
        elif not self._started:
            reasons.append("the watches have not started yet")
        reasons += [
            f"{name} cannot be used: {self._troubles[what]}"
            for what, name in NEEDED.items()
            if what in self._troubles
        ]
        reasons += [why for what, why in sorted(self._troubles.items()) if what.startswith(POLICY)]
        return Condition(ok=not reasons, reasons=tuple(reasons), notes=self._notes())

    def _notes(self) -> tuple[str, ...]:
        notes = [f"{what}: {why}" for what, why in sorted(self._troubles.items()) if not _matters(what)]
        return tuple(notes) if not self._groups_behind else (*notes, f"groups: {GROUPS_BEHIND}")


def _matters(what: str) -> bool:
    return what in NEEDED or what.startswith(POLICY)
