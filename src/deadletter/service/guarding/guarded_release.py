"""Release: a letter whose delay is over goes back to its origin, mandatory and confirmed.

Levels lead here and not to the origins themselves, because what the broker would hide is seen here: an origin
that is missing returns the letter (bound once more, then parked), one that is full refuses it (held, the
attempt not counted). The guards act here too. What may not go now is moved to the queue of the gate that
keeps it, and the next letter is not held up for a moment.

`GuardedRelease` serves `deadletter.due`, the processor's `retry-queue-<n>`, and the queues of held letters;
in those a letter that still may not go stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.letter import header_values
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.move.verdict import Later, Leave, Send, Verdict, Wrap
from deadletter.retrying.homewards import ReturnWays, later, stamped
from deadletter.retrying.release import Bound, Release
from deadletter.service.guarding.gates import Gates
from deadletter.service.intake import addressing


class Holds(ReturnWays, Protocol):
    """The return exchanges, with the queues for letters that are held."""

    def holds(self, gate: str) -> bool: ...

    async def holding(self, gate: str, *, again: bool = False) -> None: ...


class Proof(Protocol):
    """What says whether a queue can be the origin of letters that are due.

    Whoever may publish to `deadletter.due` may publish by the default exchange, and so to every queue.
    Letters come to `retry-queue-<n>` by an exchange that somebody may be given who may not.
    """

    def believes(self, origin: str) -> bool: ...

    async def look_afresh(self) -> bool: ...


class GuardedRelease(Release):
    """The release of `dlq serve`, behind its guards. `waiting`: from a queue of held letters."""

    def __init__(
        self,
        source: str,
        layout: ServedLayout,
        *,
        keeper: Gates,
        ways: Holds,
        waiting: bool = False,
        proof: Proof | None = None,
        on_gate: Callable[[str], None] = lambda _gate: None,
    ) -> None:
        super().__init__(source, addressing.parking_place(layout), ways)
        self._keeper = keeper
        self._holds = ways
        self._waiting = waiting
        self._timed = not waiting
        self._proof = proof
        self._on_gate = on_gate

    def _believed(self, letter: Letter, bound: Bound, letter_id: str) -> Verdict:
        if self._proof is not None and not self._proof.believes(bound.origin):
            return later(self._looked_at(letter, bound, letter_id, self._proof))
        return self._send(letter, bound, letter_id)

    async def _looked_at(self, letter: Letter, bound: Bound, letter_id: str, proof: Proof) -> Verdict:
        """Its origin does not fit the shape of the broker: is that shape still the same?"""
        await proof.look_afresh()
        if not proof.believes(bound.origin):
            origin = header_values.shown(bound.origin, 100)
            why = f"it is due, and letters that die in {origin} do not come here"
            return self._parked(letter, Cause.ORIGIN_UNPROVEN, why, self._fate(Step.RELEASED, bound))
        verdict = self._send(letter, bound, letter_id)
        return await verdict.verdict if isinstance(verdict, Later) else verdict

    def _kept(self, bound: Bound, letter_id: str) -> Verdict | None:
        ask = self._keeper.admit if self._waiting else self._keeper.passes
        gate = ask(bound.origin, bound.group, bound.policy, letter_id, bound.attempt or 0)
        if gate is None:
            return None
        if self._waiting:
            self._on_gate(gate)
            return Leave()
        return self._hold(bound, gate)

    def _hold(self, bound: Bound, gate: str) -> Verdict:
        """Into the queue of what keeps it; the attempt is not counted again."""
        why = self._keeper.reason(gate)
        known = bound.held.get(gate)
        if known is not None and known[0] == why:
            send = known[1]
        else:
            fate = replace(self._fate(Step.HELD, bound), cause=gate, gate=gate)
            send = addressing.held(gate, fate, *why)
            bound.held[gate] = why, send
        return send if self._holds.holds(gate) else later(self._made(send, gate))

    async def _made(self, send: Send, gate: str) -> Verdict:
        await self._holds.holding(gate)
        return send

    def _full(self, letter: Letter, fate: LetterFate) -> Verdict:
        self._keeper.refused(fate.origin)
        return Leave() if self._waiting else self._hold(self._bound(letter), fate.origin)

    async def _repaired(self, letter: Letter, verdict: Send | Wrap) -> Verdict:
        fate = verdict.fate
        if isinstance(fate, LetterFate) and fate.step is Step.HELD:
            await self._holds.holding(fate.gate, again=True)
        else:
            await self._ways.repair()
        self._bound(letter).held.clear()
        return stamped(verdict, self._now_ms())
