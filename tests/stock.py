"""A store as a shop has it after a bad week: letters of several services, causes and releases."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Final

from tests.prepared import prepare_file
from tests.recorded import parked, url_of

from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.store.journal.samples import QueueSample
from deadletter.store.letters.letter_store import open_letters

_PAY: Final = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.12/site-packages/httpx/_client.py", line 914, in send
    raise exc
  File "/srv/shop/orders/pay.py", line 41, in charge
    answer = await bank.post("/charges", json=order.as_charge())
  File "/srv/shop/orders/bank.py", line 88, in post
    raise PaymentTimeout(f"no answer from {bank} after {seconds} s")
shop.errors.PaymentTimeout: no answer from bank-7.example after 30 s
"""
_SCHEMA: Final = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.12/site-packages/pydantic/main.py", line 253, in __init__
    validated_self = self.__pydantic_validator__.validate_python(data, self_instance=self)
  File "/srv/shop/stock/reserve.py", line 27, in reserve
    line = OrderLine.model_validate(raw)
pydantic_core.ValidationError: 1 validation error for OrderLine: quantity: Field required
"""
_KEY: Final = """Traceback (most recent call last):
  File "/srv/shop/mail/render.py", line 63, in render
    return self.templates[letter.template].render(letter.context)
KeyError: 'welcome_v3'
"""
_POISON: Final = """Traceback (most recent call last):
  File "/srv/shop/invoices/pdf.py", line 112, in draw
    width = sum(column.width for column in table) / len(table)
ZeroDivisionError: division by zero
"""
_DEADLOCK: Final = """Traceback (most recent call last):
  File "/srv/shop/stock/ledger.py", line 140, in book
    await connection.execute(BOOK, item, amount)
asyncpg.exceptions.DeadlockDetectedError: deadlock detected
"""


def letters(now_ms: int, seed: int = 7) -> list[StoredLetter]:
    """Some hundred, always the same."""
    dice = Random(seed)
    made: list[StoredLetter] = []

    def add(count: int, hours: float, *, body: bytes = b"", **said: object) -> None:
        for _ in range(count):
            number = len(made) + 1
            order = {
                "order": 48_000 + number,
                "customer": {"id": dice.randrange(10_000), "tier": dice.choice(["basic", "gold"])},
                "lines": [
                    {"sku": f"SKU-{dice.randrange(900) + 100}", "quantity": dice.randrange(1, 5)}
                    for _ in range(dice.randrange(1, 4))
                ],
                "total": round(dice.random() * 400, 2),
                "reference": 9007199254740993 + number,
            }
            made.append(
                parked(
                    body or json.dumps(order).encode(),
                    now_ms=now_ms,
                    number=number,
                    ago_s=int(60 + dice.random() ** 1.5 * hours * 3_600),
                    headers={"tenant": dice.choice(["acme", "globex", "initech"]), "trace": f"{number:08x}"},
                    content_type="application/json",
                    message_id=f"order-{48_000 + number}",
                    **said,  # type: ignore[arg-type]  # as `parked` takes them
                )
            )

    add(140, 22, stack=_PAY, release="2.14.0")
    add(
        96,
        0.8,
        origin="stock.reserve",
        error="pydantic_core.ValidationError",
        message="1 validation error for OrderLine: quantity: Field required",
        stack=_SCHEMA,
        release="3.2.0-rc1",
    )
    add(38, 60, origin="mail.send", error="KeyError", message="'welcome_v3'", stack=_KEY, release="1.9.3")
    add(
        1,
        9,
        origin="invoices.pdf",
        error="ZeroDivisionError",
        message="division by zero",
        stack=_POISON,
        release="4.0.1",
        body=b'{"invoice": 991, "table": []}',
    )
    add(
        17,
        20,
        origin="stock.ledger",
        error="asyncpg.exceptions.DeadlockDetectedError",
        message="deadlock detected",
        stack=_DEADLOCK,
        release="3.1.4",
    )
    return made


async def stocked(path: Path, now_ms: int) -> str:
    """A store with them in a file; its URL. Failure by failure: so are the groups numbered."""
    prepare_file(path)
    async with open_letters(url_of(path), now_ms=lambda: now_ms) as store:
        for _, some in groupby(letters(now_ms), key=lambda letter: letter.origin):
            await store.ingest(list(some))
    return url_of(path)


def sampled(now_ms: int) -> list[QueueSample]:
    """How its queues were in the last hours, by the minute."""
    minute = now_ms // 60_000
    return [
        QueueSample(
            vhost="/",
            queue=queue,
            minute=minute - ago,
            depth=(depth := int(41 * (1 - ago / 600) + 6 * (ago % 37 < 9)) if watched else ago % 5),
            depth_most=depth + 1,
            consumers=1,
            oldest_s=73.0,
            in_per_s=0.5,
            out_per_s=0.4,
        )
        for queue, watched in (("orders.dlq", True), ("deadletter.due", False))
        for ago in range(600)
    ]
