"""What a move changes on a letter, and nothing else.

A moved letter keeps its body and its properties byte for byte, except:

- headers of ours are added: its id, where it was taken from, which publish moved it, how it first came;
- the broker's delivery counts come off (a later queue would take them for its own);
- on the way back to an origin the `x-death` family comes off too and its entries are kept under a name of
  ours (RabbitMQ 3.x reads them as a cycle and drops the letter); towards a parking place they stay;
- `expiration` is set aside (a letter must not expire in its new home), and so is a `user_id` that is not
  the connection's (the broker would close the channel);
- through the default exchange `CC` and `BCC` are set aside (each name in them would get a copy), and `CC`
  is put back on the way home through an exchange of ours, which cannot copy;
- `priority` is set aside where the letter waits (it would overtake others) and put back on the way home;
- delivery mode is persistent.

Everything is cut and joined as bytes. The only thing computed from the content is the id.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, assert_never

from deadletter.core.letter import field_table, names, property_tail
from deadletter.core.letter.deaths_aside import MAX_DEATHS_BYTES as MAX_DEATHS_BYTES
from deadletter.core.letter.deaths_aside import entries_of, newest
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    USER_ID,
    RawMessage,
    flags_of,
)
from deadletter.core.letter.message import spans as spans_of
from deadletter.core.letter.move_kind import Deaths as Deaths
from deadletter.core.letter.move_kind import Leg as Leg
from deadletter.errors import UsageError

_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack
_unpack_u32: Final = Struct(">I").unpack_from


class ExchangeKey(NamedTuple):
    """Exchange and routing key, as bytes on the wire."""

    exchange: bytes
    routing_key: bytes


_ID: Final = names.ID.encode()
_MOVE: Final = names.MOVE.encode()
_SOURCE: Final = names.SOURCE.encode()
_EXCHANGE: Final = names.SOURCE_EXCHANGE.encode()
_ROUTING_KEY: Final = names.SOURCE_ROUTING_KEY.encode()
_DEATHS: Final = names.DEATHS.encode()
_X_DEATH: Final = names.X_DEATH.encode()
_VOLATILE: Final = frozenset(name.encode() for name in names.DELIVERY_COUNTS)
_SUMMARY: Final = frozenset(name.encode() for name in names.DEATH_SUMMARY)
_BY_NAME: Final = frozenset({b"", names.ASKED.encode()})
"""Exchanges by which a letter comes to the queue that its key names."""
_COPIES: Final = {b"CC": names.CC.encode(), b"BCC": names.BCC.encode()}

_PRIORITY: Final = names.PRIORITY.encode()
_CC: Final = names.CC.encode()
_ONCE: Final = frozenset(
    {property_tail.EXPIRATION_HEADER, property_tail.USER_ID_HEADER, _PRIORITY, *_COPIES.values()}
)
_TRANSIENT: Final = frozenset(
    name.encode() for name in (names.DUE_AT, names.RELEASED_AT, names.CAUSE, names.WHY, names.PARKED_AT)
)
"""They tell of the place a letter is in; it leaves them there."""
_OURS: Final = _ONCE | {_ID, _MOVE, _SOURCE, _EXCHANGE, _ROUTING_KEY, _DEATHS}
_ALWAYS: Final = _VOLATILE | _ONCE | _TRANSIENT | {_ID, _MOVE, _SOURCE, _EXCHANGE, _ROUTING_KEY}
_OF_DEATHS: Final = {
    Deaths.KEEP: frozenset[bytes](),
    Deaths.SET_ASIDE: _SUMMARY | {_X_DEATH, _DEATHS},
    Deaths.FORGET: _SUMMARY | {_X_DEATH},
}
_TOUCHED: Final = {
    (deaths, default): _ALWAYS | (frozenset(_COPIES) if default else frozenset()) | _OF_DEATHS[deaths]
    for deaths in Deaths
    for default in (False, True)
}

_CIRCLING: Final = _VOLATILE | _SUMMARY | {_X_DEATH, b"CC"}
"""What changes on a letter that the broker itself sends round; 3.x takes the `CC` off."""

_PERSISTENT: Final = b"\x02"
_ADDED_FLAGS: Final = HEADERS | DELIVERY_MODE
_SET_ASIDE_FLAGS: Final = EXPIRATION | USER_ID
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
_DROPPED: Final = _SUMMARY | _TRANSIENT | {_MOVE, _SOURCE}
"""Told again, by the entries of `x-death` or by this move."""
_CAME_BY: Final = frozenset({_EXCHANGE, _ROUTING_KEY})


def _prefix(name: bytes, kind: bytes) -> bytes:
    return bytes((len(name),)) + name + kind


_ID_PREFIX: Final = _prefix(_ID, b"S") + _pack_u32(32)
_ID_FORM: Final = re.compile(rb"S\x00\x00\x00\x20[0-9a-f]{32}")
_IS_ID: Final = _ID_FORM.fullmatch
_MOVE_PREFIX: Final = _prefix(_MOVE, b"S")
_EXCHANGE_PREFIX: Final = _prefix(_EXCHANGE, b"S")
_KEY_PREFIX: Final = _prefix(_ROUTING_KEY, b"S")
_DEATHS_PREFIX: Final = _prefix(_DEATHS, b"A")


def letter_id(message: RawMessage, *, source: str, circling: bool = False) -> str:
    """The id of a letter: the one it carries, else one derived from all that does not change on redelivery.

    The same letter taken twice from the same queue has the same id. Two letters equal in every byte do
    too; an id alone never merges letters. `circling`: also the same when it died in between.
    """
    parts = _take_apart(message.properties)
    found = _sort(parts[2], field_table.find(parts[2], _ALWAYS), {})
    return (found.id or _derive(message, parts, found.volatile, _hasher(source), circling)).decode()


def delivery_count(properties: bytes) -> int:
    """How often the broker says it tried to deliver this letter before; 0 where it does not count."""
    headers = headers_of(properties)
    for entry in field_table.find(headers, frozenset({names.X_DELIVERY_COUNT.encode()})):
        value = field_table.decode_value(headers[entry[2] : entry[3]])
        if isinstance(value, int):
            return value
    return 0


def move_number(properties: bytes, run: str) -> int | None:
    """Which publish of this run a returned message is; None when it is none of this run."""
    headers = headers_of(properties)
    for entry in field_table.find(headers, frozenset({_MOVE})):
        value = field_table.decode_value(headers[entry[2] : entry[3]])
        if isinstance(value, str) and value.startswith(run + "-"):
            number = value[len(run) + 1 :]
            return int(number) if number.isdecimal() and len(number) < 20 else None
    return None


class EnvelopeRoute:
    """The way from one queue to one target: everything that is the same for each letter, computed once.

    `run` names the run, `source` the queue the letters come from, `user` the user of the connection that
    publishes; `add` are headers of the caller's, which replace those of the same name, `without` are
    those that end here. `anew`: the headers of ours that it carries are another letter's, and an application
    copied them; none of them goes on. `circling`: its id is the one it had before it died.
    """

    __slots__ = (
        "_circling", "_constant", "_copies", "_dropped", "_hasher", "_leg", "_move", "_user", "touched"
    )  # fmt: skip

    def __init__(
        self,
        *,
        run: str,
        source: str,
        user: str,
        target: ExchangeKey,
        deaths: Deaths,
        leg: Leg = Leg.PLAIN,
        anew: bool = False,
        circling: bool = False,
        add: Mapping[str, Value] = _NOTHING,
        without: Collection[str] = (),
    ) -> None:
        self._user = user.encode()
        self._circling = circling
        added = frozenset(map(str.encode, add))  # of a letter that failed they are its own: often and quickly
        if forged := _OURS & added:
            raise UsageError(f"a move writes these headers itself: {b', '.join(sorted(forged)).decode()}")
        by_name = target.exchange in _BY_NAME
        if by_name and not added.isdisjoint(_COPIES):
            raise UsageError(
                "CC and BCC through the default exchange would make a copy for each name in them"
            )
        self._copies = _COPIES if by_name else {}
        self._leg = leg
        another = (_OURS if anew else frozenset[bytes]()) | {name.encode() for name in without}
        self._dropped = _DROPPED | another | ({_X_DEATH} if deaths is Deaths.FORGET else frozenset())
        self.touched: Final[frozenset[bytes]] = _TOUCHED[deaths, by_name] | another | added
        """The headers that do not go on as they are."""
        self._constant = field_table.entry(names.SOURCE, source) + field_table.encode(add)
        self._move = run.encode() + b"-%d"
        self._hasher = _hasher(source)

    def properties(
        self,
        message: RawMessage,
        *,
        came_by: ExchangeKey,
        number: int,
        more: bytes = b"",
        own_id: bytes = b"",
        entries: Sequence[field_table.Entry] | None = None,
    ) -> bytes:
        """The properties with which this letter goes. This is the loop of the safe move.

        `more` are header entries of this letter alone, encoded. `own_id`: its id, where that is known and
        not told by its content. `entries`: where the headers that are `touched`, and others, stand in the
        table, where somebody has walked it. Raises MessageError when the properties are not what AMQP says
        they are.
        """
        parts = flags, before, headers, _, rest = _take_apart(message.properties)
        if entries is None:
            touched = field_table.find(headers, self.touched)
        else:
            touched = [entry for entry in entries if entry[0] in self.touched]
        found = _sort(headers, touched, self._copies, self._dropped) if touched else _UNTOUCHED
        move = self._move % number
        pieces = [
            b"",  # becomes the flags and everything before the table, when its length is known
            field_table.cut(headers, touched),
            self._constant,
            more,
            found.came_by if found.came_by_whole else _came_by(came_by, found.came_by),
            _MOVE_PREFIX,
            _pack_u32(len(move)),
            move,
            _ID_PREFIX,
            own_id or found.id or _derive(message, parts, found.volatile, self._hasher, self._circling),
            found.aside,
        ]
        kept = found.kept
        if flags & _SET_ASIDE_FLAGS:
            kept = dict(kept)
            flags, rest = property_tail.set_aside(flags, rest, self._user, kept)
        else:
            property_tail.check(flags, rest)
        match self._leg:
            case Leg.PLAIN:
                pass
            case Leg.WAIT:
                if flags & PRIORITY:
                    kept = {**kept, _PRIORITY: field_table.raw_entry(_PRIORITY, b"B" + rest[:1])}
                    flags, rest = flags & ~PRIORITY, rest[1:]
            case Leg.HOME:
                if kept:
                    flags, rest, kept = self._put_back(flags, rest, dict(kept))
            case _:
                assert_never(self._leg)
        pieces += kept.values()
        length = sum(map(len, pieces))
        pieces[0] = _pack_u16(flags | _ADDED_FLAGS) + before + _pack_u32(length)
        pieces += (_PERSISTENT, rest)
        return b"".join(pieces)

    def _put_back(
        self, flags: int, rest: bytes, kept: dict[bytes, bytes]
    ) -> tuple[int, bytes, dict[bytes, bytes]]:
        """What was set aside for the wait. What would copy the letter on this way stays aside."""
        priority = kept.pop(_PRIORITY, b"")
        if priority[-2:-1] == b"B" and not flags & PRIORITY:
            flags, rest = flags | PRIORITY, priority[-1:] + rest  # it stands first of what follows the mode
        if not self._copies and (entry := kept.pop(_CC, b"")):
            kept[_CC] = field_table.raw_entry(b"CC", entry[1 + len(_CC) :])
        return flags, rest, kept


_Parts: TypeAlias = tuple[int, bytes, bytes, bytes, bytes]
"""Flags, what stands before the header table, the table, the delivery mode, and what follows it."""


def _take_apart(raw: bytes) -> _Parts:
    flags = flags_of(raw)
    headers = mode = b""
    position = 2
    try:
        if flags & CONTENT_TYPE:
            position += 1 + raw[position]
        if flags & CONTENT_ENCODING:
            position += 1 + raw[position]
        before = raw[2:position]
        if flags & HEADERS:
            end = position + 4 + int(_unpack_u32(raw, position)[0])
            headers = raw[position + 4 : end]
            position = end
        if flags & DELIVERY_MODE:
            mode = raw[position : position + 1]
            position += 1
    except (IndexError, StructError):
        spans_of(raw)  # raises, and says what is wrong
        raise
    if position > len(raw):
        spans_of(raw)
    return flags, before, headers, mode, raw[position:]


def headers_of(properties: bytes) -> bytes:
    """The header table. Quick, and what follows it is not looked at: `message.header_table` does."""
    return _take_apart(properties)[2]


def _hasher(source: str) -> blake2b:
    return blake2b(source.encode() + b"\0", digest_size=16)


class _Found(NamedTuple):
    """What stood in the entries that a move touches."""

    id: bytes
    came_by: bytes
    came_by_whole: bool
    aside: bytes
    """Deaths that go on under a name of ours, their values as they came."""
    kept: Mapping[bytes, bytes]
    """Whole entries of what is set aside once: a later one replaces an earlier one."""
    volatile: list[field_table.Entry]


_UNTOUCHED: Final = _Found(b"", b"", False, b"", {}, [])


def _sort(
    headers: bytes,
    touched: list[field_table.Entry],
    copies: Mapping[bytes, bytes],
    dropped: frozenset[bytes] = _DROPPED,
) -> _Found:
    identity = newer = older = aside = b""
    came_by: dict[bytes, bytes] = {}
    kept: dict[bytes, bytes] = {}
    fresh: dict[bytes, bytes] = {}
    volatile: list[field_table.Entry] = []
    for entry in touched:
        name, at, start, end = entry
        if name in dropped:
            continue
        if name == _X_DEATH:
            newer += entries_of(headers, start, end)
        elif name == _DEATHS:
            older += entries_of(headers, start, end)
        elif name in _VOLATILE:
            volatile.append(entry)
        elif name in _CAME_BY:
            came_by[name] = headers[at:end]  # what an earlier move wrote is kept, it knew better
        elif name in copies:
            fresh[copies[name]] = field_table.raw_entry(copies[name], headers[start:end])
        elif name in _ONCE:
            kept[name] = headers[at:end]
        elif name == _ID and _IS_ID(headers, start, end):
            # An id is 32 hexadecimal digits; whatever else stands there is not one of ours.
            identity = headers[start + 5 : end]
    if newer or older:
        deaths = newest(newer + older)
        aside = _DEATHS_PREFIX + _pack_u32(len(deaths)) + deaths
    if fresh:
        kept |= fresh
    return _Found(identity, b"".join(came_by.values()), len(came_by) == 2, aside, kept, volatile)


def _derive(
    message: RawMessage, parts: _Parts, volatile: list[field_table.Entry], hasher: blake2b, circling: bool
) -> bytes:
    """The id of a letter that carries none, from what is the same at each delivery.

    Delivery counts change, a table that holds nothing but them is not there the first time, and a quorum
    queue of 3.10 sorts the headers when it adds one; none of it may give the two copies of a crash different
    ids. The deaths do count: they tell one letter from another of the same content. Where a letter dies and
    comes back without us (`circling`) they may not, nor what the broker takes off when it dies.
    """
    flags, before, headers, mode, rest = parts
    if circling:
        volatile = field_table.find(headers, _CIRCLING)
        if flags & _SET_ASIDE_FLAGS:
            flags, rest = property_tail.set_aside(flags, rest, b"", {})
    steady = b"".join(sorted(field_table.pieces(field_table.cut(headers, volatile))))
    digest = hasher.copy()
    # With the flags and the table's length every part says itself where it ends.
    start = _pack_u16(flags & ~HEADERS) + _pack_u32(len(steady))
    digest.update(b"".join((start, before, steady, mode, rest)))
    digest.update(message.body)
    return digest.hexdigest().encode()


def _came_by(address: ExchangeKey, half: bytes) -> bytes:
    """How the letter came; `half` is what stands there already, when the other half is missing."""
    exchange, routing_key = address
    first = b"".join((_EXCHANGE_PREFIX, _pack_u32(len(exchange)), exchange))
    second = b"".join((_KEY_PREFIX, _pack_u32(len(routing_key)), routing_key))
    if half:
        return half + (second if half.startswith(_prefix(_EXCHANGE, b"")) else first)
    return first + second
