"""What letters are written into: an archive that restores them, or lines of JSON that people read.

Both hold one block at most, however many letters come.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from deadletter import __version__
from deadletter.core.letter.archive_format import ArchiveHead, ArchivePacker, StoreKeys
from deadletter.core.letter.archive_parser import ArchiveParser
from deadletter.core.letter.letter import Letter
from deadletter.errors import ArchiveError
from deadletter.operations.archiving.new_file import NewFile

_READ_BYTES: Final = 1024 * 1024


class LetterSink(Protocol):
    """Takes letters one by one. `letters`: how many it has."""

    @property
    def letters(self) -> int: ...

    def add(self, letter: Letter, stored: StoreKeys | None) -> None: ...

    def secure(self) -> None:
        """What was added is on the disk when it returns."""

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class ArchiveSink:
    """An archive. `taken`: its letters leave their queue, so that it is never thrown away."""

    def __init__(self, file: NewFile, packer: ArchivePacker, *, taken: bool) -> None:
        self._file = file
        self._packer = packer
        self._taken = taken
        self._safe = packer.letters

    @classmethod
    def create(cls, path: Path, *, source: str, taken: bool, replace: bool, now_ms: int) -> ArchiveSink:
        file = NewFile.create(path, replace=replace)
        head = ArchiveHead(
            id=secrets.token_bytes(16),
            made_ms=now_ms,
            source=source,
            taken=taken,
            writer=f"deadletter {__version__}",
        )
        packer = ArchivePacker(head)
        sink = cls(file, packer, taken=taken)
        file.write(packer.begin())
        return sink

    @classmethod
    def go_on(cls, path: Path, *, replace: bool) -> ArchiveSink:
        """With what an export left that did not come to its end: after its last whole block."""
        file = NewFile.go_on(path, replace=replace)
        parser = ArchiveParser()
        head: ArchiveHead | None = None
        while data := file.read(_READ_BYTES):
            head = next((p for p in parser.feed(data) if isinstance(p, ArchiveHead)), head)
        if head is None or parser.ended or parser.damaged or not head.taken:
            file.abandon(keep=True)
            if parser.whole:
                why = "it is whole: rename it"
            elif head is not None and not head.taken:
                why = "its letters were looked at, and are where they were; remove it and begin anew"
            else:
                why = "it is damaged; dlq import --dry-run tells where"
            raise ArchiveError(f"cannot go on with {file.part}: {why}")
        file.cut(parser.whole_bytes)
        packer = ArchivePacker(head, letters=parser.last_number, seen=parser.seen)
        return cls(file, packer, taken=True)

    @property
    def letters(self) -> int:
        return self._packer.letters

    def add(self, letter: Letter, stored: StoreKeys | None) -> None:
        self._packer.add(letter, stored=stored)
        if self._packer.full:
            self._file.write(self._packer.flush())

    def secure(self) -> None:
        self._file.write(self._packer.flush())
        self._file.sync()
        self._safe = self._packer.letters

    def finish(self) -> None:
        self._file.write(self._packer.end())
        self._file.finish()

    def abandon(self) -> None:
        self._file.abandon(keep=self._taken and self._safe > 0)


class LinesSink:
    """A line of JSON for each letter, into a file or (None) onto stdout. `line`: what is written of one."""

    def __init__(self, path: Path | None, line: Callable[[Letter, StoreKeys | None], str], *, replace: bool):
        self._file = None if path is None else NewFile.create(path, replace=replace)
        self._line = line
        self.letters: int = 0

    def add(self, letter: Letter, stored: StoreKeys | None) -> None:
        text = self._line(letter, stored) + "\n"
        if self._file is None:
            sys.stdout.write(text)
        else:
            self._file.write(text.encode())
        self.letters += 1

    def secure(self) -> None:
        if self._file is not None:
            self._file.sync()

    def finish(self) -> None:
        if self._file is None:
            sys.stdout.flush()
        else:
            self._file.finish()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon(keep=False)
