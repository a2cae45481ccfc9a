"""Reads an archive of letters (`archive_format`) from its bytes as they come, whatever state they are in.

Pure: whoever has the file feeds it. Nothing is raised for what the bytes hold: damage is a piece among the
others, and what is whole after it is found again by the mark of the next block.
"""

from __future__ import annotations

import json
import zlib
from hashlib import blake2b
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final, NamedTuple, cast

from deadletter.core.letter.archive_format import (
    BEFORE_BYTES,
    BLOCK_HEAD,
    CHECK_BYTES,
    CRC,
    FORMAT,
    LENGTH,
    MARK,
    TIMES,
    ArchivedLetter,
    ArchiveEnd,
    ArchiveHead,
    BlockKind,
    Damage,
    Piece,
    StoreKeys,
    checksum,
)
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.key_bytes import as_text
from deadletter.core.letter.message import RawMessage

_PORTION: Final = 512
"""A damaged block is unpacked in portions of so many bytes: what was unpacked before the damage is kept."""


class _BlockHead(NamedTuple):
    kind: bytes
    id: bytes
    first: int
    letters: int
    raw: int
    packed: int


class ArchiveParser:
    """`feed` it all the bytes, then `finish`. `room`: a block that would be more, unpacked and with those
    before it, is none; None: whatever comes."""

    def __init__(self, room: int | None = None) -> None:
        self._room = room
        self._buffer = bytearray()
        self._unpacked = 0
        self._at = 0
        self._skipped_from: int | None = None
        self._id: bytes | None = None
        self._last = 0
        self.seen: blake2b = blake2b(digest_size=CHECK_BYTES)
        self.letters: int = 0
        """Whole ones, so far."""
        self.damaged: bool = False
        self.ended: bool = False
        self.whole_bytes: int = 0
        """Up to here every block was whole, in order, and none of them the end: who goes on writes here."""

    @property
    def whole(self) -> bool:
        """Everything that was written is here."""
        return self.ended and not self.damaged

    @property
    def id(self) -> bytes:
        """The archive's own; empty where none is known."""
        return self._id or b""

    @property
    def last_number(self) -> int:
        return self._last

    def feed(self, data: bytes) -> list[Piece]:
        self._buffer += data
        pieces: list[Piece] = []
        while self._step(pieces, final=False):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """Nothing more comes."""
        pieces: list[Piece] = []
        while self._step(pieces, final=True):
            pass
        self._close_gap(pieces, self._at)
        if not self.ended:
            why = "it has no end: it was cut off, or whoever wrote it did not come to its end"
            self._hurt(
                pieces, self._at, why if self._id is not None else "these bytes are no archive of letters"
            )
        return pieces

    def _step(self, pieces: list[Piece], *, final: bool) -> bool:
        """Read one block, or pass over what is none. False: more bytes are needed."""
        buffer = self._buffer
        if not buffer:
            return False
        if self.ended:
            if self._skipped_from is None:
                self._skipped_from = self._at
            self._pass(len(buffer))
            return False
        found = buffer.find(MARK)
        if found < 0:
            # The beginning of a mark may be at the end of what came.
            self._skip(len(buffer) if final else max(0, len(buffer) - len(MARK) + 1))
            return False
        if found:
            self._skip(found)
        if len(buffer) < BEFORE_BYTES:
            if final:
                self._skip(len(buffer))
            return False
        head = _read_head(buffer)
        if head is None or not self._has_room(head.raw):
            self._skip(1)
            return True
        end = BEFORE_BYTES + head.packed
        if len(buffer) < end and not final:
            return False
        packed = bytes(buffer[BEFORE_BYTES:end])
        sound = len(packed) == head.packed and checksum(bytes(buffer[: BLOCK_HEAD.size]) + packed) == bytes(
            buffer[BEFORE_BYTES - CHECK_BYTES : BEFORE_BYTES]
        )
        if sound:
            self._close_gap(pieces, self._at)
            self._take(pieces, head, packed)
            self._pass(end)
            if not self.damaged and not self.ended:
                self.whole_bytes = self._at
        else:
            self._rescue(pieces, head, packed)
        return True

    def _has_room(self, raw: int) -> bool:
        """For whoever is sent bytes by others: few bytes may unpack to very many."""
        return self._room is None or self._unpacked + raw <= self._room

    def _take(self, pieces: list[Piece], head: _BlockHead, packed: bytes) -> None:
        """A block that is whole."""
        raw = _unpacked(packed, head.raw, portion=max(1, len(packed)))
        self._unpacked += len(raw)
        if head.kind == BlockKind.HEAD.value:
            self._id = head.id
            told = _told(raw)
            if told.get("format") != FORMAT:
                self._hurt(
                    pieces, self._at, f"it is of format {told.get('format')}, made by a newer version?"
                )
                return
            pieces.append(
                ArchiveHead(
                    id=head.id,
                    made_ms=_number(told.get("made_ms")),
                    source=str(told.get("source", "")),
                    taken=told.get("taken") is True,
                    writer=str(told.get("writer", "")),
                )
            )
            return
        if self._id is None:
            self._id = head.id
            self._hurt(pieces, 0, "its head is missing")
        if head.kind == BlockKind.END.value:
            self._take_end(pieces, _told(raw))
            return
        if head.first != self._last + 1:
            self._hurt(pieces, self._at, f"letters {self._last + 1} to {head.first - 1} are missing")
        if (kept := self._give(pieces, raw)) != head.letters:
            self._hurt(
                pieces, self._at, f"of {head.letters} letters from {head.first} on, {kept} can be read"
            )
        self._last = head.first + head.letters - 1

    def _take_end(self, pieces: list[Piece], told: dict[str, object]) -> None:
        letters = _number(told.get("letters"))
        if letters != self._last:
            self._hurt(pieces, self._at, f"letters {self._last + 1} to {letters} are missing")
        elif not self.damaged and told.get("check") != self.seen.hexdigest():
            self._hurt(pieces, self._at, "its letters are not those it was closed with")
        self.ended = True
        pieces.append(ArchiveEnd(letters=letters))

    def _rescue(self, pieces: list[Piece], head: _BlockHead, packed: bytes) -> None:
        """A block that is not: its letters up to the damage. The next may begin within it."""
        inside = packed.find(MARK)
        if inside >= 0:
            packed = packed[:inside]
        self._close_gap(pieces, self._at)
        first, last = head.first, head.first + head.letters - 1
        kept = 0
        if head.kind == BlockKind.LETTERS.value and self._id in (None, head.id):
            self._id = head.id
            raw = _unpacked(packed, head.raw, portion=_PORTION)
            self._unpacked += len(raw)
            kept = self._give(pieces, raw)
            self._last = max(self._last, last)
            why = f"of letters {first} to {last}, {head.letters - kept} are damaged or missing"
        else:
            why = "its head or its end is damaged"
        self._hurt(pieces, self._at, why)
        self._pass(BEFORE_BYTES + len(packed))

    def _give(self, pieces: list[Piece], raw: bytes) -> int:
        """The whole letters of a block: how many they were."""
        position = kept = 0
        while position + LENGTH.size + CHECK_BYTES <= len(raw):
            (length,) = LENGTH.unpack_from(raw, position)
            start = position + LENGTH.size + CHECK_BYTES
            check, record = raw[start - CHECK_BYTES : start], raw[start : start + length]
            if len(record) != length or checksum(record) != check:
                break  # where the next one begins is not known either
            try:
                pieces.append(_letter(record))
            except (StructError, ValueError):
                break
            self.seen.update(check)
            self.letters += 1
            kept += 1
            position = start + length
        return kept

    def _skip(self, count: int) -> None:
        if count and self._skipped_from is None:
            self._skipped_from = self._at
        self._pass(count)

    def _pass(self, count: int) -> None:
        del self._buffer[:count]
        self._at += count

    def _close_gap(self, pieces: list[Piece], until: int) -> None:
        if self._skipped_from is not None:
            at, self._skipped_from = self._skipped_from, None
            self._hurt(pieces, at, f"{until - at} bytes are of no block")

    def _hurt(self, pieces: list[Piece], at: int, why: str) -> None:
        self.damaged = True
        pieces.append(Damage(at=at, why=why))


def _read_head(buffer: bytearray) -> _BlockHead | None:
    """The head of the block that begins here; None where its checksum is not right."""
    raw = bytes(buffer[: BLOCK_HEAD.size])
    if CRC.unpack_from(buffer, BLOCK_HEAD.size)[0] != zlib.crc32(raw):
        return None
    _, kind, identity, first, letters, unpacked, packed = BLOCK_HEAD.unpack(raw)
    return _BlockHead(kind, identity, first, letters, unpacked, packed)


def _unpacked(packed: bytes, length: int, *, portion: int) -> bytes:
    """As much as can be unpacked, and never more than was said."""
    press = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(packed), portion):
            part = press.decompress(packed[start : start + portion], max(1, length - size))
            parts.append(part)
            size += len(part)
            if size >= length:
                break
    except zlib.error:
        pass  # the checksum of each letter says how far it was whole
    return b"".join(parts)


def _letter(record: bytes) -> ArchivedLetter:
    fields: list[bytes] = []
    position = 0
    while position < len(record):
        (length,) = LENGTH.unpack_from(record, position)
        fields.append(record[position + LENGTH.size : position + LENGTH.size + length])
        position += LENGTH.size + length
    number, source, exchange, key, properties, body, redelivered, *kept = fields
    stored = None
    if len(kept) >= 4:
        died_ms, stored_ms = TIMES.unpack(kept[3])
        stored = StoreKeys(
            letter_id=as_text(kept[0]),
            same=kept[1],
            message=kept[2],
            died_ms=died_ms,
            stored_ms=stored_ms,
            vhost=as_text(kept[4]) if len(kept) > 4 else "",
        )
    return ArchivedLetter(
        number=LENGTH.unpack(number)[0],
        source=as_text(source),
        came_by=ExchangeKey(exchange, key),
        message=RawMessage(properties, body),
        redelivered=redelivered == b"\1",
        stored=stored,
    )


def _told(raw: bytes) -> dict[str, object]:
    """What it holds that is JSON: nothing, where a foreign hand wrote it."""
    try:
        found: object = json.loads(raw)
    except ValueError:
        found = None
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
