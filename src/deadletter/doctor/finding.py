"""What the doctor reports: one place where letters can be lost, multiplied, stuck or spun, and the cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Harm(Enum):
    """What can happen to letters there."""

    LOST = "lost"
    MULTIPLIED = "multiplied"
    STUCK = "stuck"
    SPUN = "spun"


class Severity(Enum):
    """How sure and how bad: an error happens as soon as a letter takes that path, a warning needs one more
    thing to go wrong, a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One place where a rule is broken, as the rule's own function tells it."""

    severity: Severity
    harm: Harm | None = None
    """None: the rule's own."""
    subject: str
    """The queue or exchange it is about; what a person would look for in a list."""
    path: tuple[str, ...]
    """The witness, step by step: `queue orders`, `rejected`, `exchange dlx`, `key orders`, `no binding`."""
    why: str
    """Why it hurts, in one or two sentences about this very place."""
    fix: str
    """What to do: a command or a policy that can be copied, with the names filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Evidence):
    """What was found, with the rule that it breaks."""

    rule: str
    """The id of the rule: lower case words with dashes, `missing-dlx`. Part of the public interface."""
    harm: Harm
