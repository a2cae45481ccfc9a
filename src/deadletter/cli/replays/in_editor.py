"""A person's editor on a file of ours. Whatever becomes of it, nothing that was written is lost: it stays."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from deadletter.errors import DeadletterError, UsageError


def edited_text(text: str, number: int) -> tuple[Path, str]:
    """The file, and what is in it after the editor. DeadletterError: the editor failed; the file is named."""
    called = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = shlex.split(called)
    except ValueError as error:
        raise UsageError(f"EDITOR: expected a command, got {called!r} ({error})") from error
    handle, name = tempfile.mkstemp(prefix=f"dlq-edit-{number}-", suffix=".txt")
    file = Path(name)
    with os.fdopen(handle, "wb") as opened:
        opened.write(text.encode("utf-8", "surrogatepass"))
    try:
        done = subprocess.run([*command, name], check=False)  # noqa: S603 the person's own editor
    except OSError as error:
        file.unlink(missing_ok=True)
        raise UsageError(
            f"EDITOR: {called} does not start: {error}; set EDITOR, or use --jq or --set"
        ) from error
    if done.returncode != 0:
        raise kept(file, f"{called} ended with {done.returncode}, so nothing was changed")
    try:
        return file, file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise kept(file, f"it cannot be read: {error}") from error


def kept(file: Path, why: str) -> DeadletterError:
    """What to raise when a person's text cannot be used."""
    return DeadletterError(f"{why}; what you wrote is in {file} (go on with --file {file})")
