"""A line per retry and per message put aside, and a listener for those who count."""

from __future__ import annotations

import logging
from typing import Final

from deadletter.adapters.rulings import Parcel
from deadletter.consumer.events import Fate, Handled, Listener
from deadletter.consumer.log_events import WHY_CHARS
from deadletter.core.text.safe_text import line

_log: Final = logging.getLogger("deadletter.adapters")
_LEVELS: Final = {
    Fate.DONE: logging.DEBUG,
    Fate.SKIPPED: logging.DEBUG,
    Fate.RETRIED: logging.INFO,
    Fate.PARKED: logging.WARNING,
    Fate.DISCARDED: logging.WARNING,
    Fate.STUCK: logging.ERROR,
}


def tell(fact: Handled, listener: Listener | None) -> None:
    """A listener that raises stops nothing."""
    delay = "" if fact.delay_ms is None else f" in {fact.delay_ms / 1000:g} s"
    _log.log(
        _LEVELS[fact.fate],
        "%s: %s%s, attempt %d: %s",
        line(fact.queue),
        fact.fate.value,
        delay,
        fact.attempt,
        line(fact.why, WHY_CHARS),
    )
    if listener is None:
        return
    try:
        listener(fact)
    except Exception:  # noqa: BLE001 -- the application's; it is in the log, and no message may suffer
        _log.exception("a listener failed; messages go on")


def tell_stuck(queue: str, why: str, listener: Listener | None) -> None:
    """A message whose next place did not take it."""
    tell(Handled(queue=queue, fate=Fate.STUCK, why=why), listener)


def stays_in_hand(pause_s: float) -> str:
    """What is said of a message that neither its next place nor its own queue took."""
    return f"it stays in hand, unsettled; tried again in {pause_s:g} s"


def not_taken(parcel: Parcel, said: str) -> str:
    """Why it is stuck, when the broker answered."""
    place = parcel.send.exchange or parcel.send.routing_key
    return f"{place} did not take it ({said}); was the layout declared (prepare)?"
