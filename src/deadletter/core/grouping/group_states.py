"""The states of a group, and what leads from one to the next.

open → resolved (a person: this is cured) → open again, when it fails after that
open → muted (a person: known, not worth an alert) → open
open → snoozed until a time → open, by itself, when the time has come
"""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """What people have said of a group."""

    OPEN = "open"
    RESOLVED = "resolved"
    MUTED = "muted"
    SNOOZED = "snoozed"


def state_at(state: GroupState, until_ms: int | None, now_ms: int) -> GroupState:
    """A group that was to sleep until some time is open from then on."""
    over = state is GroupState.SNOOZED and until_ms is not None and until_ms <= now_ms
    return GroupState.OPEN if over else state
