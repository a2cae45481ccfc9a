"""Where a decision sends a letter, in the words of each layout.

`return` and `levels` send a retry into a delay, `sweep` straight home; each has its own place for letters
that are parked. The headers that carry the origin, the attempt and the policy are the same everywhere, so a
letter may pass from one layout to another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding.decision import Decision, Park, Retry
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.deciding.origin import Copied, Origin, Provenance
from deadletter.core.deciding.states import Step
from deadletter.core.layouts import levels
from deadletter.core.layouts.naming import held_name, level_name
from deadletter.core.letter import names, parking
from deadletter.core.letter.envelope import Deaths, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.parking import carried
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.move.verdict import Send
from deadletter.retrying.homewards import homewards
from deadletter.retrying.parking import PARKED, ParkingPlace, park


def delayed(
    layout: ServedLayout, retry: Retry, view: LetterView, *, source: str, group: str, numbered: int
) -> Send:
    """Into the delay. `numbered` is how many numbered levels there are."""
    origin = _origin(view)
    match layout:
        case ServedLayout.RETURN:
            exchange, key = "", level_name(retry.delay_ms)
        case ServedLayout.LEVELS:
            level = levels.level_of(retry.attempt, numbered)
            exchange = levels.DELAY_EXCHANGE
            key = levels.delay_key(origin.routing_key or "", level)
        case ServedLayout.SWEEP:
            raise AssertionError("a sweep has no delay on the broker")
        case _:
            assert_never(layout)
    return Send(
        exchange=exchange,
        routing_key=key,
        leg=Leg.WAIT,
        anew=isinstance(view.provenance, Copied),
        headers={
            **_carried(origin, retry.attempt, retry.policy, view.provenance),
            **({names.GROUP: group} if group else {}),
        },
        fate=replace(fate_of(Step.DELAYED, retry, view, source=source), delay_ms=retry.delay_ms),
    )


def swept_home(retry: Retry, view: LetterView, home: Home, *, source: str) -> Send:
    """Straight back, as `sweep` does it."""
    origin = _origin(view)
    send = homewards(home, origin.routing_key or "", fate_of(Step.RELEASED, retry, view, source=source))
    return replace(
        send,
        deaths=Deaths.SET_ASIDE,  # it comes from a dead-letter queue, so its deaths are its own
        headers=_carried(origin, retry.attempt, retry.policy, view.provenance),
        anew=isinstance(view.provenance, Copied),
    )


def held(gate: str, fate: LetterFate, guard: str, why: str) -> Send:
    """Due, and not yet allowed: it waits in the broker, and says what for."""
    return Send(
        exchange=names.ASKED,
        routing_key=held_name(gate),
        deaths=Deaths.FORGET,
        leg=Leg.WAIT,
        headers=parking.reasons(guard, why),
        fate=fate,
    )


def parked(layout: ServedLayout, decision: Park, view: LetterView, *, source: str) -> Send:
    """For a person, with the reason."""
    origin = view.origin
    return park(
        parking_place(layout),
        cause=decision.cause,
        why=decision.why,
        headers=_carried(origin, decision.attempt, decision.policy, view.provenance) if origin else {},
        anew=isinstance(view.provenance, Copied),
        fate=fate_of(Step.PARKED, decision, view, source=source),
    )


def parking_place(layout: ServedLayout) -> ParkingPlace:
    """Where this layout parks."""
    match layout:
        case ServedLayout.RETURN | ServedLayout.SWEEP:
            return PARKED
        case ServedLayout.LEVELS:
            return ParkingPlace(levels.DLQ_EXCHANGE, levels.DLQ_KEY)
        case _:
            assert_never(layout)


def fate_of(step: Step, decision: Decision, view: LetterView, *, source: str) -> LetterFate:
    """The fact to tell once it is so."""
    return LetterFate(
        step=step,
        source=source,
        origin=view.origin.queue if view.origin else "",
        policy=decision.policy,
        reason=view.reason or "",
        cause=decision.cause.value,
        attempt=decision.attempt,
    )


def _origin(view: LetterView) -> Origin:
    assert view.origin is not None, "a retry has an origin"
    return view.origin


def _carried(origin: Origin, attempt: int, policy: str, provenance: Provenance) -> dict[str, Value]:
    return carried(
        queue=origin.queue,
        exchange=origin.exchange,
        routing_key=origin.routing_key,
        attempt=attempt,
        policy=policy,
        parent_id=provenance.parent_id if isinstance(provenance, Copied) else "",
    )
