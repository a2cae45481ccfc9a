"""The machine's own key: a file that its owner alone can read.

`dlq serve` makes it, and from it the token by which the commands of the same user find the door open without
any set-up: who may read the file is who started the service. Each port has its own token, so that a stranger
who waits on another port learns nothing of use. The key of sessions comes of it as well, so that people who
are signed in stay so when the service starts again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deadletter.core.access.token_hash import PREFIX

_BYTES: Final = 32
_FILE: Final = "desk.key"


def key_file(environ: Mapping[str, str], home: Path) -> Path:
    """Where it is: systemd's place for the service's state, or the user's."""
    if told := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(told) / _FILE
    said = Path(environ.get("XDG_STATE_HOME", ""))
    state = said if said.is_absolute() else home / ".local" / "state"
    return state / "deadletter" / _FILE


def read_key(file: Path) -> bytes | None:
    """None: it is not there, or others could have read or written it."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        told = os.fstat(opened)
        if not stat.S_ISREG(told.st_mode) or told.st_uid != os.geteuid() or told.st_mode & 0o077:
            return None
        said = os.read(opened, _BYTES * 2 + 2).strip()
    finally:
        os.close(opened)
    try:
        key = bytes.fromhex(said.decode("ascii"))
    except ValueError:
        return None
    return key if len(key) == _BYTES else None


def made_key(file: Path) -> bytes:
    """The one that is there, else a new one. OSError: it cannot be kept."""
    if (found := read_key(file)) is not None:
        return found
    key = secrets.token_bytes(_BYTES)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(opened, "w", encoding="ascii") as writing:
            writing.write(f"{key.hex()}\n")
        if not file.exists() or read_key(file) is None:  # not one that somebody made meanwhile
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return read_key(file) or key


def home_token(key: bytes, port: int) -> str:
    """The token of whoever owns the key, for the service on this port."""
    return f"{PREFIX}home_{_told(_derived(key, f'token of port {port}'))}"


def session_key(key: bytes) -> bytes:
    return _derived(key, "sessions")


def _derived(key: bytes, what: str) -> bytes:
    return hmac.digest(key, f"deadletter {what}".encode(), hashlib.sha256)


def _told(some: bytes) -> str:
    return base64.urlsafe_b64encode(some).decode().rstrip("=")
