"""How a command ends: 0 done, 1 something was left or refused, 2 usage, 3 cannot reach."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from deadletter.errors import (
    CannotConnect,
    ConnectionLost,
    DeadletterError,
    ManagementRefused,
    StoreError,
    UsageError,
)


class Exit(IntEnum):
    DONE = 0
    LEFT = 1
    USAGE = 2
    UNREACHABLE = 3


_CODES: Final[tuple[tuple[type[DeadletterError], Exit], ...]] = (
    (UsageError, Exit.USAGE),
    (CannotConnect, Exit.UNREACHABLE),
    (ConnectionLost, Exit.UNREACHABLE),
    (ManagementRefused, Exit.UNREACHABLE),
    (StoreError, Exit.UNREACHABLE),
)


def exit_for(error: DeadletterError) -> Exit:
    """The exit code an error ends a command with."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.LEFT)
