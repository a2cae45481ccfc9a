"""An archive from a file, letter by letter: what is whole in it, and where it is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deadletter.core.letter.archive_format import MARK, ArchivedLetter, ArchiveEnd, ArchiveHead, Damage
from deadletter.core.letter.archive_parser import ArchiveParser
from deadletter.errors import UsageError

_READ_BYTES: Final = 256 * 1024


class ArchiveReader:
    """`letters` reads it once, from its beginning; the rest is known of what was read so far."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.head: ArchiveHead | None = None
        self.damages: list[Damage] = []
        self._parser = ArchiveParser()
        self._check()

    @property
    def whole(self) -> bool:
        """Everything that was written is there; known when all of it was read."""
        return self._parser.whole

    @property
    def count(self) -> int:
        """Whole letters, so far."""
        return self._parser.letters

    @property
    def id(self) -> bytes:
        """The archive's own; empty where no block with it is whole."""
        return self._parser.id

    def letters(self) -> Iterator[ArchivedLetter]:
        """Those that are whole, in order. A block at most is in memory."""
        with self.path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                yield from self._kept(data)
        yield from self._kept(None)

    def _kept(self, data: bytes | None) -> Iterator[ArchivedLetter]:
        for piece in self._parser.finish() if data is None else self._parser.feed(data):
            match piece:
                case ArchivedLetter():
                    yield piece
                case ArchiveHead():
                    self.head = piece
                case Damage():
                    self.damages.append(piece)
                case ArchiveEnd():
                    pass

    def _check(self) -> None:
        """Whether it looks like one at all, before anything else is done."""
        try:
            with self.path.open("rb") as file:
                begins = file.read(4096)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from error
        if begins.startswith(b"{"):
            raise UsageError(
                f"{self.path} has letters as lines of JSON, which are for reading: they do not hold all of a "
                "letter. What can be imported is an archive (dlq export --archive)"
            )
        if begins and MARK[1:4] not in begins:
            raise UsageError(f"{self.path}: expected an archive of letters (dlq export --archive)")
