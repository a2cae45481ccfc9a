"""The place a letter was found in, and which of its deaths can have led there.

Headers are written by whoever publishes. A publisher who may write to a dead-letter exchange, and to nothing
else, can put an `x-death` on a message that names any queue of the vhost; on RabbitMQ 3.x so can one who
writes to an application's exchange, and an application that copies headers does it without knowing. Whoever
believes it publishes, with rights of its own, where that publisher may not. So a death is believed only where
the shape of the broker says that it can have happened:

- letters that die in the queue of the **newest** death come into this dead-letter queue, by the exchange
  (and, where the queue sets one, the key) with which this letter came;
- letters that die in the queue of an **older** death come into a queue of a newer one.

The first death for which that does not hold was written by somebody else, or came along with copied headers;
it and all that are older prove nothing. What remains possible: a publisher to a dead-letter exchange can name
any queue that dead-letters by that exchange into this queue. A configuration may name further origins.

A queue that is not there any more is believed: nothing can be sent to it, and its letters are parked as they
always were.
"""

from __future__ import annotations

from dataclasses import dataclass

from deadletter.core.deciding.deaths import Death
from deadletter.core.letter.header_values import shown
from deadletter.core.letter.key_bytes import is_utf8
from deadletter.core.letter.names import is_ours
from deadletter.core.text.glob import glob
from deadletter.core.topology.descent import Descent


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The dead-letter queue a letter was found in. `named`: origins that the configuration vouches for."""

    queue: str
    ways: Descent
    named: tuple[str, ...] = ()

    def vouches_for(self, queue: str) -> bool:
        return any(glob(pattern, queue) for pattern in self.named)

    def proven(self, deaths: tuple[Death, ...], came_by: tuple[str, str]) -> tuple[Death, ...]:
        """The newest deaths, as many as can have led here; `came_by` is the letter's exchange and key."""
        since: set[str] = set()
        for number, death in enumerate(deaths):
            queue = death.queue
            if queue not in since and not self.vouches_for(queue):
                if number:
                    can = not self.ways.knows(queue) or not self.ways.into(queue).isdisjoint(since)
                else:
                    can = self.objection(queue, came_by) is None
                if not can or not is_utf8(queue):
                    return deaths[:number]
            since.add(queue)
        return deaths

    def objection(self, queue: str, came_by: tuple[str, str]) -> str | None:
        """Why a letter that came this way cannot have died in that queue just before, in words."""
        name = shown(queue, 100)
        if not is_utf8(queue):
            return f"no queue can be called {name}"
        if not self.ways.knows(queue):
            return None
        if self.queue not in self.ways.into(queue):
            return f"letters that die in {name} do not come into {shown(self.queue, 100)}"
        exchange, key = came_by
        if not exchange or is_ours(exchange):
            # Whoever may publish by the default exchange reaches every queue without our help.
            return None
        if exchange != (by := self.ways.exchange_of(queue) or ""):
            return f"it came by exchange {shown(exchange, 100)}, and letters that die in {name} by {by!r}"
        own = self.ways.key_of(queue)
        if own is not None and key != own:
            return (
                f"it came with key {shown(key, 100)}, and letters that die in {name} with {shown(own, 100)}"
            )
        return None
