"""The states of a replay, and of each letter in it.

::

    freezing → running ⇄ paused → done
                   ↘ stopped (by itself) · cancelled (by a person): what was not sent is let go

A letter of it waits, is being sent (that is written down before it is published), was sent (confirmed by the
broker), and then has an outcome. Whoever finds letters that were being sent by somebody who is gone sends
them again: they are doubtful from then on, because they may have gone twice.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class ReplayState(StrEnum):
    FREEZING = "freezing"
    """Its letters are being collected."""
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    """By itself, and it says why: too much came back. The rest is home."""
    CANCELLED = "cancelled"
    DONE = "done"


class SentState(IntEnum):
    """What became of a letter in a replay, as its row has it."""

    WAITING = 0
    SENDING = 1
    """Published, or about to be: nobody knows until the broker confirms."""
    SENT = 2
    """Confirmed by the broker; what its consumer makes of it is not known yet."""
    REFUSED = 3
    """The broker would not have it: it is in the store, open, with the reason."""
    RETURNED = 4
    """It failed again and came back to the store."""
    DONE = 5
    """The consumer said so."""
    QUIET = 6
    """Not returned in the time that was waited for. Nobody said that it succeeded."""
    LET_GO = 7
    """Never sent: the replay was cancelled or stopped. It is in the store, open."""


KNOWN: Final = frozenset(
    {SentState.REFUSED, SentState.RETURNED, SentState.DONE, SentState.QUIET, SentState.LET_GO}
)
"""Outcomes: nothing more is waited for."""
GONE: Final = frozenset({SentState.SENT, SentState.RETURNED, SentState.DONE, SentState.QUIET})
"""Of letters that the broker took."""
