"""What a broker writes on a message that dies, and when it sees a cycle.

3.x keeps the deaths in the `x-death` header itself, and so believes what a client wrote there. 4.x remembers
them beside the message and writes the header anew at every death: what a client wrote is gone then. Both keep
one entry per {queue, reason}, the newest first, with the time, exchange and keys of the pair's first death.

A message that would come into a queue in which it died before, with no rejection since, is in a cycle that
nobody drives: it is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.testing.memory.contents.items import (
    QueuedCopy,
    Record,
    in_order,
    short_property,
    with_headers,
    without,
)

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"

_X_DEATH: Final = names.X_DEATH.encode()
_FIRST: Final = b"x-first-death-"
_LAST: Final = b"x-last-death-"
_FAMILY: Final = frozenset(
    {_X_DEATH} | {begin + what for begin in (_FIRST, _LAST) for what in (b"exchange", b"queue", b"reason")}
)
_CC: Final = b"CC"


def dead(
    item: QueuedCopy,
    traits: Traits,
    *,
    queue: str,
    reason: str,
    time_s: int,
    to_exchange: str,
    to_key: str | None,
) -> QueuedCopy:
    """The message as it leaves for the dead-letter exchange."""
    record = Record(
        queue=queue,
        reason=reason,
        count=1,
        time_s=time_s,
        exchange=item.exchange,
        keys=item.keys,
        original_expiration=short_property(item.properties, message.EXPIRATION),
    )
    gone = item.copy()
    properties = without(item.properties, message.EXPIRATION)
    headers = message.header_table(properties)
    if traits.believes_clients:
        headers = _entered(headers, record)
    else:
        gone.deaths = _remembered(item.deaths, record)
        headers = _written(headers, gone.deaths, last=traits.last_death)
    if to_key is not None and not traits.keeps_cc:
        headers = field_table.splice(headers, remove=frozenset({_CC}))
    gone.properties = with_headers(properties, in_order(headers))
    gone.exchange = to_exchange
    if to_key is not None:
        # 4.x leaves `CC` on the letter, but the key is now the only way it goes.
        gone.keys = (to_key,)
    return gone


def is_cycle(item: QueuedCopy, traits: Traits, *, target: str) -> bool:
    """Whether a message that has died may not come into this queue."""
    pairs = _header_pairs(item.properties) if traits.believes_clients else _pairs(item.deaths)
    for queue, why in pairs:
        if why == REJECTED:
            return False
        if queue == target:
            return True
    return False


def _pairs(records: Iterable[Record]) -> list[tuple[str, str]]:
    return [(record.queue, record.reason) for record in records]


def _header_pairs(properties: bytes) -> list[tuple[str, str]]:
    found = field_table.decode(message.header_table(properties)).get(names.X_DEATH)
    if not isinstance(found, list):
        return []
    return [(str(e.get("queue")), str(e.get("reason"))) for e in found if isinstance(e, Mapping)]


# -- 4.x: beside the message --------------------------------------------------------------------------------
def _remembered(records: tuple[Record, ...], new: Record) -> tuple[Record, ...]:
    same = [r for r in records if (r.queue, r.reason) == (new.queue, new.reason)]
    others = tuple(r for r in records if r not in same)
    return (replace(same[0], count=same[0].count + 1) if same else new, *others)


def _written(headers: bytes, records: tuple[Record, ...], *, last: bool) -> bytes:
    entry = field_table.entry(names.X_DEATH, [_as_table(record, expiration_first=True) for record in records])
    # The first death is the oldest pair's; a pair's place is its newest death, so it is not simply the last.
    kept = {name: headers[start:end] for name, start, _, end in field_table.walk(headers) if name in _FAMILY}
    ours = len(records) > 1 or records[0].count > 1
    first = b"".join(kept.get(_FIRST + what, b"") for what in (b"exchange", b"queue", b"reason"))
    if not ours:
        first = _names(_FIRST, records[0])
    return field_table.splice(
        headers, remove=_FAMILY, add=entry + first + (_names(_LAST, records[0]) if last else b"")
    )


def _names(begin: bytes, record: Record) -> bytes:
    values = ((b"exchange", record.exchange), (b"queue", record.queue), (b"reason", record.reason))
    return b"".join(
        field_table.raw_entry(begin + what, field_table.encode_value(value)) for what, value in values
    )


def _as_table(record: Record, *, expiration_first: bool) -> dict[str, Value]:
    expiration: dict[str, Value] = {}
    if record.original_expiration is not None:
        expiration["original-expiration"] = record.original_expiration.decode("utf-8", "backslashreplace")
    told: dict[str, Value] = {
        "count": record.count,
        "reason": record.reason,
        "queue": record.queue,
        "time": datetime.fromtimestamp(record.time_s, UTC),
        "exchange": record.exchange,
        "routing-keys": list(record.keys),
    }
    return expiration | told if expiration_first else told | expiration


# -- 3.x: in the header -------------------------------------------------------------------------------------
def _entered(headers: bytes, record: Record) -> bytes:
    found = field_table.find(headers, frozenset({_X_DEATH}))
    info = field_table.encode(_as_table(record, expiration_first=False))
    if not found or headers[found[0][2]] != ord("A"):
        remove = frozenset({_X_DEATH, _FIRST + b"exchange", _FIRST + b"queue", _FIRST + b"reason"})
        return field_table.splice(headers, remove=remove, add=_list([_table(info)]) + _names(_FIRST, record))
    _, _, value, end = found[0]
    same: list[bytes] = []
    others: list[bytes] = []
    for element in field_table.elements(headers[value + 5 : end]):
        (same if _is_pair(element, record) else others).append(element)
    newest = in_order(_counted(same[0][5:]) if same else info)
    return field_table.splice(headers, remove=frozenset({_X_DEATH}), add=_list([_table(newest), *others]))


def _is_pair(element: bytes, record: Record) -> bool:
    entry = field_table.decode_value(element)
    return isinstance(entry, Mapping) and (entry.get("queue"), entry.get("reason")) == (
        record.queue,
        record.reason,
    )


def _counted(entry: bytes) -> bytes:
    count = field_table.decode(entry).get("count")
    more = field_table.entry("count", count + 1 if isinstance(count, int) else 1)
    return field_table.splice(entry, remove=frozenset({b"count"}), add=more)


def _table(raw: bytes) -> bytes:
    return b"F" + len(raw).to_bytes(4, "big") + raw


def _list(elements: list[bytes]) -> bytes:
    raw = b"".join(elements)
    return field_table.raw_entry(_X_DEATH, b"A" + len(raw).to_bytes(4, "big") + raw)
