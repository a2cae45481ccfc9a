"""On the way home: what to do with a letter that did not reach where it was sent.

Whoever sends letters home (intake that sweeps, the service's release, the consumer's release) meets the same
setbacks. An origin whose queue does not answer is bound once more, and a letter that finds nothing there
either is parked. A queue of ours that is missing is declared again. A letter that cannot travel is wrapped.
What differs is who keeps a letter whose origin is full: that the caller says.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, Protocol, assert_never

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.letter import parking
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.move_kind import Deaths, Leg
from deadletter.core.letter.parking import Cause
from deadletter.move.verdict import Later, Send, Setback, Stamped, Verdict, Wrap
from deadletter.retrying.parking import stamped as parked_stamp

REFUSED_S: Final = 0.5
"""Before a queue of ours that refused a letter is asked again."""


class ReturnWays(Protocol):
    """The return exchanges, as whoever sends letters home needs them (`broker.return_exchanges`)."""

    def known(self, origin: str) -> Home | None: ...

    async def find(self, origin: str, *, again: bool = False) -> Home | None:
        """None: the origin is not there."""

    async def repair(self) -> None:
        """Declare anew what is ours."""

    def forget(self) -> None:
        """What is remembered no longer holds."""


def homewards(home: Home, routing_key: str, fate: object, *, retried: bool = False) -> Send:
    """Out of a delay, back to the origin, by the exchange that leads to it alone."""
    exchange, key = (home.exchange, routing_key) if home.exchange else ("", home.origin)
    return Send(
        exchange=exchange, routing_key=key, deaths=Deaths.FORGET, leg=Leg.HOME, fate=fate, retried=retried
    )


def released_stamp(send: Send, now_ms: int) -> Stamped:
    """For one letter that goes home now."""
    return Stamped(send, parking.at(parking.RELEASED_AT, now_ms))


def due_stamp(send: Send, due_at_ms: int) -> Stamped:
    """For one letter whose delay ends then."""
    return Stamped(send, parking.at(parking.DUE_AT, due_at_ms))


def stamped(verdict: Send | Wrap, now_ms: int) -> Send | Stamped | Wrap:
    """The same way once more, with the times that letters which take it carry: they are each letter's own."""
    match verdict:
        case Send(fate=LetterFate(step=Step.DELAYED, delay_ms=int(delay_ms))):
            return due_stamp(verdict, now_ms + delay_ms)
        case Send(fate=LetterFate(step=Step.PARKED)):
            return parked_stamp(verdict, now_ms)
        case Send(fate=LetterFate(step=Step.RELEASED)):
            return released_stamp(verdict, now_ms)
        case _:
            return verdict


class HomeBound(ABC):
    """Whoever sends letters home; the courier asks it again about those that did not arrive."""

    def __init__(self, ways: ReturnWays) -> None:
        self._ways = ways

    def again(self, letter: Letter, verdict: Send | Wrap, setback: Setback, why: str) -> Verdict:
        """What to do with a letter that did not reach where it was sent."""
        fate = verdict.fate if isinstance(verdict.fate, LetterFate) else None
        goes_home = fate is not None and fate.step is Step.RELEASED
        match setback:
            case Setback.UNFIT:
                return self._wrapped(why)
            case Setback.REFUSED if goes_home and fate is not None:
                return self._full(letter, fate)
            case Setback.REFUSED:
                return self._refused(verdict, why)
            case Setback.UNROUTABLE if goes_home and fate is not None and isinstance(verdict, Send):
                return later(self._once_more(letter, verdict, fate))
            case Setback.UNROUTABLE:
                return later(self._repaired(letter, verdict))
            case _:
                assert_never(setback)

    async def _once_more(self, letter: Letter, verdict: Send, fate: LetterFate) -> Verdict:
        """Bind once more, else park."""
        home = await self._ways.find(fate.origin, again=True)
        if home is None or verdict.retried:
            return self._missing(letter, fate)
        # One that went by its origin's name has no other key to go by: it goes by the name again.
        by_exchange = home.exchange and verdict.exchange
        exchange, key = (home.exchange, verdict.routing_key) if by_exchange else ("", home.origin)
        return released_stamp(
            replace(verdict, exchange=exchange, routing_key=key, retried=True), self._now_ms()
        )

    async def _repaired(self, _letter: Letter, verdict: Send | Wrap) -> Verdict:
        await self._ways.repair()
        return stamped(verdict, self._now_ms())

    def _refused(self, verdict: Send | Wrap, _why: str) -> Verdict:
        """A queue of ours that was just declared refuses for a moment."""
        return later(self._patiently(verdict))

    async def _patiently(self, verdict: Send | Wrap) -> Verdict:
        await asyncio.sleep(REFUSED_S)
        return stamped(verdict, self._now_ms())

    def _missing(self, letter: Letter, fate: LetterFate) -> Verdict:
        """`fate`: of the way home that is none."""
        return self._parked(letter, Cause.ORIGIN_MISSING, f"its origin {fate.origin!r} is not there", fate)

    @abstractmethod
    def _full(self, letter: Letter, fate: LetterFate) -> Verdict:
        """Its origin refused it."""

    @abstractmethod
    def _parked(self, letter: Letter, cause: Cause, why: str, fate: LetterFate) -> Verdict: ...

    @abstractmethod
    def _wrapped(self, why: str) -> Verdict: ...

    @abstractmethod
    def _now_ms(self) -> int: ...


def later(work: Coroutine[Any, Any, Verdict]) -> Later:
    """A verdict that is not known yet."""
    return Later(asyncio.ensure_future(work))
