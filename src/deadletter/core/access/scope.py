"""What somebody sees: letters of some vhosts, that failed in some queues, without masked fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deadletter.core.access.field_masks import NO_MASKS, FieldMasks
from deadletter.core.text.glob import glob

ANY: Final = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Patterns of names; `*` stands for any run.

    A letter is seen by whom sees its vhost and its origin, the queue in which it failed: all parked letters
    are in one queue, and that says nothing of whose they are. A letter whose vhost is not known is seen by
    those alone who see all of them; an origin that is not known is called `(unknown)`.
    """

    vhosts: tuple[str, ...] = ANY
    queues: tuple[str, ...] = ANY
    masks: FieldMasks = NO_MASKS

    @property
    def whole(self) -> bool:
        """Whether there is no letter it does not show."""
        return self.all_vhosts and self.all_queues

    @property
    def all_vhosts(self) -> bool:
        return "*" in self.vhosts

    @property
    def all_queues(self) -> bool:
        return "*" in self.queues

    def in_vhost(self, vhost: str) -> bool:
        return _any(self.vhosts, vhost)

    def of_queue(self, queue: str) -> bool:
        return _any(self.queues, queue)

    def sees(self, vhost: str, queue: str) -> bool:
        return self.in_vhost(vhost) and self.of_queue(queue)


WHOLE: Final = Scope()


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(pattern == "*" or (bool(name) and glob(pattern, name)) for pattern in patterns)
