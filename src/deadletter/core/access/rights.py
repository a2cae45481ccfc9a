"""Roles and what each of them may do: one closed table, asked by every route, page and operation."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    VIEWER = "viewer"
    """Looks."""
    OPERATOR = "operator"
    """Works on letters: sorts, throws away, repairs, sends again."""
    ADMIN = "admin"
    """Says how the service works, and sees everything."""


class Action(StrEnum):
    """What somebody may do. Its value is how it is called where it is refused."""

    SEE = "see letters"
    """Letters, groups, replays, what waits, policies, findings: all that is shown."""
    SEE_AUDIT = "see who did what"
    EXPORT = "export letters"
    NOTE = "write notes"
    CHANGE_GROUP = "change groups"
    """Resolve, mute, snooze, open, say of which kind, merge, split."""
    DISCARD = "discard letters"
    """And take them back."""
    EDIT = "edit letters"
    """Drafts, programs tried out, recipes."""
    REPLAY = "replay letters"
    """Start, pause, go on, cancel, another pace."""
    HANDLE_WAITING = "release or park letters that wait"
    SWEEP = "sweep queues"
    TELL_RELEASE = "tell of releases"
    SEE_MASKED = "see masked fields"
    IMPORT = "import letters"
    SET_POLICY = "change policies"
    REGROUP = "group stored letters anew"
    SEE_ACCESS = "see who has access"


_VIEWER: Final = frozenset({Action.SEE})
_OPERATOR: Final = _VIEWER | {
    Action.SEE_AUDIT,
    Action.EXPORT,
    Action.NOTE,
    Action.CHANGE_GROUP,
    Action.DISCARD,
    Action.EDIT,
    Action.REPLAY,
    Action.HANDLE_WAITING,
    Action.SWEEP,
    Action.TELL_RELEASE,
}
RIGHTS: Final[dict[Role, frozenset[Action]]] = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Action),
}
EVERYWHERE: Final = frozenset(
    {
        Action.SEE_AUDIT,
        Action.IMPORT,
        Action.SET_POLICY,
        Action.REGROUP,
        Action.SEE_ACCESS,
        Action.TELL_RELEASE,
    }
)
"""What is about all queues at once: nobody may do it whose scope is limited."""
