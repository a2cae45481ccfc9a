"""Whoever is at the desk while their request is answered.

What is asked of the store goes through what this person sees (`seen_records`, `seen_replays`), whichever
route asks: none can forget it. Outside a request nobody is there, and nothing is seen.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from deadletter.desk.access.person import Person
from deadletter.errors import NotAllowed

PRESENT: Final[ContextVar[Person | None]] = ContextVar("present", default=None)


def person() -> Person:
    """NotAllowed: nobody is there."""
    found = PRESENT.get()
    if found is None:
        raise NotAllowed("nobody has signed in")
    return found
