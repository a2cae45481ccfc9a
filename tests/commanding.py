"""`dlq` as a person types it, in this very process: tests would wait for a hundred starts of Python.

The entry point, the arguments, the environment, the directory and the streams are the command's own. What has
to be a process of its own (signals, kills, `dlq serve`) is started as one where it is tested.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

import typer.main

from deadletter.cli.main import main

_built = cache(typer.main.get_command)
"""All commands are built from their functions once in this process, not before each one that is typed."""


def command(
    *arguments: str, environment: Mapping[str, str], directory: Path | None = None, stdin: str = ""
) -> CompletedProcess[str]:
    """Run it to its end."""
    said, complained = _stream(), _stream()
    with (
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", ["dlq", *arguments]),
        patch.object(typer.main, "get_command", _built),
        patch.object(sys, "stdin", _stream(stdin)),
        chdir(directory or Path.cwd()),
        redirect_stdout(said),
        redirect_stderr(complained),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return CompletedProcess(list(arguments), code, _told(said), _told(complained))


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)


def _told(stream: io.TextIOWrapper) -> str:
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()
