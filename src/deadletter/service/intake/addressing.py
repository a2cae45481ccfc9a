"""Where a decision sends a letter, in the words of each layout.

`return` and `levels` send a retry into a delay, `sweep` straight home; each has its own place for letters
that are parked. The headers that carry the origin, the attempt and the policy are the same everywhere, so a
letter may pass from one layout to another.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from struct import Struct
from typing import Final, assert_never

from deadletter.broker.return_exchanges import Home
from deadletter.core.deciding.decide import Discard, Leave, Park, Retry
from deadletter.core.deciding.origin import Copied, Origin, Provenance
from deadletter.core.layouts import levels
from deadletter.core.layouts.naming import PARKED, held_name, level_name
from deadletter.core.letter import names
from deadletter.core.letter.envelope import Deaths, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.header_values import shown
from deadletter.move.verdict import Send, Stamped, Wrap
from deadletter.retrying.release import homewards
from deadletter.service.telling.service_events import Fate, Kind

_WHY_CHARS: Final = 500
_stamp: Final = Struct(">q").pack


def _prefix(name: str) -> bytes:
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + b"l"


_DUE_AT: Final = _prefix(names.DUE_AT)
_PARKED_AT: Final = _prefix(names.PARKED_AT)
_RELEASED_AT: Final = _prefix(names.RELEASED_AT)


class ServedLayout(StrEnum):
    """The layouts that the service looks after."""

    RETURN = "return"
    LEVELS = "levels"
    SWEEP = "sweep"


def due_stamp(send: Send, due_at_ms: int) -> Stamped:
    return Stamped(send, _DUE_AT + _stamp(due_at_ms))


def parked_stamp(send: Send, now_ms: int) -> Stamped:
    return Stamped(send, _PARKED_AT + _stamp(now_ms))


def released_stamp(send: Send, now_ms: int) -> Stamped:
    return Stamped(send, _RELEASED_AT + _stamp(now_ms))


def stamped(verdict: Send | Wrap, now_ms: int) -> Send | Stamped | Wrap:
    """The same way once more, with the times that letters which take it carry: they are each letter's own."""
    match verdict:
        case Send(fate=Fate(kind=Kind.DELAYED, delay_ms=int(delay_ms))):
            return due_stamp(verdict, now_ms + delay_ms)
        case Send(fate=Fate(kind=Kind.PARKED)):
            return parked_stamp(verdict, now_ms)
        case Send(fate=Fate(kind=Kind.RELEASED)):
            return released_stamp(verdict, now_ms)
        case _:
            return verdict


def delayed(
    shape: ServedLayout, retry: Retry, *, source: str, reason: str, group: str, numbered: int
) -> Send:
    """Into the delay. `numbered` is how many numbered levels there are."""
    match shape:
        case ServedLayout.RETURN:
            exchange, key = "", level_name(retry.delay_ms)
        case ServedLayout.LEVELS:
            level = levels.level_of(retry.attempt, numbered)
            exchange = levels.DELAY_EXCHANGE
            key = levels.delay_key(retry.origin.routing_key or "", level)
        case ServedLayout.SWEEP:
            raise AssertionError("a sweep has no delay on the broker")
        case _:
            assert_never(shape)
    return Send(
        exchange=exchange,
        routing_key=key,
        leg=Leg.WAIT,
        anew=isinstance(retry.provenance, Copied),
        headers={
            **_carried(retry.origin, retry.attempt, retry.policy, retry.provenance),
            **({names.GROUP: group} if group else {}),
        },
        fate=Fate(
            kind=Kind.DELAYED,
            source=source,
            origin=retry.origin.queue,
            policy=retry.policy,
            reason=reason,
            cause=retry.cause.value,
            delay_ms=retry.delay_ms,
            attempt=retry.attempt,
        ),
    )


def swept_home(retry: Retry, home: Home, *, source: str, reason: str) -> Send:
    """Straight back, as `sweep` does it."""
    headers = _carried(retry.origin, retry.attempt, retry.policy, retry.provenance)
    fate = Fate(
        kind=Kind.RELEASED,
        source=source,
        origin=retry.origin.queue,
        policy=retry.policy,
        reason=reason,
        cause=retry.cause.value,
        attempt=retry.attempt,
    )
    send = homewards(home, retry.origin.routing_key or "", fate)
    # It comes from a dead-letter queue, so its deaths are its own.
    anew = isinstance(retry.provenance, Copied)
    return replace(send, deaths=Deaths.SET_ASIDE, headers=headers, anew=anew)


def held(gate: str, fate: Fate, guard: str, why: str) -> Send:
    """Due, and not yet allowed: it waits in the broker, and says what for."""
    headers: dict[str, Value] = {names.CAUSE: guard, names.WHY: shown(why, _WHY_CHARS)}
    return Send(routing_key=held_name(gate), deaths=Deaths.FORGET, leg=Leg.WAIT, headers=headers, fate=fate)


def parked(
    shape: ServedLayout, decision: Park | Leave | Discard, *, source: str, origin: Origin | None, reason: str
) -> Send:
    """For a person, with the reason. Its deaths stay on: whoever looks wants to see them."""
    headers: dict[str, Value] = {
        **(_carried(origin, decision.attempt, decision.policy, decision.provenance) if origin else {}),
        names.CAUSE: decision.cause.value,
        names.WHY: shown(decision.why, _WHY_CHARS),
    }
    fate = Fate(
        kind=Kind.PARKED,
        source=source,
        origin=origin.queue if origin else "",
        policy=decision.policy,
        reason=reason,
        cause=decision.cause.value,
        attempt=decision.attempt,
    )
    anew = isinstance(decision.provenance, Copied)
    return parking(shape, fate, headers=headers, anew=anew)


def parking(shape: ServedLayout, fate: Fate, *, headers: dict[str, Value], anew: bool = False) -> Send:
    exchange, key = parking_place(shape)
    return Send(exchange=exchange, routing_key=key, deaths=Deaths.KEEP, headers=headers, anew=anew, fate=fate)


def parking_place(shape: ServedLayout) -> tuple[str, str]:
    """Exchange and routing key."""
    match shape:
        case ServedLayout.RETURN | ServedLayout.SWEEP:
            return "", PARKED
        case ServedLayout.LEVELS:
            return levels.DLQ_EXCHANGE, levels.DLQ_KEY
        case _:
            assert_never(shape)


def _carried(origin: Origin, attempt: int, policy: str, provenance: Provenance) -> dict[str, Value]:
    headers: dict[str, Value] = {
        names.ORIGIN_QUEUE: origin.queue,
        names.ORIGIN_EXCHANGE: origin.exchange or "",
        names.ORIGIN_ROUTING_KEY: origin.routing_key or "",
        names.ATTEMPT: attempt,
        names.POLICY: policy,
    }
    if isinstance(provenance, Copied):
        headers[names.PARENT_ID] = provenance.parent_id
    return headers
