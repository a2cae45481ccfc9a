"""A file that appears whole or not at all: written beside its place under another name, and renamed.

Nobody else may read it (0600): letters hold what customers wrote. Two who write the same file at once would
mix their letters, so the unfinished one is locked. One that a kill left behind is known by its name.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from deadletter.errors import ArchiveError, UsageError

UNFINISHED: Final = ".part"
_MODE: Final = 0o600


class NewFile:
    """Made with `create` or `go_on`; ends with `finish` or `abandon`."""

    def __init__(self, path: Path, number: int, *, replace: bool) -> None:
        self.path: Final = path
        self.part: Final = unfinished(path)
        self._number = number
        self._replace = replace
        self._closed = False

    @classmethod
    def create(cls, path: Path, *, replace: bool) -> NewFile:
        """UsageError where there is one already, and it shall not be replaced."""
        _refuse_what_is_there(path, replace=replace)
        part = unfinished(path)
        number = _open(part, os.O_RDWR | os.O_CREAT)
        try:
            _lock(number, part)
            if os.fstat(number).st_size:
                raise UsageError(
                    f"{part} is there: an export that did not come to its end left it (dlq import --dry-run "
                    f"{part} tells what is in it). If letters were taken from a queue for it, they are "
                    "nowhere else, and --resume goes on with it; else remove it"
                )
            _sync_directory(part)
        except BaseException:
            os.close(number)
            raise
        return cls(path, number, replace=replace)

    @classmethod
    def go_on(cls, path: Path, *, replace: bool) -> NewFile:
        """With what an export left that did not come to its end."""
        _refuse_what_is_there(path, replace=replace)
        part = unfinished(path)
        if not part.exists():
            raise UsageError(f"there is no {part} to go on with; leave --resume out")
        number = _open(part, os.O_RDWR)
        try:
            _lock(number, part)
        except BaseException:
            os.close(number)
            raise
        return cls(path, number, replace=replace)

    def read(self, count: int) -> bytes:
        return os.read(self._number, count)

    def write(self, data: bytes) -> None:
        """All of it, or ArchiveError."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._number, rest) :]
        except OSError as error:
            raise _failed(self.part, error) from error

    def sync(self) -> None:
        """On the disk when it returns: nothing less may stand for a letter that leaves its queue."""
        try:
            os.fsync(self._number)
        except OSError as error:
            raise _failed(self.part, error) from error

    def cut(self, size: int) -> None:
        """The rest goes, and writing goes on there."""
        os.ftruncate(self._number, size)
        os.lseek(self._number, size, os.SEEK_SET)

    def finish(self) -> None:
        """It is whole: from now on it is there under its name."""
        self.sync()
        try:
            if self._replace or not self._linked():
                self.part.replace(self.path)
            _sync_directory(self.path)
        except FileExistsError as error:
            raise ArchiveError(
                f"somebody else made {self.path} meanwhile; the letters are whole in {self.part}"
            ) from error
        except OSError as error:
            raise _failed(self.part, error) from error
        finally:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._number)

    def _linked(self) -> bool:
        """A rename would replace what somebody put there meanwhile. False: no links on this file system."""
        try:
            self.path.hardlink_to(self.part)
        except OSError as error:
            if isinstance(error, FileExistsError) or self.path.exists():
                raise
            return False
        self.part.unlink()
        return True

    def abandon(self, *, keep: bool) -> None:
        """It will not be whole. `keep`: what is in it is nowhere else. Nothing, once it was finished."""
        if not keep and not self._closed:
            with suppress(FileNotFoundError):
                self.part.unlink()
        self._close()


def _refuse_what_is_there(path: Path, *, replace: bool) -> None:
    """A file may be replaced. A pipe, a device or a link would be gone, and its reader none the wiser."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(
            f"{path} is no file of its own, and would be replaced by one; leave it out for stdout"
        )
    if not replace and path.exists():
        raise UsageError(f"{path} is there already; --force replaces it")


def unfinished(path: Path) -> Path:
    """The name of a file that is not whole yet."""
    return path.with_name(path.name + UNFINISHED)


def _open(part: Path, flags: int) -> int:
    """Never by a link that somebody else put there, and never readable for others."""
    try:
        number = os.open(part, flags | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    except OSError as error:
        raise UsageError(f"{part} cannot be written: {error.strerror}") from error
    try:
        os.fchmod(number, _MODE)
    except OSError as error:
        os.close(number)
        raise UsageError(f"{part} belongs to somebody else: {error.strerror}") from error
    return number


def _lock(number: int, part: Path) -> None:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise _failed(part, error) from error
        raise UsageError(f"another export writes {part} right now") from error


def _sync_directory(path: Path) -> None:
    number = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _failed(part: Path, error: OSError) -> ArchiveError:
    return ArchiveError(f"{part} cannot be written: {error.strerror}")
