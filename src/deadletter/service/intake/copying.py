"""Copies of a letter that a shared fanout made: which one goes on, and when the others need not be kept.

The letter goes home from one queue, and what goes home carries a mark: as this attempt, from that queue
(`names.HOME`). A copy without it is parked, once: it may have died before the fanout was what it is now, and
nobody knows what became of the other. A copy with it is dropped, if all of this holds:

* the mark is of the very attempt it died as, and names the queue that is its home now: whoever sent it home
  took it from there, and takes it from there again;
* by the exchange and the key it came by, the broker gave it to that queue as well. A publisher can write any
  header, mark and deaths included, but not these two; and whoever publishes to that exchange has its message
  copied into the home queue by the broker;
* that queue keeps what it gets: it has no limit and no time to live.

Whatever is missing: it is parked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from deadletter.core.deciding.decision import Decision, Park, Retry
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.deciding.origin import Returned
from deadletter.core.letter import header_values, names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.fanout import Fanouts
from deadletter.move.verdict import Drop, Send

FANOUT_RULE: Final = "shared-dlx-fanout"
_AT_ITS_END: Final = frozenset({Cause.RETRIES_EXHAUSTED, Cause.NO_RETRIES, Cause.DEADLINE_PASSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A letter of which another queue is the home."""

    origin: str
    home: str
    marked: bool
    """It says that it went home from there."""

    @property
    def why(self) -> str:
        return f"{finding(self.origin, self.home)}; this is such a copy"


def finding(origin: str, home: str, *, watched: bool = True) -> str:
    """What is wrong with the broker's shape, and what is done about it."""
    whose = "" if watched else " (which is not watched here)"
    return (
        f"a fanout gives each letter that dies in {origin!r} to several dead-letter queues; one copy goes "
        f"back, from {home!r}{whose}, another is parked once, and what comes later is dropped (dlq doctor: "
        f"{FANOUT_RULE})"
    )


def home_of(view: LetterView, fanouts: Fanouts) -> str | None:
    """The dead-letter queue this letter goes on from, where several got it."""
    if view.origin is None:
        return None
    origin = view.origin.queue
    death = next((death for death in view.history.recent if death.queue == origin), None)
    return fanouts.home(origin, death.routing_keys) if death is not None else None


def copy_of(view: LetterView, home: str) -> Copy:
    attempt = header_values.count(view.headers.get(names.ATTEMPT)) or 0
    assert view.origin is not None
    wanted = mark(attempt, home) if attempt and isinstance(view.provenance, Returned) else None
    marked = wanted is not None and view.headers.get(names.HOME) == wanted
    return Copy(origin=view.origin.queue, home=home, marked=marked)


def mark(attempt: int, home: str) -> str:
    return f"{attempt} {home}"


def marked(send: Send, retry: Retry, home: str | None) -> Send:
    """The way home of a letter that several queues will get when it dies again."""
    if home is None:
        return send
    return replace(send, headers={**send.headers, names.HOME: mark(retry.attempt, home)})


def parked_instead(decision: Decision, copy: Copy) -> Park | None:
    """What becomes of a copy; None: what was decided, it is not about going back or about its end."""
    match decision:
        case Retry():
            attempt = decision.attempt - 1
        case Park(cause=cause) if cause in _AT_ITS_END:
            attempt = decision.attempt
        case _:
            return None
    return Park(
        attempt=attempt,
        cause=Cause.COPY,
        policy=decision.policy,
        why=copy.why,
    )


def dropped(letter: Letter, copy: Copy, fanouts: Fanouts, fate: LetterFate | None) -> Drop | None:
    """The verdict on a copy that need not be kept."""
    if fate is None or not copy.marked:
        return None
    try:
        exchange, key = letter.came_by.exchange.decode(), letter.came_by.routing_key.decode()
    except UnicodeDecodeError:
        return None
    return Drop(fate=fate) if fanouts.surely(exchange, key, home=copy.home, here=letter.source) else None
