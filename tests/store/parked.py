"""Letters for the store's tests: parked ones, as the service parks them, and a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.store.grounds import Ground

from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.store.letters.letter_store import LetterStore, open_letters

NOON_MS = 1_790_812_800_000
MINUTE_MS = 60_000


@dataclass
class Clock:
    """What the store takes for the time."""

    now_ms: int = NOON_MS

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def letters_at(ground: Ground, clock: Clock | None = None) -> AsyncIterator[LetterStore]:
    async with open_letters(ground.url, now_ms=clock or Clock()) as store:
        yield store


def parked(
    number: int = 1,
    *,
    error: str | None = "the ledger did not answer",
    kind: str = "TimeoutError",
    origin: str = "orders",
    queue: str = names.PARKED,
    move: str | None = "",
    at_ms: int = NOON_MS,
    release: str = "1.0",
    host: str = "worker-1",
    cause: str = "retries-exhausted",
    body: bytes | None = None,
    message_id: str = "",
    headers: dict[str, Value] | None = None,
) -> Letter:
    """One letter; `number` makes it its own. `move`: None for one that nothing tells from an equal one."""
    told: dict[str, Value] = {
        names.ID: f"{number:032x}",
        names.ORIGIN_QUEUE: origin,
        names.ATTEMPT: 3,
        names.CAUSE: cause,
        **(headers or {}),
    }
    if move is not None:
        told |= {names.MOVE: move or f"run-{number}", names.PARKED_AT: at_ms}
    if error is not None:
        told |= {
            names.ERROR_TYPE: kind,
            names.ERROR_MESSAGE: error,
            names.ERROR_RELEASE: release,
            names.ERROR_HOST: host,
            names.ERROR_AT: at_ms,
        }
    view = View(delivery_mode=2, content_type="text/plain", message_id=message_id or None, headers=told)
    return Letter(
        source=queue,
        message=RawMessage(encode(view), f"letter {number}".encode() if body is None else body),
        came_by=ExchangeKey(b"", queue.encode()),
        redelivered=False,
    )


def stored(*letters: Letter, now_ms: int = NOON_MS) -> list[StoredLetter]:
    return [stored_letter(letter, now_ms=now_ms) for letter in letters]
