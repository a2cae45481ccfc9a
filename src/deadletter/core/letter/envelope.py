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
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple, assert_never

from deadletter.core.letter import field_table, names, property_tail
from deadletter.core.letter.deaths_aside import MAX_DEATHS_BYTES as MAX_DEATHS_BYTES
from deadletter.core.letter.envelope_parts import (
    ALWAYS,
    CAME_BY,
    CC,
    COPIES,
    DEATHS,
    DEATHS_PREFIX,
    DROPPED,
    EXCHANGE,
    ID,
    MOVE,
    ONCE,
    PRIORITY_HEADER,
    ROUTING_KEY,
    SET_ASIDE_FLAGS,
    SOURCE,
    SUMMARY,
    UNTOUCHED,
    X_DEATH,
    PropertyParts,
    TouchedHeaders,
    derived_id,
    entry_prefix,
    sort_touched,
    source_hasher,
    take_apart,
)
from deadletter.core.letter.envelope_parts import headers_of as headers_of
from deadletter.core.letter.envelope_shape import (
    EnvelopeShape,
    LearnedFrom,
    learn,
)
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import (
    DELIVERY_MODE,
    HEADERS,
    PRIORITY,
    RawMessage,
)
from deadletter.core.letter.move_kind import Deaths as Deaths
from deadletter.core.letter.move_kind import Leg as Leg
from deadletter.core.letter.property_build import BuildsDue, PropertyBuild
from deadletter.errors import UsageError

_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack
_unpack_u32: Final = Struct(">I").unpack_from


class ExchangeKey(NamedTuple):
    """Exchange and routing key, as bytes on the wire."""

    exchange: bytes
    routing_key: bytes


_BY_NAME: Final = frozenset({b"", names.ASKED.encode()})
"""Exchanges by which a letter comes to the queue that its key names."""
_OURS: Final = ONCE | {ID, MOVE, SOURCE, EXCHANGE, ROUTING_KEY, DEATHS}
_OF_DEATHS: Final = {
    Deaths.KEEP: frozenset[bytes](),
    Deaths.SET_ASIDE: SUMMARY | {X_DEATH, DEATHS},
    Deaths.FORGET: SUMMARY | {X_DEATH},
}
_TOUCHED: Final = {
    (deaths, default): ALWAYS | (frozenset(COPIES) if default else frozenset()) | _OF_DEATHS[deaths]
    for deaths in Deaths
    for default in (False, True)
}

_PERSISTENT: Final = b"\x02"
_ADDED_FLAGS: Final = HEADERS | DELIVERY_MODE
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
_ID_PREFIX: Final = entry_prefix(ID, b"S") + _pack_u32(32)
_MOVE_PREFIX: Final = entry_prefix(MOVE, b"S")
_EXCHANGE_PREFIX: Final = entry_prefix(EXCHANGE, b"S")
_KEY_PREFIX: Final = entry_prefix(ROUTING_KEY, b"S")
_OF_BOTH: Final = frozenset({X_DEATH, DEATHS})
_ADDED_BYTES: Final = len(_MOVE_PREFIX) + 4 + len(_ID_PREFIX) + 32
_HEX: Final = re.compile(rb"[0-9a-f]{32}").fullmatch


def letter_id(message: RawMessage, *, source: str, circling: bool = False) -> str:
    """The id of a letter: the one it carries, else one derived from all that does not change on redelivery.

    The same letter taken twice from the same queue has the same id. Two letters equal in every byte do
    too; an id alone never merges letters. `circling`: also the same when it died in between.
    """
    parts = take_apart(message.properties)
    found = sort_touched(parts[2], field_table.find(parts[2], ALWAYS), {})
    return (found.id or derived_id(message, parts, found.volatile, source_hasher(source), circling)).decode()


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
    for entry in field_table.find(headers, frozenset({MOVE})):
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
        "_came_last",
        "_circling",
        "_constant",
        "_copies",
        "_dropped",
        "_due",
        "_hasher",
        "_leg",
        "_move",
        "_shapes",
        "_user",
        "touched"
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
        if by_name and not added.isdisjoint(COPIES):
            raise UsageError(
                "CC and BCC through the default exchange would make a copy for each name in them"
            )
        self._copies = COPIES if by_name else {}
        self._leg = leg
        another = (_OURS if anew else frozenset[bytes]()) | {name.encode() for name in without}
        self._dropped = DROPPED | another | ({X_DEATH} if deaths is Deaths.FORGET else frozenset())
        self.touched: Final[frozenset[bytes]] = _TOUCHED[deaths, by_name] | another | added
        """The headers that do not go on as they are."""
        self._constant = field_table.entry(names.SOURCE, source) + field_table.encode(add)
        self._move = run.encode() + b"-%d"
        self._hasher = source_hasher(source)
        self._shapes: dict[int, EnvelopeShape] = {}
        """Builds of letters, by the length of their properties."""
        self._due = BuildsDue()
        self._came_last: tuple[ExchangeKey, bytes] = (
            ExchangeKey(b"", b""),
            _came_by(ExchangeKey(b"", b""), b""),
        )

    @property
    def known_builds(self) -> int:
        """How many builds of letters were learned."""
        return len(self._shapes)

    def properties(
        self,
        message: RawMessage,
        *,
        came_by: ExchangeKey,
        number: int,
        more: bytes = b"",
        own_id: bytes = b"",
        entries: Sequence[field_table.Entry] | None = None,
        build: PropertyBuild | None = None,
    ) -> bytes:
        """The properties with which this letter goes. This is the loop of the safe move.

        `more` are header entries of this letter alone, encoded. `own_id`: its id, where that is known and
        not told by its content. `entries`: where the headers that are `touched`, and others, stand in the
        table, where somebody has walked it. `build`: how they are built, where somebody has looked. Raises
        MessageError when the properties are not what AMQP says they are.
        """
        raw = message.properties
        known = self._shapes.get(len(raw))
        if (
            known is not None
            and not own_id
            and entries is None
            and (known.build == build or known.build.fits(raw))
        ):
            identity = raw[known.id_at : known.id_at + 32] if known.id_at else self._derived(known, message)
            if not known.id_at or _HEX(identity):
                return self._of_build(known, raw, identity, came_by, self._move % number, more)
        parts = flags, before, headers, _, rest = take_apart(raw)
        if entries is None:
            touched = field_table.find(headers, self.touched)
        else:
            touched = [entry for entry in entries if entry[0] in self.touched]
        found = sort_touched(headers, touched, self._copies, self._dropped) if touched else UNTOUCHED
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
            own_id or found.id or derived_id(message, parts, found.volatile, self._hasher, self._circling),
            found.aside,
        ]
        kept = found.kept
        if flags & SET_ASIDE_FLAGS:
            kept = dict(kept)
            flags, rest = property_tail.set_aside(flags, rest, self._user, kept)
        else:
            property_tail.check(flags, rest)
        match self._leg:
            case Leg.PLAIN:
                pass
            case Leg.WAIT:
                if flags & PRIORITY:
                    kept = {**kept, PRIORITY_HEADER: field_table.raw_entry(PRIORITY_HEADER, b"B" + rest[:1])}
                    flags, rest = flags & ~PRIORITY, rest[1:]
            case Leg.HOME:
                if kept:
                    flags, rest, kept = self._put_back(flags, rest, dict(kept))
            case _:
                assert_never(self._leg)
        if not kept and not found.kept and entries is None and not own_id and not self._circling:
            self._learn(raw, parts, touched, found)
        pieces += kept.values()
        length = sum(map(len, pieces))
        pieces[0] = _pack_u16(flags | _ADDED_FLAGS) + before + _pack_u32(length)
        pieces += (_PERSISTENT, rest)
        return b"".join(pieces)

    def _of_build(
        self,
        known: EnvelopeShape,
        raw: bytes,
        identity: bytes,
        came_by: ExchangeKey,
        move: bytes,
        more: bytes,
    ) -> bytes:
        """The same for a letter whose build is known."""
        if known.came_by is not None:
            came = b"".join(known.came_by(raw))
        else:
            if came_by != self._came_last[0]:
                self._came_last = came_by, _came_by(came_by, b"")
            came = self._came_last[1]
        deaths = known.deaths(raw)
        constant = self._constant
        length = known.size + len(constant) + len(more) + len(came) + len(move)
        return b"".join(
            (
                known.flags, raw[2 : known.before_end], _pack_u32(length), *known.kept(raw), constant, more,
                came, _MOVE_PREFIX, _pack_u32(len(move)), move, _ID_PREFIX, identity, known.aside, *deaths,
                _PERSISTENT, raw[known.rest_start :],
            )
        )  # fmt: skip

    def _derived(self, known: EnvelopeShape, message: RawMessage) -> bytes:
        """`derived_id` for a letter whose build is known."""
        properties, body = message
        digest = self._hasher.copy()
        digest.update(b"".join((known.steady_start, *known.steady(properties))))
        digest.update(body)
        return digest.hexdigest().encode()

    def _learn(
        self, raw: bytes, parts: PropertyParts, touched: Sequence[field_table.Entry], found: TouchedHeaders
    ) -> None:
        """The build of this letter, when many of its length came."""
        size = len(raw)
        flags = parts[0]
        if not self._due.is_due(size) or flags & SET_ASIDE_FLAGS:
            return
        mine = [entry for entry in touched if entry[0] not in self._dropped]
        identity = next((entry for entry in mine if entry[0] == ID), None)
        if (identity is not None and not found.id) or (found.came_by and not found.came_by_whole):
            return  # what is no id here may be one in the next; and one half of an address does not do
        told = LearnedFrom(
            flags=flags,
            before=parts[1],
            headers=parts[2],
            touched=touched,
            volatile=found.volatile,
            identity=identity,
            came_by=[entry for entry in mine if entry[0] in CAME_BY],
            deaths=sorted(
                (entry for entry in mine if entry[0] in _OF_BOTH), key=lambda one: one[0] != X_DEATH
            ),
        )
        shape = learn(
            raw, told, new_flags=flags | _ADDED_FLAGS, aside_prefix=DEATHS_PREFIX, added_bytes=_ADDED_BYTES
        )
        if shape is not None:
            self._shapes[size] = shape

    def _put_back(
        self, flags: int, rest: bytes, kept: dict[bytes, bytes]
    ) -> tuple[int, bytes, dict[bytes, bytes]]:
        """What was set aside for the wait. What would copy the letter on this way stays aside."""
        priority = kept.pop(PRIORITY_HEADER, b"")
        if priority[-2:-1] == b"B" and not flags & PRIORITY:
            flags, rest = flags | PRIORITY, priority[-1:] + rest  # it stands first of what follows the mode
        if not self._copies and (entry := kept.pop(CC, b"")):
            kept[CC] = field_table.raw_entry(b"CC", entry[1 + len(CC) :])
        return flags, rest, kept


def _came_by(address: ExchangeKey, half: bytes) -> bytes:
    """How the letter came; `half` is what stands there already, when the other half is missing."""
    exchange, routing_key = address
    first = b"".join((_EXCHANGE_PREFIX, _pack_u32(len(exchange)), exchange))
    second = b"".join((_KEY_PREFIX, _pack_u32(len(routing_key)), routing_key))
    if half:
        return half + (second if half.startswith(entry_prefix(EXCHANGE, b"")) else first)
    return first + second
