"""What a channel keeps of its consumers and of the deliveries nobody has settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deadletter.testing.memory.contents.items import QueuedCopy
from deadletter.testing.memory.contents.queues import MemoryQueue

if TYPE_CHECKING:
    from deadletter.testing.memory.connections.server_channel import ServerChannel


@dataclass(slots=True, eq=False)
class Consuming:
    """One consumer of a channel."""

    channel: ServerChannel
    tag: str
    queue: MemoryQueue
    prefetch: int
    priority: int
    exclusive: bool
    held: int = 0

    @property
    def has_room(self) -> bool:
        return self.prefetch == 0 or self.held < self.prefetch

    def hand(self, item: QueuedCopy, properties: bytes, *, redelivered: bool) -> None:
        self.held += 1
        self.channel.deliver(self, item, properties, redelivered=redelivered)

    def end(self) -> None:
        self.channel.cancelled(self)


@dataclass(frozen=True, slots=True)
class UnsettledDelivery:
    """A delivery nobody has settled."""

    item: QueuedCopy
    queue: MemoryQueue
    consumer: Consuming | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """An ack, nack or reject."""

    kind: str
    tag: int
    multiple: bool
    requeue: bool


def by_consumer(
    entry: tuple[tuple[MemoryQueue, Consuming | None], list[UnsettledDelivery]],
) -> tuple[str, str]:
    """Sorts what is settled together: consumer by consumer, in the order of their tags."""
    (queue, consumer), _ = entry
    return queue.name, "" if consumer is None else consumer.tag
