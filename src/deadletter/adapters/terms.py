"""What is agreed for one queue: its layout, its rules, and how a failure is told.

The layout is always named, never `auto`: an adapter must know the ways out before it met a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final, TypedDict, Unpack

from deadletter.consumer.backoffs import Delays, exponential, fixed, linear
from deadletter.consumer.handlers.failure_details import Redact, Teller
from deadletter.consumer.outcomes import OnErrorRule, Rules
from deadletter.consumer.queues.own_queue import PLAIN, OwnQueue
from deadletter.core.topology.layout_names import AdapterLayoutName, ConsumerLayout
from deadletter.errors import UsageError

DELIVERIES: Final = 20
"""More than our own consumer allows: here a broker that does not take a retry costs deliveries too."""
PAUSES_S: Final = (0.5, 1.0, 2.0, 0.0)
"""Between tries of a publish that was not taken; after the last the message goes to its own queue anew."""
IN_HAND_PAUSES_S: Final = (4.0, 8.0, 16.0, 30.0)
"""Between tries when its own queue did not take it either; the last one again and again."""
_BOUNDED: Final = {
    ConsumerLayout.LADDER: "a ladder has as many rungs as the queue has retries",
    ConsumerLayout.NATIVE: "the broker itself ends the retries of a queue after so many",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTerms:
    """Made with `agree`."""

    queue: str
    way: ConsumerLayout
    rules: Rules
    teller: Teller
    deliveries_max: int
    """A message whose consumer died this often is put aside."""

    @property
    def own(self) -> OwnQueue:
        """The queue is the framework's to declare."""
        return PLAIN

    @property
    def layout(self) -> str:
        return self.way.value


class AdapterWishes(TypedDict, total=False):
    """What every adapter takes, as keywords."""

    layout: AdapterLayoutName
    """`ladder` unless said otherwise."""
    retries: int
    """5 unless said otherwise."""
    backoff: Delays | None
    """Unless said otherwise what suits the layout: 1, 2, 4 … 600 s; `loop` 10 s; `native` 1, 2, 3 … s."""
    on: Mapping[type[BaseException], OnErrorRule] | None
    """What becomes of which error."""
    deliveries: int
    """20 unless said otherwise."""
    service: str
    release: str
    redact: Redact | None


def in_hand_pauses_s() -> Iterator[float]:
    """Without an end: a message that no place takes is never given back, for a return may destroy it."""
    return chain(IN_HAND_PAUSES_S, repeat(IN_HAND_PAUSES_S[-1]))


def agree(queue: str, **wishes: Unpack[AdapterWishes]) -> AdapterTerms:
    """The terms of a queue; raises UsageError where they make no sense."""
    layout, retries = wishes.get("layout", "ladder"), wishes.get("retries", 5)
    backoff, deliveries = wishes.get("backoff"), wishes.get("deliveries", DELIVERIES)
    if not queue:
        raise UsageError("queue: expected the name of the queue whose messages are handled, got none")
    if layout not in tuple(ConsumerLayout):
        raise UsageError(
            f"queue {queue}: layout: expected {', '.join(ConsumerLayout)}, got {layout!r}; "
            "an adapter must know the layout beforehand, so there is no auto"
        )
    if not 1 <= deliveries <= 65_535:
        raise UsageError(f"queue {queue}: deliveries: expected a number from 1 to 65535, got {deliveries!r}")
    way = ConsumerLayout(layout)
    rules = Rules(retries=retries, backoff=_usual(way) if backoff is None else backoff, on=wishes.get("on"))
    most = max(schedule.retries for schedule in rules.schedules)
    if way in _BOUNDED and most > retries:
        raise UsageError(
            f"queue {queue}: on: expected error rules with at most {retries} retries, got {most}; "
            f"{_BOUNDED[way]}: raise retries, or take the layout return"
        )
    return AdapterTerms(
        queue=queue,
        way=way,
        rules=rules,
        teller=Teller(
            service=wishes.get("service", ""),
            release=wishes.get("release", ""),
            redact=wishes.get("redact"),
        ),
        deliveries_max=deliveries,
    )


def _usual(way: ConsumerLayout) -> Delays:
    match way:
        case ConsumerLayout.LOOP:
            return fixed(10)  # it has one delay
        case ConsumerLayout.NATIVE:
            return linear(1)  # the broker counts like that
        case _:
            return exponential(1, cap=600)
