"""Letters on the way between a command and the service, exact: an archive in memory, a portion at a time.

Properties and bodies are bytes that no JSON holds. What a letter is known by in a store goes along, so that
nothing is stored twice, whoever stores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deadletter import __version__
from deadletter.core.letter.archive_format import ArchivedLetter, ArchiveHead, ArchivePacker, StoreKeys
from deadletter.core.letter.archive_parser import ArchiveParser
from deadletter.core.letter.letter import Letter
from deadletter.errors import UsageError

MEDIA_TYPE: Final = "application/vnd.deadletter.archive"
"""No form of a web page can send it."""
NUMBERS: Final = "deadletter-letters"
"""The header of an answer that has the numbers of its letters in the store, in the order of the archive."""
PORTION_BYTES: Final = 4 * 1024 * 1024
"""Letters are handed over in portions of so many bytes, if one alone is not larger."""
MAX_BYTES: Final = 192 * 1024 * 1024
"""The largest portion that is taken: a letter of 128 MiB, which RabbitMQ 3 takes at most by default, fits."""
_ID: Final = bytes(16)


def packed(letters: Iterable[tuple[Letter, StoreKeys]]) -> bytes:
    """An archive of these."""
    packer = ArchivePacker(
        ArchiveHead(id=_ID, made_ms=0, source="store", taken=False, writer=f"deadletter {__version__}")
    )
    parts = [packer.begin()]
    for letter, keys in letters:
        packer.add(letter, stored=keys)
        if packer.full:
            parts.append(packer.flush())
    return b"".join([*parts, packer.end()])


def unpacked(data: bytes) -> list[tuple[Letter, StoreKeys]]:
    """UsageError: it is not whole, or not from a store."""
    parser = ArchiveParser(room=MAX_BYTES)
    found = [piece for piece in (*parser.feed(data), *parser.finish()) if isinstance(piece, ArchivedLetter)]
    letters = [(one.letter, one.stored) for one in found if one.stored is not None]
    if not parser.whole or len(letters) != len(found):
        raise UsageError("expected a whole archive of letters with what a store knows them by")
    return letters
