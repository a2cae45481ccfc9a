"""Parked letters as a busy shop has them: orders of about 1,000 bytes, failed in one of many places.

Every letter differs from every other in ids, names, amounts and times; letters of one group share the stack,
as they do where a handler fails again and again. Nothing is random from run to run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode

BODY_BYTES: Final = 1_000
QUEUES: Final = 20
_BEGAN: Final = datetime(2026, 10, 1, tzinfo=UTC)
_EVERY_MS: Final = 400
_WORDS: Final = (
    "amber", "anchor", "apple", "arrow", "autumn", "barley", "basket", "beacon", "birch", "bottle",
    "branch", "bridge", "candle", "canvas", "cedar", "chalk", "cherry", "clover", "cobalt", "copper",
    "coral", "cotton", "crystal", "daisy", "delta", "ember", "fabric", "feather", "fennel", "forest",
    "garnet", "ginger", "granite", "hazel", "honey", "indigo", "ivory", "jasmine", "juniper", "lantern",
    "lemon", "linen", "maple", "marble", "meadow", "mint", "mosaic", "nectar", "oak", "olive", "onyx",
    "orchid", "paper", "pearl", "pepper", "pine", "plum", "quartz", "raven", "reed", "river", "rose",
    "saffron", "sage", "sand", "silver", "slate", "spruce", "stone", "sugar", "thistle", "timber",
    "tulip", "velvet", "violet", "walnut", "willow", "wool",
)  # fmt: skip
_ERRORS: Final = (
    ("TimeoutError", "the ledger did not answer within {n} ms (request {u})"),
    ("ConnectionRefusedError", "[Errno 111] Connect call failed ('10.0.{a}.{b}', 5432)"),
    ("KeyError", "'order-{n}'"),
    ("ValueError", "amount {n}.{b} is more than the limit of account {u}"),
    ("IntegrityError", "duplicate key value violates unique constraint: Key (id)=({n}) already exists"),
)


def letters(count: int, *, groups: int, seed: int = 7, first: int = 0) -> Iterator[Letter]:
    """So many letters, of so many groups, in the order in which they died."""
    chance = random.Random(seed)
    stacks = [_stack(group) for group in range(groups)]
    for number in range(first, first + count):
        yield _letter(number, chance.randrange(groups), stacks, chance)


def _stack(group: int) -> str:
    chance = random.Random(group)
    lines = ["Traceback (most recent call last):"]
    installed = "/usr/local/lib/python3.12/site-packages"
    frames = [
        (f"{installed}/deadletter/consumer/running.py", "_handle", "await self._handler(message)"),
        (
            f"/srv/shop/handlers/{_WORDS[group % 60]}.py",
            "handle",
            f"await process_{group % 97}(order, session)",
        ),
    ]
    for depth in range(chance.randrange(2, 6)):
        word = chance.choice(_WORDS)
        frames.append(
            (f"/srv/shop/{word}/service_{group}.py", f"{word}_{depth}", f"return {word}.apply(order)")
        )
    frames.append(
        (f"/srv/shop/ledger/client_{group}.py", f"book_{group}", "result = await self._send(request)")
    )
    frames.append((f"{installed}/httpx/_client.py", "send", "response = await self._send_handling_auth("))
    for path, function, line in frames:
        lines += [f'  File "{path}", line {chance.randrange(10, 900)}, in {function}', f"    {line}"]
    return "\n".join(lines)


def _letter(number: int, group: int, stacks: list[str], chance: random.Random) -> Letter:
    kind, said = _ERRORS[group % len(_ERRORS)]
    uuid = _uuid(chance)
    message = said.format(
        n=chance.randrange(1, 99_999), u=uuid, a=chance.randrange(256), b=chance.randrange(99)
    )
    queue = f"shop.{_WORDS[group % QUEUES]}"
    at = _BEGAN + timedelta(milliseconds=number * _EVERY_MS)
    at_ms = int(at.timestamp() * 1000)
    key = f"order.{('placed', 'paid', 'shipped')[group % 3]}"
    death: dict[str, Value] = {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "time": at.replace(microsecond=0),
        "exchange": "shop.events",
        "routing-keys": [key],
    }
    headers: dict[str, Value] = {
        "tenant": _WORDS[chance.randrange(60)],
        "traceparent": f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01",
        names.ERROR_TYPE: kind,
        names.ERROR_MESSAGE: message,
        names.ERROR_STACK: f"{stacks[group]}\n{kind}: {message}",
        names.ERROR_HOST: f"worker-{chance.randrange(12)}",
        names.ERROR_RELEASE: f"2026.10.{number // 100_000}",
        names.ERROR_SERVICE: "shop",
        names.ERROR_AT: at_ms - 40,
        names.ERROR_FIRST_AT: at_ms - 60_000,
        names.ID: f"{chance.getrandbits(128):032x}",
        names.SOURCE: f"{queue}.dlq",
        names.MOVE: f"a1b2c3d4e5f6-{number}",
        names.SOURCE_EXCHANGE: "shop.dlx",
        names.SOURCE_ROUTING_KEY: key,
        names.ATTEMPT: 3,
        names.ORIGIN_QUEUE: queue,
        names.ORIGIN_EXCHANGE: "shop.events",
        names.ORIGIN_ROUTING_KEY: key,
        names.POLICY: "orders",
        names.CAUSE: "retries-exhausted" if group % 10 else "permanent",
        names.WHY: "it failed 4 times, the last one on attempt 4 of 4",
        names.PARKED_AT: at_ms,
        names.DEATHS: [death],
    }
    view = View(
        content_type="application/json",
        delivery_mode=2,
        message_id=uuid,
        app_id="shop",
        type=key,
        headers=headers,
    )
    return Letter(
        source=names.PARKED,
        message=RawMessage(encode(view), _body(number, uuid, chance)),
        came_by=ExchangeKey(b"", names.PARKED.encode()),
        redelivered=False,
    )


def _uuid(chance: random.Random) -> str:
    text = f"{chance.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _body(number: int, uuid: str, chance: random.Random) -> bytes:
    person = f"{chance.choice(_WORDS)}.{chance.choice(_WORDS)}"
    order: dict[str, object] = {
        "order_id": uuid,
        "number": 10_000_000 + number,
        "customer": {
            "name": person.replace(".", " ").title(),
            "email": f"{person}{chance.randrange(999)}@example.com",
            "phone": f"+49 30 {chance.randrange(10**7, 10**8)}",
            "street": f"{chance.choice(_WORDS).title()} Street {chance.randrange(200)}",
            "postcode": f"{chance.randrange(10_000, 99_999)}",
        },
        "currency": "EUR",
        "items": [],
    }
    items: list[object] = []
    while True:
        items.append(
            {
                "sku": f"{chance.choice(_WORDS)[:3].upper()}-{chance.randrange(100_000)}",
                "title": f"{chance.choice(_WORDS)} {chance.choice(_WORDS)}",
                "quantity": chance.randrange(1, 9),
                "price": chance.randrange(100, 99_999) / 100,
            }
        )
        made = json.dumps({**order, "items": items}).encode()
        if len(made) >= BODY_BYTES - 40:
            return made
