"""A store with letters in it, made by hand: several causes, hostile text, every kind of body."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.letters import letter
from tests.prepared import prepare_file

from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.store.letters.letter_store import LetterStore, open_letters

HOSTILE = "boom\x1b[2J\u202egnp.exe\x07"
STACK = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.12/site-packages/httpx/_client.py", line 914, in send
    raise exc
  File "/srv/shop/orders/pay.py", line 41, in charge
    raise PaymentTimeout(f"no answer from {bank} after {seconds} s")
shop.errors.PaymentTimeout: no answer from bank-7.example after 30 s
"""


def parked(
    body: bytes,
    *,
    now_ms: int,
    number: int,
    origin: str = "orders",
    error: str = "shop.errors.PaymentTimeout",
    message: str = "no answer from bank-7.example after 30 s",
    stack: str = STACK,
    release: str = "1.4.2",
    ago_s: int = 60,
    queue: str = names.PARKED,
    headers: dict[str, Any] | None = None,
    **properties: object,
) -> StoredLetter:
    """A letter as the service parks it, after three tries; `number` makes it one of its own."""
    died = datetime.fromtimestamp(now_ms / 1000 - ago_s, UTC).replace(microsecond=0)
    said: dict[str, Any] = {
        names.ID: f"{number:032x}",
        names.MOVE: f"run-{number}",
        names.CAUSE: "retries-exhausted",
        names.WHY: "it was tried 3 times",
        names.PARKED_AT: now_ms - ago_s * 1000,
        names.ATTEMPT: 3,
        names.ORIGIN_QUEUE: origin,
        names.ERROR_TYPE: error,
        names.ERROR_MESSAGE: message,
        names.ERROR_STACK: stack,
        names.ERROR_RELEASE: release,
        names.ERROR_HOST: "worker-3",
        names.DEATHS: [
            {"queue": origin, "reason": "rejected", "count": 4, "time": died, "exchange": "shop",
             "routing-keys": ["order.new"]},
        ],
        **(headers or {}),
    }  # fmt: skip
    raw = letter(body, headers=said, **properties)
    whole = Letter(source=queue, message=raw, came_by=ExchangeKey(b"", queue.encode()), redelivered=False)
    return stored_letter(whole, now_ms=now_ms)


def collection(now_ms: int) -> list[StoredLetter]:
    """Nine letters of four causes."""
    made = [
        parked(
            f'{{"order": {number}, "total": {number * 100}.50, "big": 12345678901234567890}}'.encode(),
            now_ms=now_ms,
            number=number,
            ago_s=number * 3_000,
            headers={"tenant": "acme" if number % 2 else "other"},
            content_type="application/json",
            message_id=f"m-{number}",
        )
        for number in range(1, 6)
    ]
    made += [
        parked(
            b"plain words about Apples",
            now_ms=now_ms,
            number=20,
            origin="mail",
            error="KeyError",
            message="'template'",
            stack="",
            release="",
            ago_s=86_400 * 3,
            content_type="text/plain",
        ),
        parked(
            b"\x00\x01\xff\xfe binary",
            now_ms=now_ms,
            number=21,
            origin=f"evil{HOSTILE}",
            error=f"Err{HOSTILE}",
            message=HOSTILE,
            stack=HOSTILE,
            release=HOSTILE,
            headers={f"x-{HOSTILE}": HOSTILE, "x-bytes": b"\xff\x00"},
        ),
    ]
    for number in (30, 31):
        raw = letter(
            b"{broken",
            content_type="application/json",
            headers={
                "x-death": [
                    {"queue": "stock", "reason": "expired", "count": 1, "exchange": "", "routing-keys": ["s"],
                     "time": datetime(2025, 6, 1, 12, tzinfo=UTC)},
                ],
                names.ID: f"{number:032x}",
            },
        )  # fmt: skip
        whole = Letter(
            source="stock.dlq", message=raw, came_by=ExchangeKey(b"dlx", b"stock"), redelivered=False
        )
        made.append(stored_letter(whole, now_ms=now_ms))
    return made


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def filled(store: LetterStore, now_ms: int) -> None:
    """One by one: groups have their numbers in the order of their letters, whatever their keys are."""
    for one in collection(now_ms):
        await store.ingest([one])


async def make(path: Path, now_ms: int) -> str:
    """A store with the collection in a file; its URL."""
    prepare_file(path)
    async with open_letters(url_of(path), now_ms=lambda: now_ms) as store:
        await filled(store, now_ms)
    return url_of(path)
