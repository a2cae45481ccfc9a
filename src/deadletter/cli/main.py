"""The command `dlq`: its commands, its errors, its exit codes.

What is typed plainly is run at once; all else is read with the library of the command line, which has help,
completion and good words for mistakes, and takes its time to load.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

from deadletter.cli import plain_words
from deadletter.cli.terminal.output import Exit, complain, exit_for
from deadletter.errors import DeadletterError

if TYPE_CHECKING:
    import typer

QUICK: Final = frozenset({"move", "check", "peek", "doctor"})
"""Those of `quick_options`, which do without the options of the others."""
INTERRUPTED: Final = 130
_GARBAGE: Final = 50_000
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Python looks for garbage after so many new objects. A command imports many, and none of them is garbage."""


@cache
def whole_app() -> typer.Typer:
    """With every command."""
    from deadletter.cli.more_commands import add_commands
    from deadletter.cli.quick_options import app

    add_commands(app)
    return app


def _typed() -> None:
    """Whatever it is: help, a mistake, a shell that completes, one of all commands."""
    completes = any(name.startswith("_DLQ_") for name in os.environ)
    if sys.argv[1:2] and sys.argv[1] in QUICK and not completes:
        from deadletter.cli.quick_options import app

        app()
    else:
        whole_app()()


def main() -> None:
    """The entry point: any error of ours is one line on stderr and an exit code, never a traceback."""
    gc.set_threshold(_GARBAGE)
    try:
        plain = plain_words.read(sys.argv[1:], os.environ)
        if plain is None:
            _typed()
        else:
            sys.exit(_ended(plain))
    except DeadletterError as error:
        complain(error)
        sys.exit(exit_for(error))
    except BrokenPipeError:
        sys.exit(Exit.LEFT)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # what is left cannot be written either
        complain(f"what it says cannot be written: {error.strerror}")
        sys.exit(Exit.LEFT)


def _ended(plain: plain_words.PlainCall) -> int:
    """As the library ends a command."""
    try:
        return plain()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # nobody reads on: what is still to be written must not become an error at the very end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.LEFT


if __name__ == "__main__":
    main()
