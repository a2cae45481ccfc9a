"""Which message kills its consumer? Pure.

A process that dies gives back everything it held, and nothing tells the culprit from its neighbours. So
guilt is found in two steps. A message that came back twice is *suspect*: it is put back into its queue with a
header that says so, and from then on it is handled alone, with nothing else in the consumer's hands. One that
comes back from that died alone: it is counted, and after `deliveries` in all it is put aside. Its neighbours,
each alone in their turn, are handled and gone.

Being given back for another reason (a deployment, a lost connection, a closed gate) may make a message
suspect, which costs a moment alone. Only when it happens while it is alone does it count, and it must happen
until `deliveries` are reached: a handler that blocks the loop until the broker hangs up, or that outlives the
grace of every process, looks just like that.

Queues that count deliveries (quorum) need no header for the first ones; classic queues only say
"redelivered", so there the message is put back with the header each time. In the layout `native` a delivery
is a retry, and the broker ends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

SUSPECT: Final = 2
"""Deliveries after which a message is handled alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fine:
    """Handle it as any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Handle it with nothing else in hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """Put it back into its queue with this number of deliveries."""

    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadly:
    """It died alone, too often."""

    deliveries: int


Suspicion: TypeAlias = Fine | Alone | Anew | Deadly
FINE: Final = Fine()
ALONE: Final = Alone()


def suspicion(*, redelivered: bool, counted: int, noted: int, most: int) -> Suspicion:
    """`counted` by the queue, 0 where it does not count; `noted` in our header; put aside after `most`."""
    suspect_at = min(SUSPECT, most - 1)
    if not redelivered:
        return ALONE if noted >= suspect_at else FINE
    if noted >= suspect_at:
        deliveries = noted + 1
        return Deadly(deliveries=deliveries) if deliveries >= most else Anew(deliveries=deliveries)
    if counted and max(counted, noted) < suspect_at:
        return FINE
    return Anew(deliveries=min(max(counted, noted + 1), suspect_at))
