"""What becomes of a message: decided here for every framework, carried out by each in its own way.

`before` looks at a message that was delivered before and never settled, perhaps because it kills its
consumer; `after` at the error of a handler. Both answer with a `Ruling`: what to do, and what to say.

An adapter declares nothing while it runs, so it knows no delays but those of `prepare`: on a ladder the rung
of the attempt, whatever an error's rule says; in `return` the shortest level that is long enough.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from deadletter.adapters.terms import AdapterTerms
from deadletter.consumer.events import Fate, Handled
from deadletter.consumer.handlers.failure_details import type_of
from deadletter.consumer.handlers.handler_end import decided
from deadletter.consumer.queues.layout_routes import LayoutRoutes, Past, Reject, RouteOut
from deadletter.core.deciding.decision import Discard, Leave, Park, Retry
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.move.verdict import Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A letter on its way to another place, and where it goes whole if it cannot travel as it is."""

    letter: Letter
    send: Send
    refuge: Send | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Acked, and nothing else."""


AdapterStep: TypeAlias = Parcel | Reject | Finish
FINISH: Final = Finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What to do, and the fact to tell once it is done."""

    step: AdapterStep
    fact: Handled


class AdapterJudge:
    """For one queue."""

    def __init__(self, terms: AdapterTerms, *, dice: Callable[[], float] = random.random) -> None:
        self._terms = terms
        self._routes = LayoutRoutes(terms.way, terms.queue, policy="adapter")
        self.circling: bool = self._routes.circling
        self._dice = dice
        self._levels_ms = sorted({ms for one in terms.rules.schedules for ms in one.levels_ms})

    def before(self, letter: Letter, now_ms: int) -> Ruling | None:
        """Whether the handler must not see it; None: it may. Only queues that count deliveries can tell."""
        if not letter.redelivered or self._terms.way in (ConsumerLayout.NATIVE, ConsumerLayout.EXTERNAL):
            return None  # there a delivery may be a retry, or the place for failures is not known
        if letter.delivery_count < self._terms.deliveries_max:
            return None
        why = f"delivered {letter.delivery_count} times, and its consumer never came to an end with it"
        past = self._routes.past(letter)
        return self._aside(letter, past, RuntimeError(why), Cause.KILLED_ITS_CONSUMER, why, now_ms)

    def after(self, letter: Letter, error: BaseException, now_ms: int) -> Ruling:
        """What the end of a handler means."""
        past, policy = self._routes.past(letter), self._routes.policy
        decision = decided(self._terms.rules, error, attempt=past.attempt, dice=self._dice(), policy=policy)
        match decision:
            case Retry():
                return self._again(letter, past, decision, error, now_ms)
            case Park(cause=cause, why=why):
                return self._aside(letter, past, error, cause, why, now_ms)
            case Discard(cause=cause, why=why):
                fact = self._fact(Fate.DISCARDED, letter, past, error, why=why, cause=cause)
                return Ruling(step=FINISH, fact=fact)
            case Leave():
                raise AssertionError("the rules of a queue leave nothing where it was")
            case _:
                assert_never(decision)

    def renewed(self, letter: Letter) -> Parcel | None:
        """For a letter whose next place does not take it: into its own queue, anew. None: it stays in hand.

        Given back it would come nearer to its delivery limit, which a quorum queue of RabbitMQ 4 has by
        itself, and be destroyed there. In `native` the queue's own count is that of the retries: anew it
        would begin once more.
        """
        if self._terms.way is ConsumerLayout.NATIVE:
            return None
        past = self._routes.past(letter)
        send = self._routes.anew(past, past.deliveries)
        return Parcel(letter=letter, send=send, refuge=None, why="its next place does not take it")

    def _again(self, letter: Letter, past: Past, retry: Retry, error: BaseException, now_ms: int) -> Ruling:
        asked_ms, schedule = self._asked_ms(past, retry), self._terms.rules.schedule
        details = self._terms.teller.headers(error, at_ms=now_ms, first_at_ms=past.first_failed_at_ms)
        route = self._routes.again(past, schedule, asked_ms, details)
        refuge = self._routes.aside(past, {}, cause=Cause.UNREADABLE, why="", at_ms=now_ms)
        fact = self._fact(
            Fate.RETRIED,
            letter,
            past,
            error,
            why=retry.why,
            cause=retry.cause,
            delay_ms=self._routes.delay_ms(past, schedule, asked_ms),
        )
        return Ruling(step=_step(letter, route, refuge, retry.why), fact=fact)

    def _asked_ms(self, past: Past, retry: Retry) -> int:
        """One that was declared."""
        if self._terms.way is not ConsumerLayout.RETURN:
            return self._terms.rules.schedule.typical_ms(past.attempt) or 1
        return next((ms for ms in self._levels_ms if ms >= retry.delay_ms), self._levels_ms[-1])

    def _aside(
        self, letter: Letter, past: Past, error: BaseException, cause: Cause, why: str, now_ms: int
    ) -> Ruling:
        details = self._terms.teller.headers(error, at_ms=now_ms, first_at_ms=past.first_failed_at_ms)
        route = self._routes.aside(past, details, cause=cause, why=why, at_ms=now_ms)
        fact = self._fact(Fate.PARKED, letter, past, error, why=why, cause=cause)
        return Ruling(step=_step(letter, route, route, why), fact=fact)

    def _fact(
        self,
        fate: Fate,
        letter: Letter,
        past: Past,
        error: BaseException,
        *,
        why: str,
        cause: str,
        delay_ms: int | None = None,
    ) -> Handled:
        return Handled(
            queue=self._terms.queue,
            fate=fate,
            attempt=past.attempt,
            delay_ms=delay_ms,
            cause=cause,
            why=why,
            error=type_of(error),
            letter=letter,
        )


def _step(letter: Letter, route: RouteOut, refuge: RouteOut, why: str) -> Parcel | Reject:
    match route:
        case Reject():
            return route
        case Send():
            place = refuge if isinstance(refuge, Send) else None
            return Parcel(letter=letter, send=route, refuge=place, why=why)
        case _:
            assert_never(route)
