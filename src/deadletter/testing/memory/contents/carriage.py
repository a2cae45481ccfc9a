"""The way of the dead: from the queue a message died in, through its dead-letter exchange, into others.

At most once (the usual): what no queue takes is gone. At least once (quorum queues that ask for it): what no
queue takes is held and tried again every three minutes, and 32 that are held stop everything behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.testing.memory.clock import Clock
from deadletter.testing.memory.contents import death_records
from deadletter.testing.memory.contents.items import QueuedCopy
from deadletter.testing.memory.contents.queues import MemoryQueue

HELD_MAX: Final = 32
"""The prefetch of the broker's own at-least-once worker."""
AGAIN_S: Final = 180.0

Router = Callable[[QueuedCopy], list[MemoryQueue] | None]
"""The queues a message comes to by its exchange and keys; None when there is no such exchange."""


@dataclass(frozen=True, slots=True, eq=False)
class DeadCopy:
    queue: MemoryQueue
    item: QueuedCopy
    reason: str


class Carriage:
    """Sends the dead on, one after the other: a death on arrival waits its turn."""

    def __init__(self, clock: Clock, traits: Traits, router: Router) -> None:
        self._clock = clock
        self._traits = traits
        self._router = router
        self._pending: deque[DeadCopy] = deque()
        self._under_way = False
        self._held: dict[MemoryQueue, list[DeadCopy]] = {}
        self._behind: dict[MemoryQueue, deque[DeadCopy]] = {}

    def held(self, queue: MemoryQueue) -> int:
        """How many dead of a queue nobody took yet."""
        return len(self._held.get(queue, ())) + len(self._behind.get(queue, ()))

    def bury(self, queue: MemoryQueue, item: QueuedCopy, reason: str) -> None:
        self._pending.append(DeadCopy(queue, item, reason))

    def go(self) -> None:
        if self._under_way:
            return
        self._under_way = True
        try:
            while self._pending:
                dead = self._pending.popleft()
                if dead.queue.rules.at_least_once:
                    self._go_safely(dead)
                else:
                    self._send(dead)
        finally:
            self._under_way = False

    def _send(self, dead: DeadCopy) -> bool:
        """Whether every queue it was meant for has it, and there was one."""
        rules = dead.queue.rules
        if rules.dead_letter_exchange is None:
            return True  # the policy that named one is gone meanwhile
        item = death_records.dead(
            dead.item,
            self._traits,
            queue=dead.queue.name,
            reason=dead.reason,
            time_s=int(self._clock.now().timestamp()),
            to_exchange=rules.dead_letter_exchange,
            to_key=rules.dead_letter_key,
        )
        targets = self._router(item)
        if not targets:
            return False
        arriving = [
            queue for queue in targets if not death_records.is_cycle(item, self._traits, target=queue.name)
        ]
        # At most once is sent without asking; only who must know waits for an answer.
        asking = dead.queue if rules.at_least_once else None
        accepted = [queue.publish(item.copy(), asking) for queue in arriving]
        return all(accepted)

    # -- at least once -----------------------------------------------------------------------------------
    def _go_safely(self, dead: DeadCopy) -> None:
        held = self._held.setdefault(dead.queue, [])
        if len(held) >= HELD_MAX:
            self._behind.setdefault(dead.queue, deque()).append(dead)
        elif not self._send(dead):
            if not held:
                self._clock.call_at(self._clock.time() + AGAIN_S, lambda: self._again(dead.queue))
            held.append(dead)

    def _again(self, queue: MemoryQueue) -> None:
        trying = [*self._held.pop(queue, ()), *self._behind.pop(queue, ())]
        if not queue.gone:
            self._pending.extend(trying)
            self.go()
