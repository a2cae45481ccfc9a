"""Intake: what happens to a letter that was taken from a watched dead-letter queue.

The decision itself is `core.deciding.decide`. Here it is made fast and safe for ten thousand letters a
second: letters that die together look alike (the same queue, reason, key, attempt), so what was decided for
one is remembered, and the next one costs a look-up (`reading`). Whatever goes wrong in reading or deciding
parks the letter with the reason. Nothing is dropped, nothing is spun.

A copy that a shared dead-letter fanout put into another queue is not sent back a second time (`copying`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, assert_never

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding import decide as deciding
from deadletter.core.deciding import decision as decisions
from deadletter.core.deciding.deaths import OriginBy
from deadletter.core.deciding.decide import NO_ANSWERS, Circumstances
from deadletter.core.deciding.decision import Decision, Discard, Park, Retry
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.deciding.origin import Copied, Returned, Unproven
from deadletter.core.deciding.place import Place
from deadletter.core.deciding.policy import Policies
from deadletter.core.deciding.states import Step
from deadletter.core.letter import header_values, names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.fanout import NO_FANOUTS, Fanouts
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.errors import MessageError
from deadletter.move.verdict import Drop, Later, Leave, Send, Stamped, Verdict
from deadletter.retrying.homewards import HomeBound, ReturnWays, due_stamp, later, released_stamp
from deadletter.retrying.parking import park, park_wrapped
from deadletter.retrying.parking import stamped as parked_stamp
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.origins import DiedAgain
from deadletter.service.intake import addressing, copying, letter_keys
from deadletter.service.intake.condition_batches import Asker
from deadletter.service.intake.copying import FANOUT_RULE, Copy
from deadletter.service.intake.letter_keys import LetterReader
from deadletter.service.telling.service_events import Decided, FindingNamed, ServiceEvent


class DecidedKind:
    """What was decided for one kind of letter, and what is the same for each of them."""

    __slots__ = (
        "attempt", "choices", "copy", "dropped", "group", "home", "origin", "returned", "verdict", "view",
        "why",
    )  # fmt: skip

    def __init__(self, decision: Decision, view: LetterView, group: str) -> None:
        self.choices: tuple[tuple[int, Send], ...] = ()
        """Delays to choose from by chance, each with its way."""
        self.verdict: Send | Drop | Leave | Retry | None = None
        self.origin: str = view.origin.queue if view.origin else ""
        self.group: str = group
        self.view: LetterView = view
        """Of the first of them."""
        self.returned: bool = isinstance(view.provenance, Returned)
        self.attempt: int = header_values.count(view.headers.get(names.ATTEMPT)) or 0
        """As which it went home last."""
        self.why: str = decision.why
        self.home: str | None = None
        """Of a letter that several queues got: the one it goes on from."""
        self.copy: Copy | None = None
        self.dropped: LetterFate | None = None
        """Of a copy: what becomes of one that need not be kept."""


KNOWN_MAX: Final = 4_096
"""How many different kinds of letters are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedQueue:
    """What intake from one dead-letter queue is about."""

    dlq: str
    shape: ServedLayout
    policies: Policies
    continuous: bool
    keeps_client_deaths: bool
    numbered_ms: tuple[int, ...] = ()
    fanouts: Callable[[], Fanouts] = lambda: NO_FANOUTS
    """Where a letter is given to several queues, as the broker's shape is now."""
    origin_by: OriginBy = OriginBy.FAILURE
    place: Callable[[], Place | None] = lambda: None
    """What is known now of the ways into the queue; None: nothing, and every death is believed."""
    look_afresh: Callable[[], Awaitable[bool]] | None = None
    """Look at the shape of the broker: no letter is parked because what is known of it is old."""


class Sorter(HomeBound):
    """Decides about the letters of one dead-letter queue."""

    def __init__(
        self,
        intake: WatchedQueue,
        *,
        keeper: Gates,
        ways: ReturnWays,
        asker: Asker,
        emit: Callable[[ServiceEvent], None],
        each: bool = False,
        clock: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(ways)
        self._intake = intake
        self._keeper = keeper
        self._asker = asker
        self._emit = emit
        self._each = each
        """Whether each decision is told."""
        self._clock = clock
        self._dice = dice
        self._reader = LetterReader(
            intake.policies,
            keeps_client_deaths=intake.keeps_client_deaths,
            origin_by=intake.origin_by,
            place=intake.place,
        )
        self._known: dict[bytes, DecidedKind] = {}
        self._stamped_last: tuple[Send, int, Stamped] | None = None
        self._by_name = {policy.name: policy for policy in intake.policies}
        self._circumstances = Circumstances(continuous=intake.continuous, sees_room=True)

    def forget(self) -> None:
        """What was decided no longer holds: the shape of the broker changed."""
        self._known.clear()

    # -- the decision ------------------------------------------------------------------------------------
    def decide(self, letter: Letter) -> Verdict:
        """What to do with this letter."""
        try:
            key = self._reader.key(letter)
            if key is None:
                return self._anew(letter, self._reader.view(letter))
            known = self._known.get(key.value)
            if known is None:
                view = self._reader.view(letter)
                if isinstance(view.provenance, Unproven):
                    return self._anew(letter, view)
                known = self._considered(self._decided(view), view, many=True)
                if not isinstance(view.provenance, Copied):  # its parent is its own
                    if len(self._known) >= KNOWN_MAX:
                        self._known.clear()
                    self._known[key.value] = known
            return self._carry_out(letter, known, key.letter_id, key.released_ms)
        except MessageError as error:
            return self._wrapped(f"it cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 -- one letter must not stop the others; it is parked with this
            return self._failed(error)

    def _anew(self, letter: Letter, view: LetterView) -> Verdict:
        """Of a letter that has to be looked at by itself."""
        if isinstance(view.provenance, Unproven) and self._intake.look_afresh is not None:
            return later(self._looked_at(letter, self._intake.look_afresh))
        return self._asked(letter, view)

    async def _looked_at(self, letter: Letter, look_afresh: Callable[[], Awaitable[bool]]) -> Verdict:
        """Its origin does not fit the shape of the broker: is that shape still the same?"""
        await look_afresh()
        try:
            verdict = self._asked(letter, self._reader.view(letter))
        except Exception as error:  # noqa: BLE001 -- as above
            return self._failed(error)
        return await verdict.verdict if isinstance(verdict, Later) else verdict

    def _asked(self, letter: Letter, view: LetterView) -> Verdict:
        questions = deciding.questions(view, self._intake.policies)
        if not questions:
            known = self._considered(self._decided(view), view)
            return self._carry_out(letter, known, letter_keys.id_of(view), letter_keys.released_of(view))

        async def answered() -> Verdict:
            answers = await self._asker.ask(letter.body, questions)
            try:
                known = self._considered(self._decided(view, answers), view)
                return self._carry_out(letter, known, letter_keys.id_of(view), letter_keys.released_of(view))
            except Exception as error:  # noqa: BLE001 -- as above
                return self._failed(error)

        return later(answered())

    def _decided(self, view: LetterView, answers: Any = NO_ANSWERS) -> Decision:
        return deciding.decide(
            view,
            self._intake.policies,
            now=datetime.fromtimestamp(self._clock(), UTC),
            dice=self._dice(),
            circumstances=self._circumstances,
            answers=answers,
        )

    def _considered(self, decision: Decision, view: LetterView, *, many: bool = False) -> DecidedKind:
        """`many`: the decision is remembered, and the dice are thrown again for each letter of its kind."""
        intake = self._intake
        home = copying.home_of(view, intake.fanouts())
        copy = copying.copy_of(view, home) if home is not None and home != intake.dlq else None
        if copy is not None and (parked := copying.parked_instead(decision, copy)) is not None:
            self._emit(FindingNamed(rule=FANOUT_RULE, subject=copy.origin, why=copy.why))
            decision = parked
        error_type = view.failure.error_type if view.failure else None
        known = DecidedKind(decision, view, error_type if error_type and self._reader.groups else "")
        known.home, known.copy = home, copy
        source = intake.dlq
        match decision:
            case Retry() if intake.shape is ServedLayout.SWEEP:
                known.verdict = decision
            case Retry():
                known.choices = tuple(
                    (
                        delay_ms,
                        copying.marked(
                            addressing.delayed(
                                intake.shape,
                                replace(decision, delay_ms=delay_ms),
                                view,
                                source=source,
                                group=known.group,
                                numbered=len(intake.numbered_ms),
                            ),
                            decision,
                            home,
                        ),
                    )
                    for delay_ms in self._delays_ms(decision, many=many)
                )
            case Park():
                send = addressing.parked(intake.shape, decision, view, source=source)
                known.verdict = send
                if decision.cause is Cause.COPY and isinstance(send.fate, LetterFate):
                    known.dropped = replace(send.fate, step=Step.DROPPED)
            case decisions.Leave():
                known.verdict = Leave(fate=addressing.fate_of(Step.LEFT, decision, view, source=source))
            case Discard():
                known.verdict = Drop(fate=addressing.fate_of(Step.DISCARDED, decision, view, source=source))
            case _:
                assert_never(decision)
        return known

    def _delays_ms(self, retry: Retry, *, many: bool) -> tuple[int, ...]:
        if self._intake.shape is ServedLayout.LEVELS:
            numbered = self._intake.numbered_ms
            return (numbered[min(retry.attempt, len(numbered)) - 1],)
        if not many:
            return (retry.delay_ms,)  # the one that was held against its deadline
        return self._by_name[retry.policy].treatments[-1].schedule.choices_ms(retry.attempt - 1)

    # -- the way it takes --------------------------------------------------------------------------------
    def _carry_out(
        self, letter: Letter, known: DecidedKind, letter_id: str, released_ms: int | None
    ) -> Verdict:
        drop: Drop | None = None
        if known.copy is not None:
            drop = copying.dropped(letter, known.copy, self._intake.fanouts(), known.dropped)
        elif known.returned and letter_id:
            self._keeper.died_again(
                DiedAgain(
                    dlq=self._intake.dlq,
                    origin=known.origin,
                    group=known.group,
                    letter_id=letter_id,
                    attempt=known.attempt,
                    released_s=self._since_s(released_ms),
                )
            )
        if self._each:
            self._tell(letter, known, drop)
        if drop is not None:
            return drop
        if known.choices:
            choices = known.choices
            place = int(self._dice() * len(choices)) if len(choices) > 1 else 0
            delay_ms, send = choices[place]
            return self._due(send, self._now_ms() + delay_ms)
        match known.verdict:
            case Retry() as retry:
                return self._sweep(letter, retry, known, letter_id or letter.id)
            case Send() as send:
                return parked_stamp(send, self._now_ms())
            case Drop() | Leave() as verdict:
                return verdict
            case None:
                raise AssertionError("every decision has a way")
            case _:
                assert_never(known.verdict)

    def _due(self, send: Send, due_at_ms: int) -> Stamped:
        """Some tens of letters are decided in one millisecond."""
        last = self._stamped_last
        if last is None or last[1] != due_at_ms or last[0] is not send:
            last = self._stamped_last = send, due_at_ms, due_stamp(send, due_at_ms)
        return last[2]

    def _sweep(self, letter: Letter, retry: Retry, known: DecidedKind, letter_id: str) -> Verdict:
        """Straight home, if the guards let it; they are asked once it is known how the origin is."""

        async def found() -> Verdict:
            return self._homewards(letter, retry, known, letter_id, await self._ways.find(known.origin))

        home = self._ways.known(known.origin)
        return later(found()) if home is None else self._homewards(letter, retry, known, letter_id, home)

    def _homewards(
        self, letter: Letter, retry: Retry, known: DecidedKind, letter_id: str, home: Home | None
    ) -> Verdict:
        if home is None:
            fate = addressing.fate_of(Step.RELEASED, retry, known.view, source=self._intake.dlq)
            return self._missing(letter, fate)
        gate = self._keeper.admit(known.origin, known.group, retry.policy, letter_id, retry.attempt)
        if gate is not None:
            fate = addressing.fate_of(Step.LEFT, retry, known.view, source=self._intake.dlq)
            return Leave(fate=replace(fate, cause=gate, gate=gate))
        send = addressing.swept_home(retry, known.view, home, source=self._intake.dlq)
        return released_stamp(copying.marked(send, retry, known.home), self._now_ms())

    def _full(self, _letter: Letter, fate: LetterFate) -> Verdict:
        self._keeper.refused(fate.origin)
        return Leave(fate=replace(fate, step=Step.LEFT, cause="full", gate=fate.origin))

    # -- for a person ------------------------------------------------------------------------------------
    def _parked(self, _letter: Letter, cause: Cause, why: str, fate: LetterFate) -> Verdict:
        return self._aside(cause, why, replace(fate, step=Step.PARKED, cause=cause.value))

    def _aside(self, cause: Cause, why: str, fate: LetterFate) -> Verdict:
        send = park(addressing.parking_place(self._intake.shape), cause=cause, why=why, fate=fate)
        return parked_stamp(send, self._now_ms())

    def _failed(self, error: Exception) -> Verdict:
        cause, why = Cause.DECISION_FAILED, f"the decision failed: {type(error).__name__}: {error}"
        return self._aside(cause, why, self._fate(cause))

    def _wrapped(self, why: str) -> Verdict:
        place, cause = addressing.parking_place(self._intake.shape), Cause.UNREADABLE
        return park_wrapped(place, cause=cause, why=why, at_ms=self._now_ms(), fate=self._fate(cause))

    def _fate(self, cause: Cause) -> LetterFate:
        """Of a parked letter of which nothing is known."""
        return LetterFate(step=Step.PARKED, source=self._intake.dlq, cause=cause.value)

    def _tell(self, letter: Letter, known: DecidedKind, drop: Drop | None) -> None:
        trace = letter.headers.get("traceparent")
        send = drop or (known.choices[0][1] if known.choices else known.verdict)
        fate = None if isinstance(send, Retry) or send is None else send.fate
        if not isinstance(fate, LetterFate):
            fate = LetterFate(step=Step.RELEASED, source=self._intake.dlq, origin=known.origin)
        self._emit(
            Decided(
                letter_id=letter.id,
                fate=fate,
                why=known.why,
                traceparent=trace if isinstance(trace, str) else None,
            )
        )

    def _since_s(self, released_ms: int | None) -> float | None:
        """How long ago it was released; a sweep finds it long after it died, which says nothing of now."""
        if released_ms is None or not self._intake.continuous:
            return None
        return (self._now_ms() - released_ms) / 1000

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
