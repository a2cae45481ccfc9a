"""A line per retry and per parked letter, with the standard library's logging.

    app.listen(log_events())

`extra` carries the same as fields, for a formatter that writes JSON: `queue`, `fate`, `attempt`, `delay_ms`,
`cause`, `error`, `letter_id`.
"""

from __future__ import annotations

import logging
from typing import assert_never

from deadletter.consumer.events import (
    Event,
    Fate,
    Handled,
    Listener,
    Lost,
    Paused,
    Ready,
    Resumed,
    Stopping,
)
from deadletter.core.letter.header_values import shown
from deadletter.core.letter.letter import Letter
from deadletter.core.text.durations import duration_text
from deadletter.errors import MessageError

WHY_CHARS = 500
_LEVELS = {
    Fate.DONE: logging.DEBUG,
    Fate.SKIPPED: logging.INFO,
    Fate.RETRIED: logging.WARNING,
    Fate.PARKED: logging.ERROR,
    Fate.DISCARDED: logging.WARNING,
    Fate.STUCK: logging.ERROR,
}


def log_events(logger: logging.Logger | None = None) -> Listener:
    """A listener that writes what happens; successes at DEBUG."""
    return EventLog(logger or logging.getLogger("deadletter.consumer"))


class EventLog:
    """One line per event; in place of what a consumer logs by itself."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def __call__(self, event: Event) -> None:
        log = self._log
        match event:
            case Handled():
                if log.isEnabledFor(_LEVELS[event.fate]):
                    _handled(log, event)
            case Lost(what=what, why=why, seconds=seconds):
                if seconds:
                    log.warning("%s is away: %s; the next try is in %.1f s", what, why, seconds)
                else:
                    log.warning("%s was away: %s", what, why)
            case Paused(queue=queue, why=why, seconds=seconds):
                log.warning("%s is not consumed: %s; asked again in %.1f s", queue, why, seconds)
            case Resumed(queue=queue):
                log.info("%s is consumed again", queue)
            case Ready(queues=queues, layouts=layouts, notes=notes):
                log.info(
                    "consuming %s", ", ".join(f"{q} ({w})" for q, w in zip(queues, layouts, strict=True))
                )
                for note in notes:
                    log.info("%s", note)
            case Stopping(why=why):
                log.info("stopping: %s", why)
            case _:
                assert_never(event)


def _handled(log: logging.Logger, event: Handled) -> None:
    letter_id = _id_of(event.letter)
    waits = "" if event.delay_ms is None else f" in {duration_text(event.delay_ms)}"
    log.log(
        _LEVELS[event.fate],
        "%s %s%s (attempt %d): %s [%s]",
        event.queue,
        event.fate.value,
        waits,
        event.attempt,
        shown(event.why or event.cause or "-", WHY_CHARS),
        letter_id or "-",
        extra={
            "queue": event.queue,
            "fate": event.fate.value,
            "attempt": event.attempt,
            "delay_ms": event.delay_ms,
            "cause": event.cause,
            "error": event.error,
            "letter_id": letter_id,
            "seconds": event.seconds,
        },
    )


def _id_of(letter: Letter | None) -> str:
    try:
        return "" if letter is None else letter.id
    except MessageError:
        return "unreadable"
