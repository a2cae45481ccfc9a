"""A message that was put away, as it is published once more: the very same, but for what the broker forbids.

Nothing of ours is added and nothing is set right; not even the delivery mode. What has to change:

- the broker's delivery counts come off: they are the last queue's, not the message's, and the next queue
  would take them for its own;
- a `user_id` that is not the connection's is set aside (the broker would close the channel);
- `CC` and `BCC` are set aside where the way may lead to other queues: each name in them would get a copy.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from deadletter.core.letter import field_table, names
from deadletter.core.letter.message import (
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    USER_ID,
    RawMessage,
    flags_of,
    spans,
)

_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack
_COUNTS: Final = frozenset(name.encode() for name in names.DELIVERY_COUNTS)
_COPIES: Final = {b"CC": names.CC.encode(), b"BCC": names.BCC.encode()}
_PERSISTENT: Final = 2


class Restored(NamedTuple):
    """The message to publish, and what is to be said of it."""

    message: RawMessage
    set_aside: tuple[str, ...]
    """What went into headers of ours instead: `user_id`, `CC`, `BCC`."""
    expires: bool
    """It has an `expiration`, which begins anew in its queue."""
    transient: bool
    """It is not persistent: a restart of the broker loses it."""


def restored(message: RawMessage, *, user: str, may_copy: bool) -> Restored:
    """`user`: of the connection that publishes. Raises MessageError for properties that are none."""
    raw = message.properties
    flags, where = flags_of(raw), spans(raw)
    span = where.get(HEADERS)
    table = b"" if span is None else raw[span.start + 4 : span.end]
    changed = _COUNTS | (frozenset(_COPIES) if may_copy else frozenset[bytes]())
    entries = field_table.find(table, changed)
    added: list[bytes] = []
    aside: list[str] = []
    for name, _, start, end in entries:
        if name in _COPIES:
            added.append(field_table.raw_entry(_COPIES[name], table[start:end]))
            aside.append(name.decode())
    foreign = where.get(USER_ID)
    if foreign is not None and (told := raw[foreign.start + 1 : foreign.end]) != user.encode():
        added.append(field_table.raw_entry(names.USER_ID.encode(), b"S" + _pack_u32(len(told)) + told))
        aside.append("user_id")
    else:
        foreign = None
    mode = where.get(DELIVERY_MODE)
    transient = mode is None or raw[mode.start] != _PERSISTENT
    expires = EXPIRATION in where
    if not entries and not added:
        return Restored(message, (), expires, transient)
    kept = field_table.cut(table, entries) + b"".join(added)
    # A table that held nothing but counts was not there when it was published.
    headers = _pack_u32(len(kept)) + kept if kept else b""
    flags = (flags | HEADERS if kept else flags & ~HEADERS) & ~(USER_ID if foreign is not None else 0)
    pieces = [_pack_u16(flags)]
    for flag in sorted({*where, HEADERS}, reverse=True):  # the values stand in the order of their flags
        if flag == HEADERS:
            pieces.append(headers)
        elif flag != USER_ID or foreign is None:
            found = where[flag]
            pieces.append(raw[found.start : found.end])
    return Restored(RawMessage(b"".join(pieces), message.body), tuple(aside), expires, transient)
