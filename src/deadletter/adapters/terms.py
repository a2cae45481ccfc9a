"""What was agreed for one queue: its layout, its rules, and how a failure is told.

The layout is always named, never `auto`: an adapter must know the ways out before it met a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from deadletter.consumer.backoffs import Delays, exponential, fixed, linear
from deadletter.consumer.details import Redact, Teller
from deadletter.consumer.outcomes import Rule, Rules
from deadletter.consumer.paths import Way
from deadletter.errors import UsageError

LayoutName: TypeAlias = Literal["ladder", "loop", "return", "native", "external"]
DELIVERIES: Final = 20
"""More than our own consumer allows: here a broker that does not take a retry costs deliveries too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Made with `agree`."""

    queue: str
    way: Way
    rules: Rules
    teller: Teller
    deliveries_max: int
    """A message whose consumer died this often is put aside."""


def agree(
    *,
    queue: str,
    layout: LayoutName = "ladder",
    retries: int = 5,
    backoff: Delays | None = None,
    on: Mapping[type[BaseException], Rule] | None = None,
    deliveries: int = DELIVERIES,
    service: str = "",
    release: str = "",
    redact: Redact | None = None,
) -> Terms:
    """The terms of a queue; raises UsageError where they make no sense."""
    if not queue:
        raise UsageError("queue: expected the name of the queue whose messages are handled, got none")
    if layout not in tuple(Way):
        raise UsageError(
            f"queue {queue}: layout: expected {', '.join(Way)}, got {layout!r}; an adapter must know the "
            "layout beforehand, so there is no auto"
        )
    if not 1 <= deliveries <= 65_535:
        raise UsageError(f"queue {queue}: deliveries: expected a number from 1 to 65535, got {deliveries!r}")
    way = Way(layout)
    rules = Rules(retries=retries, backoff=_usual(way) if backoff is None else backoff, on=on)
    most = max(schedule.retries for schedule in rules.schedules)
    if way is Way.LADDER and most > retries:
        raise UsageError(
            f"queue {queue}: on: expected error rules with at most {retries} retries, got {most}; a ladder "
            "has as many rungs as the queue has retries: raise retries, or take the layout return"
        )
    return Terms(
        queue=queue,
        way=way,
        rules=rules,
        teller=Teller(service=service, release=release, redact=redact),
        deliveries_max=deliveries,
    )


def _usual(way: Way) -> Delays:
    match way:
        case Way.LOOP:
            return fixed(10)  # it has one delay
        case Way.NATIVE:
            return linear(1)  # the broker counts like that
        case _:
            return exponential(1, cap=600)
