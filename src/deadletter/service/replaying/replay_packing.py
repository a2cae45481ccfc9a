"""A stored letter as a replay publishes it.

It goes home as a release sends one: its deaths and the broker's counts come off, what was set aside for the
wait is put back, what parking wrote is gone. It begins anew: attempt 0, no older deaths, no deliveries that
were noted. Its id stays, whatever was changed in it, and `deadletter-replay` names the replay.

The queue it goes to is the one that its headers call its origin: should it die there, it is the same letter.
By an exchange nobody knows which queue will have it, and none is called so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple, assert_never

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding.letter_view import view_letter
from deadletter.core.letter import field_table, header_values, names, parking
from deadletter.core.letter.envelope import EnvelopeRoute, ExchangeKey, headers_of, move_number
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_text
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.move_kind import Deaths, Leg
from deadletter.core.letter.wrapping import came_by as first_came_by
from deadletter.core.letter.wrapping import unwrap
from deadletter.core.replaying.replay_target import ReplayTarget, ToExchange, ToOrigin, ToQueue
from deadletter.errors import UsageError
from deadletter.move.sending import PackedLetter
from deadletter.store.replays.replay_views import ClaimedLetter

_QUEUE: Final = names.ORIGIN_QUEUE.encode()
_EXCHANGE: Final = names.ORIGIN_EXCHANGE.encode()
_KEY: Final = names.ORIGIN_ROUTING_KEY.encode()
_WANTED: Final = frozenset({_QUEUE, _EXCHANGE, _KEY})
_ENDS_HERE: Final = frozenset({names.DEATHS, names.DELIVERIES, names.HOME})
_OF_ORIGIN: Final = frozenset({names.ORIGIN_QUEUE, names.ORIGIN_EXCHANGE, names.ORIGIN_ROUTING_KEY})
_KEPT: Final = 1_000
"""So many of what letters have in common are remembered."""


class _Belongs(NamedTuple):
    """Where a letter belongs, as its headers and deaths say."""

    queue: str
    exchange: str
    key: str
    told: bool
    """Whether headers of ours say it."""


class ReplayPacking:
    """Of one replay. `homes` has the ways to the queues that its letters go to."""

    def __init__(self, replay: int, target: ReplayTarget, *, run: str) -> None:
        self.homes: dict[str, Home] = {}
        self._target = target
        self._run = run
        self._add: dict[str, Value] = {names.REPLAY: str(replay), names.ATTEMPT: 0}
        self._routes: dict[tuple[str, str, bool, bool], EnvelopeRoute] = {}
        self._told: dict[tuple[bytes, ...], _Belongs | None] = {}
        self._written: dict[tuple[str, _Belongs], bytes] = {}

    def pack(self, one: ClaimedLetter, number: int, user: str) -> PackedLetter:
        """Raises MessageError when it cannot be read, UsageError when there is no way."""
        letter, came_by = one.letter, one.letter.came_by
        inside = unwrap(letter.message)
        told = letter.message if inside is None else inside
        if inside is not None:
            came_by = first_came_by(letter.message) or came_by
        match self._target:
            case ToOrigin():
                home = self._home(one.origin)
            case ToQueue(queue=queue):
                home = self._home(queue)
            case ToExchange(exchange=exchange, key=key):
                route = self._route(letter.source, user, by_name=not exchange, again=False)
                belongs, entries = self._belongs(told, came_by, route)
                properties = route.properties(
                    told, came_by=came_by, number=number, own_id=one.letter_id.encode(), entries=entries
                )
                return PackedLetter(exchange, belongs.key if key is None else key, properties, told.body)
            case _:
                assert_never(self._target)
        route = self._route(letter.source, user, by_name=not home.exchange, again=False)
        belongs, entries = self._belongs(told, came_by, route)
        more = parking.at(parking.RELEASED_AT, time.time_ns() // 1_000_000)
        if belongs.told and belongs.queue == home.origin:
            route = self._route(letter.source, user, by_name=not home.exchange, again=True)
        else:
            more += self._new_origin(home.origin, belongs)
        properties = route.properties(
            told, came_by=came_by, number=number, more=more, own_id=one.letter_id.encode(), entries=entries
        )
        way, by = (home.exchange, belongs.key) if home.exchange else ("", home.origin)
        return PackedLetter(way, by, properties, told.body)

    def number_of(self, returned: RawMessage) -> int | None:
        return move_number(returned.properties, self._run)

    def _home(self, queue: str) -> Home:
        home = self.homes.get(queue)
        if home is None:
            raise UsageError(f"there is no queue {header_values.shown(queue)}")
        return home

    def _belongs(
        self, told: RawMessage, came_by: ExchangeKey, route: EnvelopeRoute
    ) -> tuple[_Belongs, list[field_table.Entry]]:
        """Letters of one queue say it in the same bytes: those are read once. And where the headers stand
        that this route touches, those of the origin among them: a table is walked once."""
        table = headers_of(told.properties)
        entries = field_table.find(table, route.touched)
        said = tuple([table[at:end] for name, at, _, end in entries if name in _WANTED])
        try:
            known = self._told[said]
        except KeyError:
            if len(self._told) >= _KEPT:
                self._told.clear()
            known = self._told[said] = _said(said)
        return _by_deaths(table, came_by) if known is None else known, entries

    def _new_origin(self, queue: str, belongs: _Belongs) -> bytes:
        """The headers that call this queue its origin."""
        place = queue, belongs
        if (known := self._written.get(place)) is None:
            if len(self._written) >= _KEPT:
                self._written.clear()
            known = self._written[place] = field_table.encode(
                {
                    names.ORIGIN_QUEUE: queue,
                    names.ORIGIN_EXCHANGE: belongs.exchange,
                    names.ORIGIN_ROUTING_KEY: belongs.key,
                }
            )
        return known

    def _route(self, source: str, user: str, *, by_name: bool, again: bool) -> EnvelopeRoute:
        """What is the same for all letters of one kind. `again`: its headers name the queue it goes to."""
        place = source, user, by_name, again
        if (known := self._routes.get(place)) is None:
            if len(self._routes) >= _KEPT:
                self._routes.clear()
            known = self._routes[place] = EnvelopeRoute(
                run=self._run,
                source=source,
                user=user,
                target=ExchangeKey(b"" if by_name else b"-", b""),
                deaths=Deaths.FORGET,
                leg=Leg.PLAIN if isinstance(self._target, ToExchange) else Leg.HOME,
                add=self._add,
                without=_ENDS_HERE if again else _ENDS_HERE | _OF_ORIGIN,
            )
        return known


def _said(entries: tuple[bytes, ...]) -> _Belongs | None:
    """What the headers of ours say; None: they are not there."""
    table = b"".join(entries)
    found = {
        name: header_values.name(field_table.decode_value(table[value:end]))
        for name, _, value, end in field_table.walk(table)
    }
    queue, key = found.get(_QUEUE), found.get(_KEY)
    if not queue or key is None:
        return None
    return _Belongs(queue, found.get(_EXCHANGE) or "", key, told=True)


def _by_deaths(table: bytes, came_by: ExchangeKey) -> _Belongs:
    headers: Mapping[str, Value] = field_table.decode(table)
    origin = view_letter(headers, broker_keeps_client_deaths=False).origin
    if origin is None:
        return _Belongs("", as_text(came_by.exchange), as_text(came_by.routing_key), told=False)
    return _Belongs(
        origin.queue,
        origin.exchange or "",
        as_text(came_by.routing_key) if origin.routing_key is None else origin.routing_key,
        told=False,
    )
