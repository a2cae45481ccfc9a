"""What a consumer writes to the log without being asked: failures, what is parked, what is away and back.

To `logging.getLogger("deadletter.consumer")`, at WARNING and above, which a process without any set-up
prints. A traceback is written once a minute for each kind of failure, that is queue, error and the line that
raised it; the others of that minute are counted, and the count is a line of its own. `log_events` writes one
line per event instead.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Final, TypeAlias, assert_never

from deadletter.consumer.events import (
    Event,
    Fate,
    Handled,
    Lost,
    Paused,
    Ready,
    Resumed,
    Stopping,
    regained,
)
from deadletter.consumer.handlers.failure_details import Teller
from deadletter.core.text.durations import duration_text
from deadletter.core.text.safe_text import block, line

MINUTE_S: Final = 60.0
WHY_CHARS: Final = 500
KINDS_MAX: Final = 1_000
"""So many kinds of failure are told apart in a minute; the others are one."""

_Key: TypeAlias = tuple[str, Fate, str, CodeType | None, int]


@dataclass(slots=True)
class FailureKind:
    """What is counted until the minute is over."""

    told: str
    more: int = 0
    until: asyncio.TimerHandle | None = None


class UsualLog:
    """A listener. Belongs to the running loop while it has something to count."""

    def __init__(self, teller: Teller, log: logging.Logger | None = None) -> None:
        self._teller = teller
        self._log = log or logging.getLogger("deadletter.consumer")
        self._kinds: dict[_Key, FailureKind] = {}
        self._away: dict[str, float] = {}
        """What is known to be away, and when that was last said."""

    def __call__(self, event: Event) -> None:
        match event:
            case Handled():
                self._handled(event)
            case Lost(what=what, why=why):
                if event.seconds:
                    self._gone(what, "%s is away: %s", what, self._shown(why))
                else:
                    back = self._away.pop(what, None) is not None
                    self._log.warning("%s %s: %s", what, "is back" if back else "was away", self._shown(why))
            case Paused(queue=queue, why=why):
                self._gone(f"health of {queue}", "%s is not consumed: %s", line(queue), self._shown(why))
            case Resumed(queue=queue):
                self._back(f"health of {queue}", "%s is consumed again", line(queue))
            case Ready(queues=queues):
                told = ", ".join(map(line, queues))
                lost = [what for what in self._away if not what.startswith("health of ")]
                for what in regained(event, lost):
                    self._back(what, "%s is back; consuming %s", what, told)
            case Stopping():
                self.close()
            case _:
                assert_never(event)

    def close(self) -> None:
        """Say what is counted and not said yet; what is away is nobody's concern any more."""
        self._away.clear()
        for key in list(self._kinds):
            self._over(key)

    # -- messages ----------------------------------------------------------------------------------------
    def _handled(self, event: Handled) -> None:
        """Most failures are of a kind that was told in this minute: those cost a look and a count."""
        fate = event.fate
        if fate is Fate.DONE or fate is Fate.SKIPPED:
            return
        key: _Key = (event.queue, fate, event.error, *_place(event.raised))
        known = self._kinds.get(key)
        if known is None and len(self._kinds) >= KINDS_MAX:
            key = (event.queue, fate, "", None, 0)
            known = self._kinds.get(key)
        if known is not None and fate is not Fate.PARKED:  # of those each has a line
            known.more += 1
            return
        self._told(event, key, known)

    def _told(self, event: Handled, key: _Key, known: FailureKind | None) -> None:
        level, what = _words(event)
        if known is None:
            told = f"{line(event.queue)}: a message {what}"
            kind = self._kinds[key] = FailureKind(f"{told}: {line(event.error) or 'as before'}")
            kind.until = _after(MINUTE_S, lambda: self._over(key))
        error = event.raised if known is None else None
        plain = error is None or (self._teller.redact is None and _is_plain(error))
        self._log.log(
            level,
            "%s: a message %s, attempt %d: %s%s",
            line(event.queue),
            what,
            event.attempt,
            self._shown(event.why or event.cause or "-"),
            "" if plain or error is None else f"\n{block(self._teller.stack(error))}",
            exc_info=error if plain else None,
        )

    def _over(self, key: _Key) -> None:
        kind = self._kinds.pop(key)
        if kind.until is not None:
            kind.until.cancel()
        if kind.more:
            self._log.warning("%s; %d more of them within a minute", kind.told, kind.more)

    # -- what is away ------------------------------------------------------------------------------------
    def _gone(self, what: str, told: str, *details: str) -> None:
        """Said when it goes, and once a minute while it stays away."""
        now = _now()
        if now - self._away.get(what, now - MINUTE_S) >= MINUTE_S:
            self._log.warning(told, *details)
            self._away[what] = now

    def _back(self, what: str, told: str, *details: str) -> None:
        if self._away.pop(what, None) is not None:
            self._log.warning(told, *details)

    def _shown(self, text: str) -> str:
        return line(self._teller.safe(text), WHY_CHARS)


def _is_plain(error: BaseException) -> bool:
    """Whether logging may write it as it is: an error may quote a message, and that may hold anything."""
    told = "".join(traceback.format_exception(error))
    return block(told) == told


def _words(event: Handled) -> tuple[int, str]:
    match event.fate:
        case Fate.RETRIED:
            waits = "" if event.delay_ms is None else f" in {duration_text(event.delay_ms)}"
            return logging.WARNING, f"failed, and is tried again{waits}"
        case Fate.DISCARDED:
            return logging.WARNING, "failed, and is thrown away"
        case Fate.PARKED:
            return logging.ERROR, f"is parked ({event.cause})"
        case Fate.STUCK:
            return logging.ERROR, "is stuck"
        case Fate.DONE | Fate.SKIPPED:
            return logging.DEBUG, "is done"
        case _:
            assert_never(event.fate)


def _place(error: BaseException | None) -> tuple[CodeType | None, int]:
    """Where it was raised: its code and the place in it. The line's number would have to be counted out."""
    found = None if error is None else error.__traceback__
    if found is None:
        return None, 0
    while found.tb_next is not None:
        found = found.tb_next
    return found.tb_frame.f_code, found.tb_lasti


def _after(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)


def _now() -> float:
    return asyncio.get_running_loop().time()
