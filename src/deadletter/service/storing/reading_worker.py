"""The process that reads letters for the store. It does nothing else, and imports nothing but `core`.

Reading a letter (`core.grouping.stored_letter`) takes longer than all the rest of its way into the store, and
one Python process computes on one core. So whoever takes in many letters has a second one read them.

On stdin come frames, each after its length: first what to do (`ReadingTask`), then letters, many in each. On
stdout one byte says that it is ready, then a frame answers each frame. What is in them is pickled: this
process trusts nobody but the one that started it, and that one nobody but this; nothing of it comes from
anywhere else. The bytes of letters in it are bytes, and stay so.

A letter does not come back, only what was read in it, and its bytes as the store keeps them: packed, with the
dictionary of its group where the store has one. Those come with the letters, each once. PostgreSQL takes
words and no text, so texts are divided here, too: who writes has enough to do. Letters of one group have one
fingerprint: it is sent with the first of them, and the others name its number. A letter that cannot be read
has no answer: whoever asked reads it, too, and sees why.

It ends when its stdin does, so also when who started it was killed. Signals that are meant for the service
(systemd sends them to all of its processes) do not end it in the middle of a batch.
"""

from __future__ import annotations

import gc
import pickle
import signal
import sys
from collections.abc import Sequence
from struct import Struct
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from deadletter.core.grouping.compression import packed
from deadletter.core.grouping.dictionaries import Dictionaries, PackedContent
from deadletter.core.grouping.fingerprint import Fingerprint
from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.letter_frame import framed
from deadletter.core.grouping.letter_words import each_once
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage

LENGTH: Final = Struct(">Q")
READY: Final = b"R"
PICKLE: Final = 5
KNOWN: Final = 8_192
"""So many fingerprints are numbered; then numbers begin anew."""
_GARBAGE: Final = 100_000
_READ: Final = StoredLetter._fields.index("fingerprint")
"""So many fields come before the fingerprint, and go back as they are."""

Unread: TypeAlias = tuple[Letter, str]
"""A letter and its vhost."""
_Row: TypeAlias = tuple[Any, ...]


class ReadingTask(NamedTuple):
    """How letters are read."""

    grouping: Grouping
    divide: bool = False
    """Whether their texts are divided into words."""


class ReadBatch(NamedTuple):
    """`rows`: what was read, without fingerprint and letter, with the fingerprint's number; None: not
    readable. `fingerprints` are the ones that have the next numbers, from 0 where they begin anew."""

    anew: bool
    fingerprints: list[Fingerprint]
    rows: list[_Row | None]


class UnreadBatch(NamedTuple):
    """Letters to be read. `dictionaries`: those that are new, by group; with `anew` all others are
    forgotten."""

    now_ms: int
    anew: bool
    dictionaries: dict[str, tuple[int, bytes]]
    letters: list[_Row]


class Questions:
    """What one process is asked: dictionaries are told once."""

    def __init__(self) -> None:
        self._edition: object = None
        self._told = 0

    def of(self, batch: Sequence[Unread], now_ms: int, dictionaries: Dictionaries) -> bytes:
        """These letters, to be read and packed."""
        anew = self._edition is not dictionaries.edition
        if anew:
            self._edition, self._told = dictionaries.edition, 0
        fresh = {key: (one.number, one.data) for key, one in dictionaries.after(self._told).items()}
        self._told += len(fresh)
        letters = [(vhost, one.source, *one.message, *one.came_by, one.circling) for one, vhost in batch]
        return pickle.dumps(tuple(UnreadBatch(now_ms, anew, fresh, letters)), PICKLE)


class Reader:
    """Reads in the process."""

    def __init__(self, reading: ReadingTask) -> None:
        self._reading = reading
        self._numbers: dict[Fingerprint, int] = {}
        self._met: dict[int, tuple[Fingerprint, int]] = {}
        """By identity, as most come from the fingerprint's own memory: to compare them takes long."""
        self._dictionaries: dict[str, tuple[int, bytes]] = {}

    def answer(self, frame: bytes) -> bytes:
        asked = UnreadBatch(*pickle.loads(frame))  # noqa: S301 -- from whom this process has its life
        if asked.anew:
            self._dictionaries.clear()
        self._dictionaries.update(asked.dictionaries)
        anew = len(self._numbers) > KNOWN
        if anew:
            self._numbers.clear()
            self._met.clear()
        known = len(self._numbers)
        rows = [self._row(told, asked.now_ms) for told in asked.letters]
        fresh = list(self._numbers)[known:]
        return pickle.dumps(tuple(ReadBatch(anew, fresh, rows)), PICKLE)

    def _row(self, told: _Row, now_ms: int) -> _Row | None:
        vhost, source, properties, body, exchange, routing_key, circling = told
        letter = Letter(
            source=source,
            message=RawMessage(properties, body),
            came_by=ExchangeKey(exchange, routing_key),
            redelivered=False,
            circling=circling,
        )
        try:
            read = stored_letter(letter, now_ms=now_ms, vhost=vhost, grouping=self._reading.grouping)
            dictionary, known = self._dictionaries.get(read.fingerprint.key, (None, b""))
            data = packed(framed(letter), known)
            text, words = ("", each_once(read.text)) if self._reading.divide else (read.text, None)
        except Exception:  # noqa: BLE001 -- whoever asked finds out what it is
            return None
        return (*read[:_READ], self._number(read.fingerprint), text, words, dictionary, data)

    def _number(self, found: Fingerprint) -> int:
        met = self._met.get(id(found))
        if met is not None:  # it is held, so nothing else has this identity
            return met[1]
        number = self._numbers.setdefault(found, len(self._numbers))
        if len(self._met) < KNOWN:
            self._met[id(found)] = found, number
        return number


class Answers:
    """Understands what one process answers: fingerprints have their numbers from answers before."""

    def __init__(self) -> None:
        self._fingerprints: list[Fingerprint] = []

    def read(self, frame: bytes, batch: Sequence[Unread], edition: object) -> list[StoredLetter | None]:
        """What was read of each of these; None: not readable. `edition`: of the dictionaries it knew."""
        answer = ReadBatch(*pickle.loads(frame))  # noqa: S301 -- from our own process
        if answer.anew:
            self._fingerprints.clear()
        self._fingerprints += answer.fingerprints
        known = self._fingerprints
        return [
            None
            if row is None
            else StoredLetter._make(
                (*row[:-5], known[row[-5]], row[-4], letter, PackedContent(edition, *row[-2:]), row[-3])
            )
            for row, (letter, _) in zip(answer.rows, batch, strict=True)
        ]


def main() -> None:
    for meant_for_the_service in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(meant_for_the_service, signal.SIG_IGN)
    frames, out = sys.stdin.buffer, sys.stdout.buffer
    asked = _frame(frames)
    if asked is None:
        return
    reader = Reader(pickle.loads(asked))  # noqa: S301 -- as above
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    try:
        out.write(READY)
        out.flush()
        while (frame := _frame(frames)) is not None:
            answer = reader.answer(frame)
            out.write(LENGTH.pack(len(answer)))
            out.write(answer)
            out.flush()
    except BrokenPipeError:
        sys.stdout = None  # nobody is there; nor is anybody when Python flushes it at the end


def _frame(frames: BinaryIO) -> bytes | None:
    """None at the end, also in the middle of one: whoever asked is gone."""
    head = frames.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    length: int = LENGTH.unpack(head)[0]
    frame = frames.read(length)
    return frame if len(frame) == length else None


if __name__ == "__main__":
    main()
