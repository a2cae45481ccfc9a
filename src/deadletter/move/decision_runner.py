"""What becomes of each letter of a passage: the decision, the publish, its outcome, and a second thought.

The decision is asked once per letter. It may say `Later` (it has to ask somebody); the letter then waits,
unacked, and is given back if the passage ends first. A letter that did not reach its new home, because no
queue took it, because the broker refused it, or because it cannot travel as it is, may get a second thought
(`again`); without one, or after `TRIES_MAX`, it stays in its source and is reported. How it stays, so that
staying does not destroy it: `rescue`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, assert_never

from deadletter.amqp.channel import Delivery
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.move.flights import Landing
from deadletter.move.intake import Intake
from deadletter.move.outlet import Cargo, Outlet, id_of
from deadletter.move.rescue import Rescue
from deadletter.move.verdict import Drop, Later, Leave, MoveFailure, Send, Setback, Stamped, Verdict, Wrap

EXAMPLES_MAX: Final = 20
REASONS_MAX: Final = 100
"""Different reasons that are counted apart; a text made by a decision may differ for each letter."""
TRIES_MAX: Final = 3
PENDING_S: Final = 0.005

Decide: TypeAlias = Callable[[Letter], Verdict]
SecondThought: TypeAlias = Callable[[Letter, Send | Wrap, Setback, str], Verdict]


def _no_fate(_fate: object) -> None:
    return


def _no_failure(_failure: MoveFailure) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Who decides, and who wants to know."""

    decide: Decide
    again: SecondThought | None = None
    on_fate: Callable[[object], None] = _no_fate
    """A letter is safe in its new home, was dropped, or is left: with the fate its verdict carried."""
    on_failure: Callable[[MoveFailure], None] = _no_failure
    on_missing: Callable[[], None] | None = None
    """An exchange that a verdict named is gone: what is remembered of ways no longer holds."""


class DecisionRunner:
    """Of one passage. `active` says whether it still acts on letters."""

    def __init__(
        self,
        judging: Judging,
        *,
        source: str,
        refused: Mapping[str, str],
        rescue: Rescue,
        active: Callable[[], bool],
    ) -> None:
        self.moved: int = 0
        self.left: int = 0
        self.dropped: int = 0
        self.pending: int = 0
        """Letters whose decision is still to come."""
        self.failed: Counter[str] = Counter()
        self.examples: list[MoveFailure] = []
        self.outlet: Outlet | None = None
        self.on_resumed: Callable[[], None] = lambda: None
        """Hears of each letter whose decision came later."""
        self._judging = judging
        self._source = source
        self._refused = refused
        self._rescue = rescue
        self._active = active
        self._keep = judging.again is not None
        self._came_last = ExchangeKey(b"", b"")

    def consider(self, intake: Intake, delivery: Delivery) -> None:
        """Decide about a letter that came, and do it."""
        if self._rescue.renewed and self._rescue.returns(delivery):
            self._stay(intake, delivery)  # it was counted when it came the first time
            return
        letter = self._letter(delivery)
        try:
            if self._refused and (why := self._refused.get(letter.id)) is not None:
                self._hold(intake, delivery, why)
                return
            verdict = self._judging.decide(letter)
        except Exception as error:  # noqa: BLE001 -- one letter must not take its neighbours; it is reported
            self._hold(intake, delivery, f"the decision failed: {type(error).__name__}: {error}")
            return
        if type(verdict) is Send:  # by far the most frequent, and then those with a stamp
            self._send(intake, delivery, letter, verdict, b"", 0)
        elif type(verdict) is Stamped:
            self._send(intake, delivery, letter, verdict.send, verdict.entries, 0)
        else:
            self._act(intake, delivery, letter, verdict, 0)

    def landed(self, cargoes: list[tuple[Cargo, Landing]]) -> None:
        """The broker answered these publishes."""
        rescue, on_fate = self._rescue, self._judging.on_fate
        for cargo, outcome in cargoes:
            match outcome:
                case Landing.SAFE:
                    cargo.intake.receipts.confirm(cargo.tag)
                    if rescue.at_risk and rescue.landed(cargo):
                        continue
                    self.moved += 1
                    on_fate(cargo.verdict.fate)
                case Landing.UNROUTABLE:
                    self._think_again(cargo, Setback.UNROUTABLE)
                case Landing.REFUSED:
                    self._think_again(cargo, Setback.REFUSED)
                case _:
                    assert_never(outcome)

    async def decided(self, within_s: float) -> None:
        """Until every decision has come, or the time for it is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self.pending and self._active() and loop.time() < until:  # noqa: ASYNC110 -- to a time
            await asyncio.sleep(PENDING_S)

    def _letter(self, delivery: Delivery) -> Letter:
        _, _, exchange, routing_key, message = delivery
        came_by = self._came_last  # most letters of a queue came the same way
        if came_by.routing_key != routing_key or came_by.exchange != exchange:
            came_by = self._came_last = ExchangeKey(exchange, routing_key)
        return Letter(
            source=self._source,
            message=message,
            came_by=came_by,
            redelivered=delivery.redelivered,
        )

    def _act(self, intake: Intake, delivery: Delivery, letter: Letter, verdict: Verdict, tries: int) -> None:
        assert self.outlet is not None
        match verdict:
            case Send():
                self._send(intake, delivery, letter, verdict, b"", tries)
            case Stamped(send, entries):
                self._send(intake, delivery, letter, send, entries, tries)
            case Leave():
                self.left += 1
                self._stay(intake, delivery)
                self._judging.on_fate(verdict.fate)
            case Drop():
                self.dropped += 1
                intake.receipts.confirm(delivery.tag)
                self._rescue.at_risk.pop((intake, delivery.tag), None)
                self._judging.on_fate(verdict.fate)
            case Wrap():
                self.outlet.send_wrapped(intake, delivery, verdict, tries=tries)
            case Later(future):
                self.pending += 1
                future.add_done_callback(partial(self._resume, intake, delivery, letter, tries))
            case _:
                assert_never(verdict)

    def _send(
        self, intake: Intake, delivery: Delivery, letter: Letter, send: Send, more: bytes, tries: int
    ) -> None:
        assert self.outlet is not None
        why = self.outlet.send(
            intake,
            delivery,
            send,
            letter.came_by,
            more=more,
            tries=tries,
            keep=self._keep,
            build=letter.build,
        )
        if why is not None:
            self._reconsider(intake, delivery, letter, send, Setback.UNFIT, why, tries)

    def _resume(
        self,
        intake: Intake,
        delivery: Delivery,
        letter: Letter,
        tries: int,
        future: asyncio.Future[Verdict],
    ) -> None:
        self.pending -= 1
        if not self._active() or intake.channel.error is not None:
            return  # unsettled: it is given back
        if future.cancelled():
            self._stay(intake, delivery)  # nobody will decide; others must not wait for it
            return
        if (error := future.exception()) is not None:
            self._hold(intake, delivery, f"the decision failed: {type(error).__name__}: {error}")
            return
        self._act(intake, delivery, letter, future.result(), tries)
        self.on_resumed()

    def _think_again(self, cargo: Cargo, setback: Setback) -> None:
        if self._rescue.at_risk and self._rescue.refused(cargo, setback):
            return
        if cargo.delivery is None:
            at_risk = self._rescue.at_risk.get((cargo.intake, cargo.tag))
            if at_risk is None:
                cargo.intake.receipts.hold(cargo.tag)
            else:
                self._stay(cargo.intake, at_risk)
            self._note(id_of(RawMessage(cargo.properties, b""), self._source), setback.value)
            return
        letter = self._letter(cargo.delivery)
        self._reconsider(
            cargo.intake, cargo.delivery, letter, cargo.verdict, setback, setback.value, cargo.tries
        )

    def _reconsider(
        self,
        intake: Intake,
        delivery: Delivery,
        letter: Letter,
        verdict: Send | Wrap,
        setback: Setback,
        why: str,
        tries: int,
    ) -> None:
        again = self._judging.again
        if again is None or tries >= TRIES_MAX or not self._active():
            self._hold(intake, delivery, why)
            return
        try:
            other = again(letter, verdict, setback, why)
        except Exception as error:  # noqa: BLE001 -- as above
            self._hold(intake, delivery, f"{why}; then: {type(error).__name__}: {error}")
            return
        self._act(intake, delivery, letter, other, tries + 1)

    def _stay(self, intake: Intake, delivery: Delivery) -> None:
        assert self.outlet is not None
        self._rescue.stay(intake, delivery, self.outlet)

    def _hold(self, intake: Intake, delivery: Delivery, why: str) -> None:
        self._stay(intake, delivery)
        self._note(id_of(delivery.message, self._source), why)

    def _note(self, identity: str, why: str) -> None:
        self.failed[why if why in self.failed or len(self.failed) < REASONS_MAX else "other reasons"] += 1
        failure = MoveFailure(id=identity, why=why)
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(failure)
        self._judging.on_failure(failure)
