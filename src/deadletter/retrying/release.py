"""One release: a letter whose delay is over goes home, mandatory and confirmed, whoever releases it.

The headers say where it belongs. Letters that belong to one place are alike, so what follows from their
headers is remembered, and a letter costs a look-up. One whose origin is missing is parked; one whose headers
cannot be read is parked whole. Who may go now, and what becomes of one whose origin is full, is said by
whoever derives from `Release`: the service has guards, a consumer has none.
"""

from __future__ import annotations

import time
from dataclasses import replace
from struct import Struct
from typing import Final

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.letter import field_table, header_values, names
from deadletter.core.letter.envelope_parts import checked_headers
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.move_kind import Deaths
from deadletter.core.letter.parking import Cause
from deadletter.errors import MessageError
from deadletter.move.verdict import Send, Verdict
from deadletter.retrying.homewards import HomeBound, ReturnWays, homewards, later, released_stamp
from deadletter.retrying.parking import ParkingPlace, park, park_wrapped
from deadletter.retrying.parking import stamped as parked_stamp

KNOWN_MAX: Final = 4_096
_DUE_AT: Final = names.DUE_AT.encode()
_ID: Final = names.ID.encode()
_WANTED: Final = frozenset(
    name.encode()
    for name in (
        names.ORIGIN_QUEUE,
        names.ORIGIN_ROUTING_KEY,
        names.ATTEMPT,
        names.POLICY,
        names.GROUP,
        names.DUE_AT,
        names.ID,
    )
)
_unpack: Final = Struct(">q").unpack_from


class Bound:
    """Where due letters of one kind go."""

    __slots__ = ("attempt", "group", "held", "home", "origin", "policy", "routing_key", "send")

    def __init__(self, headers: dict[str, Value]) -> None:
        def text(name: str) -> str:
            value = headers.get(name)
            return value if isinstance(value, str) else ""

        self.origin: str = text(names.ORIGIN_QUEUE)
        # Of all names the key alone may be any bytes.
        self.routing_key: str = header_values.name(headers.get(names.ORIGIN_ROUTING_KEY)) or ""
        self.policy: str = text(names.POLICY)
        self.group: str = text(names.GROUP)
        attempt = headers.get(names.ATTEMPT)
        self.attempt: int | None = attempt if isinstance(attempt, int) else None
        self.home: Home | None = None
        self.send: Send | None = None
        self.held: dict[str, tuple[tuple[str, str], Send]] = {}
        """By gate: why it keeps them, and the way into its queue."""


class Release(HomeBound):
    """Decides about the letters of one queue that are due."""

    def __init__(self, source: str, place: ParkingPlace, ways: ReturnWays) -> None:
        super().__init__(ways)
        self._source = source
        self._place = place
        self._known: dict[bytes, Bound] = {}
        self._timed = True
        self.late_s: list[float] = []
        """How late letters were; whoever reads it empties it."""

    def decide(self, letter: Letter) -> Verdict:
        """Home, if it may go."""
        try:
            bound, letter_id = self._read(letter, timed=self._timed)
        except MessageError as error:
            return self._wrapped(f"it cannot be read: {error}")
        if not bound.origin:
            why = "it is due, and no header says which queue it belongs to"
            return self._parked(letter, Cause.ORIGIN_UNKNOWN, why, self._fate(Step.RELEASED, bound))
        return self._believed(letter, bound, letter_id)

    def _believed(self, letter: Letter, bound: Bound, letter_id: str) -> Verdict:
        return self._send(letter, bound, letter_id)

    def _send(self, letter: Letter, bound: Bound, letter_id: str) -> Verdict:
        # A way that was found anew is another object: what is remembered here follows it.
        home = self._ways.known(bound.origin)
        if home is None:
            return later(self._found(letter, bound, letter_id))
        return self._go(bound, home, letter_id)

    async def _found(self, letter: Letter, bound: Bound, letter_id: str) -> Verdict:
        home = await self._ways.find(bound.origin)
        if home is None:
            return self._missing(letter, self._fate(Step.RELEASED, bound))
        return self._go(bound, home, letter_id)

    def _go(self, bound: Bound, home: Home, letter_id: str) -> Verdict:
        kept = self._kept(bound, letter_id)
        if kept is not None:
            return kept
        if bound.send is None or bound.home is not home:
            bound.home = home
            bound.send = homewards(home, bound.routing_key, self._fate(Step.RELEASED, bound))
        return released_stamp(bound.send, self._now_ms())

    def _kept(self, _bound: Bound, _letter_id: str) -> Verdict | None:
        """What becomes of a letter that may not go now; None: it may."""
        return None

    def _read(self, letter: Letter, *, timed: bool) -> tuple[Bound, str]:
        headers = checked_headers(letter.message.properties)
        letter_id = ""
        parts: list[bytes] = []
        for name, at, start, end in field_table.find(headers, _WANTED):
            if name == _DUE_AT:
                if end - start == 9 and timed:
                    self.late_s.append(time.time() - _unpack(headers, start + 1)[0] / 1000)
            elif name == _ID:
                letter_id = headers[start + 5 : end].decode("ascii", "replace")
            else:
                parts.append(headers[at:end])
        key = b"".join(parts)
        bound = self._known.get(key)
        if bound is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            bound = self._known[key] = Bound(field_table.decode(key))
        return bound, letter_id

    def _bound(self, letter: Letter) -> Bound:
        """Of a letter that was decided about before."""
        try:
            return self._read(letter, timed=False)[0]
        except MessageError:
            return Bound({})  # it is wrapped, and that did not arrive

    # -- for a person ------------------------------------------------------------------------------------
    def _parked(self, _letter: Letter, cause: Cause, why: str, fate: LetterFate) -> Verdict:
        # The newest death is our own delay; the letter's own were set aside before it.
        deaths = Deaths.FORGET if fate.origin else Deaths.KEEP
        gone = replace(fate, step=Step.PARKED, cause=cause.value)
        return parked_stamp(park(self._place, cause=cause, why=why, deaths=deaths, fate=gone), self._now_ms())

    def _wrapped(self, why: str) -> Verdict:
        fate = LetterFate(step=Step.PARKED, source=self._source, cause=Cause.UNREADABLE.value)
        return park_wrapped(self._place, cause=Cause.UNREADABLE, why=why, at_ms=self._now_ms(), fate=fate)

    def _fate(self, step: Step, bound: Bound) -> LetterFate:
        return LetterFate(
            step=step,
            source=self._source,
            origin=bound.origin,
            policy=bound.policy,
            attempt=bound.attempt,
        )

    def _now_ms(self) -> int:
        return int(time.time() * 1000)
