"""Where results go. Apart from the screen, whose library takes longer to load than many results to make."""

from __future__ import annotations

import sys


def result(text: str) -> None:
    """The result of a command: the one thing that goes to stdout."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()
