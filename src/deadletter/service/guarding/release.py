"""Release: a letter whose delay is over goes back to its origin, mandatory and confirmed.

Levels lead here and not to the origins themselves, because what the broker would hide is seen here: an origin
that is missing returns the letter (bound once more, then parked), one that is full refuses it (held, the
attempt not counted). The guards act here too. What may not go now is moved to the queue of the gate that
keeps it, and the next letter is not held up for a moment.

`Releaser` serves `deadletter.due`, the processor's `retry-queue-<n>`, and the queues of held letters; in
those a letter that still may not go stays where it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from struct import Struct
from typing import Any, Final, Protocol, assert_never

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding.decide import Cause
from deadletter.core.letter import field_table, header_values, message, names
from deadletter.core.letter.envelope import Deaths
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.errors import MessageError
from deadletter.move.verdict import Later, Leave, Send, Setback, Verdict, Wrap
from deadletter.retrying.release import homewards
from deadletter.service.intake import addressing
from deadletter.service.intake.addressing import ServedLayout
from deadletter.service.intake.sorting import ORIGIN_MISSING, UNREADABLE, patiently
from deadletter.service.protocols import ReturnWays
from deadletter.service.telling.service_events import Fate, Kind

KNOWN_MAX: Final = 4_096
NO_ORIGIN: Final = "origin-unknown"
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


class Gatekeeper(Protocol):
    """The guards, as a release needs them."""

    def passes(
        self, origin: str, group: str, policy: str, letter_id: str = "", attempt: int = 0
    ) -> str | None:
        """None: it may go at once, as this attempt. Else the key of what keeps it."""

    def admit(self, origin: str, group: str, policy: str, letter_id: str, attempt: int = 0) -> str | None:
        """The same for a letter that was held before."""

    def reason(self, gate: str) -> tuple[str, str]:
        """What keeps letters at this gate: the guard, and why."""

    def refused(self, origin: str) -> None: ...

    def accepted(self, origin: str) -> None: ...


class Holds(ReturnWays, Protocol):
    """The ways, with the queues for letters that are held."""

    def holds(self, gate: str) -> bool: ...

    async def holding(self, gate: str) -> None: ...


class Proof(Protocol):
    """What says whether a queue can be the origin of letters that are due.

    Whoever may publish to `deadletter.due` may publish by the default exchange, and so to every queue.
    Letters come to `retry-queue-<n>` by an exchange that somebody may be given who may not.
    """

    def believes(self, origin: str) -> bool: ...

    async def look_afresh(self) -> bool: ...


class _Bound:
    """Where letters of one kind go."""

    __slots__ = ("attempt", "group", "held", "home", "origin", "policy", "routing_key", "send")

    def __init__(self, headers: dict[str, Value]) -> None:
        def text(name: str) -> str:
            value = headers.get(name)
            return value if isinstance(value, str) else ""

        self.origin = text(names.ORIGIN_QUEUE)
        # Of all names the key alone may be any bytes.
        self.routing_key = header_values.name(headers.get(names.ORIGIN_ROUTING_KEY)) or ""
        self.policy = text(names.POLICY)
        self.group = text(names.GROUP)
        attempt = headers.get(names.ATTEMPT)
        self.attempt = attempt if isinstance(attempt, int) else None
        self.home: Home | None = None
        self.send: Send | None = None
        self.held: dict[str, tuple[tuple[str, str], Send]] = {}
        """By gate: why it keeps them, and the way into its queue."""


class Releaser:
    """Decides about the letters of one queue that are due. `waiting`: it is a queue of held letters."""

    def __init__(
        self,
        source: str,
        shape: ServedLayout,
        *,
        keeper: Gatekeeper,
        ways: Holds,
        waiting: bool = False,
        proof: Proof | None = None,
        on_gate: Callable[[str], None] = lambda _gate: None,
    ) -> None:
        self._source = source
        self._shape = shape
        self._keeper = keeper
        self._ways = ways
        self._waiting = waiting
        self._proof = proof
        self._on_gate = on_gate
        self._known: dict[bytes, _Bound] = {}
        self.late_s: list[float] = []
        """How late letters were; whoever reads it empties it."""

    def decide(self, letter: Letter) -> Verdict:
        """Home, if it may go."""
        try:
            bound, letter_id = self._read(letter, timed=not self._waiting)
        except MessageError as error:
            return self._wrap(f"it cannot be read: {error}")
        if not bound.origin:
            return self._park(NO_ORIGIN, "it is due, and no header says which queue it belongs to", bound)
        if self._proof is not None and not self._proof.believes(bound.origin):
            return _later(self._looked_at(bound, letter_id, self._proof))
        return self._send(bound, letter_id)

    async def _looked_at(self, bound: _Bound, letter_id: str, proof: Proof) -> Verdict:
        """Its origin does not fit the shape of the broker: is that shape still the same?"""
        await proof.look_afresh()
        if not proof.believes(bound.origin):
            origin = header_values.shown(bound.origin, 100)
            why = f"it is due, and letters that die in {origin} do not come here"
            return self._park(Cause.ORIGIN_UNPROVEN.value, why, bound)
        verdict = self._send(bound, letter_id)
        return await verdict.verdict if isinstance(verdict, Later) else verdict

    def _send(self, bound: _Bound, letter_id: str) -> Verdict:
        # A way that was found anew is another object: what is remembered here follows it.
        home = self._ways.known(bound.origin)
        if home is None:
            return _later(self._found(bound, letter_id))
        return self._go(bound, home, letter_id)

    def _read(self, letter: Letter, *, timed: bool) -> tuple[_Bound, str]:
        headers = message.header_table(letter.message.properties)
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
            bound = self._known[key] = _Bound(field_table.decode(key))
        return bound, letter_id

    async def _found(self, bound: _Bound, letter_id: str) -> Verdict:
        home = await self._ways.find(bound.origin)
        if home is None:
            return self._park(ORIGIN_MISSING, f"its origin {bound.origin!r} is not there", bound)
        return self._go(bound, home, letter_id)

    def _go(self, bound: _Bound, home: Home, letter_id: str) -> Verdict:
        if self._waiting:
            gate = self._keeper.admit(bound.origin, bound.group, bound.policy, letter_id, bound.attempt or 0)
            if gate is not None:
                self._on_gate(gate)
                return Leave()
        else:
            gate = self._keeper.passes(bound.origin, bound.group, bound.policy, letter_id, bound.attempt or 0)
            if gate is not None:
                return self._hold(bound, gate)
        if bound.send is None or bound.home is not home:
            bound.home = home
            bound.send = homewards(home, bound.routing_key, self._fate(Kind.RELEASED, bound))
        return addressing.released_stamp(bound.send, _now_ms())

    def _hold(self, bound: _Bound, gate: str) -> Verdict:
        """Into the queue of what keeps it; the attempt is not counted again."""
        why = self._keeper.reason(gate)
        known = bound.held.get(gate)
        if known is not None and known[0] == why:
            send = known[1]
        else:
            send = addressing.held(gate, replace(self._fate(Kind.HELD, bound), cause=gate), *why)
            bound.held[gate] = why, send
        return send if self._ways.holds(gate) else _later(self._made(send, gate))

    async def _made(self, send: Send, gate: str) -> Verdict:
        await self._ways.holding(gate)
        return send

    # -- second thoughts ---------------------------------------------------------------------------------
    def again(self, letter: Letter, verdict: Send | Wrap, setback: Setback, why: str) -> Verdict:
        """What to do with a letter that did not reach where it was sent."""
        try:
            bound, _ = self._read(letter, timed=False)
        except MessageError:
            bound = _Bound({})  # it is wrapped, and that did not arrive
        fate = verdict.fate
        homewards = isinstance(fate, Fate) and fate.kind is Kind.RELEASED
        match setback:
            case Setback.UNFIT:
                return self._wrap(why)
            case Setback.UNROUTABLE if homewards:
                assert isinstance(verdict, Send)
                return _later(self._once_more(bound, verdict))
            case Setback.UNROUTABLE:
                return _later(self._repaired(bound, verdict))
            case Setback.REFUSED if homewards:
                self._keeper.refused(bound.origin)
                return Leave() if self._waiting else self._hold(bound, bound.origin)
            case Setback.REFUSED:
                return _later(patiently(addressing.stamped(verdict, _now_ms())))
            case _:
                assert_never(setback)

    async def _once_more(self, bound: _Bound, verdict: Send) -> Verdict:
        """Bind once more, else park."""
        fate = verdict.fate
        assert isinstance(fate, Fate)
        home = await self._ways.find(bound.origin, again=True)
        if home is None or fate.cause == ORIGIN_MISSING:
            return self._park(ORIGIN_MISSING, f"its origin {bound.origin!r} is not there", bound)
        send = homewards(home, bound.routing_key, replace(fate, cause=ORIGIN_MISSING))
        return addressing.released_stamp(send, _now_ms())

    async def _repaired(self, bound: _Bound, verdict: Send | Wrap) -> Verdict:
        fate = verdict.fate
        if isinstance(fate, Fate) and fate.kind is Kind.HELD:
            await self._ways.repair()
            await self._ways.holding(fate.cause)
        else:
            await self._ways.repair()
        bound.held.clear()
        return addressing.stamped(verdict, _now_ms())

    # -- for a person ------------------------------------------------------------------------------------
    def _park(self, cause: str, why: str, bound: _Bound) -> Verdict:
        headers: dict[str, Value] = {names.CAUSE: cause, names.WHY: why}
        fate = replace(self._fate(Kind.PARKED, bound), cause=cause)
        send = addressing.parking(self._shape, fate, headers=headers)
        if bound.origin:
            # The newest death is our own delay; the letter's own were set aside before it.
            send = replace(send, deaths=Deaths.FORGET)
        return addressing.parked_stamp(send, _now_ms())

    def _wrap(self, why: str) -> Wrap:
        exchange, key = addressing.parking_place(self._shape)
        fate = Fate(kind=Kind.PARKED, source=self._source, cause=UNREADABLE)
        return Wrap(exchange=exchange, routing_key=key, cause=UNREADABLE, why=why, at_ms=_now_ms(), fate=fate)

    def _fate(self, kind: Kind, bound: _Bound) -> Fate:
        return Fate(
            kind=kind,
            source=self._source,
            origin=bound.origin,
            policy=bound.policy,
            attempt=bound.attempt,
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def _later(work: Coroutine[Any, Any, Verdict]) -> Later:
    return Later(asyncio.ensure_future(work))
