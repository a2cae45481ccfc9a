"""Who runs this command."""

from __future__ import annotations

import getpass
import os
import socket


def user_name() -> str:
    """`user@host`, as the audit has it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
