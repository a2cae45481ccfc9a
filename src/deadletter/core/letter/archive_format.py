"""An archive of letters, as bytes: what was taken comes back byte for byte, or the damage is seen.

    archive = block of the head | blocks of letters … | block of the end

    block   = mark 8 | kind 1 | id of the archive 16 | number of its first letter 8 | letters 4 |
              bytes unpacked 8 | bytes packed 8 | checksum of all these 4 |
              checksum of these and the packed bytes 16 | the packed bytes
    letter  = length 8 | checksum 16 | fields, each with its length before it (8)

Numbers are big-endian. Letters are packed by the block (zlib), so that neither who writes nor who reads holds
more than one block. Each begins with a mark, so that what follows damage is found again. Every letter has a
checksum of its own: what is whole in a damaged block is still given back. The end says how many letters there
are and holds a checksum over theirs: an archive without it was cut. `archive_parser` reads it.

A later version may add fields to a letter and keys to head and end; this one passes over them.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from struct import Struct
from typing import Final, TypeAlias

from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage

FORMAT: Final = 1
MARK: Final = b"\x89DLQ\r\n\x1a\n"
BLOCK_BYTES: Final = 1024 * 1024
BLOCK_LETTERS: Final = 10_000
BLOCK_HEAD: Final = Struct(">8sc16sQIQQ")
CRC: Final = Struct(">I")
CHECK_BYTES: Final = 16
BEFORE_BYTES: Final = BLOCK_HEAD.size + CRC.size + CHECK_BYTES
"""Bytes of a block before its payload."""
LENGTH: Final = Struct(">Q")
TIMES: Final = Struct(">qq")
_LEVEL: Final = 6


class BlockKind(Enum):
    HEAD = b"H"
    LETTERS = b"L"
    END = b"E"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveHead:
    """What an archive says of itself."""

    id: bytes
    """Sixteen bytes of its own."""
    made_ms: int
    source: str
    """Where its letters are from, for people."""
    taken: bool
    """Whether they were taken out of there: then this archive is their only home."""
    writer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKeys:
    """What a store knew a letter by. Times are milliseconds since 1970."""

    letter_id: str
    same: bytes
    message: bytes
    died_ms: int
    stored_ms: int
    vhost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedLetter:
    """One letter. `number`: its place in the archive, from 1."""

    number: int
    source: str
    """The queue it was taken from."""
    came_by: ExchangeKey
    message: RawMessage
    redelivered: bool
    stored: StoreKeys | None = None

    @property
    def letter(self) -> Letter:
        return Letter(
            source=self.source, message=self.message, came_by=self.came_by, redelivered=self.redelivered
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEnd:
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of an archive that are not what was written. `at`: the byte where the damaged part begins."""

    at: int
    why: str


Piece: TypeAlias = ArchiveHead | ArchivedLetter | ArchiveEnd | Damage


class ArchivePacker:
    """Makes the bytes of one archive, a block at a time. `letters` and `seen`: of those it has already."""

    def __init__(self, head: ArchiveHead, *, letters: int = 0, seen: blake2b | None = None) -> None:
        self._head = head
        self.letters: int = letters
        """Those that were added."""
        self._seen = seen if seen is not None else blake2b(digest_size=CHECK_BYTES)
        self._records: list[bytes] = []
        self._bytes = 0

    def begin(self) -> bytes:
        told = {
            "format": FORMAT,
            "made_ms": self._head.made_ms,
            "source": self._head.source,
            "taken": self._head.taken,
            "writer": self._head.writer,
        }
        return self._block(BlockKind.HEAD, 0, 0, json.dumps(told).encode())

    @property
    def full(self) -> bool:
        """Whether a block is worth writing."""
        return self._bytes >= BLOCK_BYTES or len(self._records) >= BLOCK_LETTERS

    def add(self, letter: Letter, *, stored: StoreKeys | None = None) -> int:
        """Its number in the archive."""
        self.letters += 1
        fields = [
            LENGTH.pack(self.letters),
            as_bytes(letter.source),
            letter.came_by.exchange,
            letter.came_by.routing_key,
            letter.message.properties,
            letter.message.body,
            b"\1" if letter.redelivered else b"\0",
        ]
        if stored is not None:
            fields += [
                as_bytes(stored.letter_id),
                stored.same,
                stored.message,
                TIMES.pack(stored.died_ms, stored.stored_ms),
                as_bytes(stored.vhost),
            ]
        record = b"".join(part for one in fields for part in (LENGTH.pack(len(one)), one))
        check = checksum(record)
        self._seen.update(check)
        self._records += (LENGTH.pack(len(record)) + check, record)
        self._bytes += len(record) + LENGTH.size + CHECK_BYTES
        return self.letters

    def flush(self) -> bytes:
        """The block of those added since the last one; nothing when there are none."""
        count = len(self._records) // 2
        if not count:
            return b""
        raw = b"".join(self._records)
        self._records.clear()
        self._bytes = 0
        return self._block(BlockKind.LETTERS, self.letters - count + 1, count, raw)

    def end(self) -> bytes:
        """The last bytes: what was added and not flushed, and the end."""
        told = {"letters": self.letters, "check": self._seen.hexdigest()}
        return self.flush() + self._block(BlockKind.END, self.letters, 0, json.dumps(told).encode())

    def _block(self, kind: BlockKind, first: int, letters: int, raw: bytes) -> bytes:
        packed = zlib.compress(raw, _LEVEL)
        head = BLOCK_HEAD.pack(MARK, kind.value, self._head.id, first, letters, len(raw), len(packed))
        return b"".join((head, CRC.pack(zlib.crc32(head)), checksum(head + packed), packed))


def checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=CHECK_BYTES).digest()
