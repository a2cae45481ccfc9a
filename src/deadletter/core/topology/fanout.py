"""Where one death is given to several dead-letter queues, and from which of them the letter goes home.

A dead-letter exchange that copies gives every owner of a dead-letter queue the letters of all the others. If
each sends its copy home, one letter becomes 2, 4, 8. So one queue is the letter's home, and whoever looks at
the same broker comes to the same answer, whichever of the queues it watches itself: the queue that is named
after the origin, else the first by name of those that belong to somebody. A queue that belongs to nobody (an
archive) is neither home nor copy.

The answer is about one letter: two keys that lead to two queues are two ways, not two copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from deadletter.core.layouts.naming import dlq_name
from deadletter.core.letter.names import is_ours
from deadletter.core.topology.routing import Reach, Router, keys_of
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import Queue, Topology

_SEPARATORS: Final = frozenset(".-_:/")


class Fanouts:
    """Asks one shape; `watched` are the dead-letter queues that are looked after here."""

    def __init__(self, shape: Topology, watched: frozenset[str]) -> None:
        self._queues = shape.queues
        self._router = Router(shape)
        self._watched = watched
        self.homes: Mapping[str, str] = dict(self._all())
        """Origins of which letters come into a watched queue and into others, and a home of theirs."""

    def home(self, origin: str, keys: Collection[str]) -> str | None:
        """From where a letter goes back that died in `origin` with these keys; None: nobody else gets it."""
        queue = self._queues.get(origin)
        if queue is None or queue.dead_letter_exchange is None:
            return None
        asked = keys if queue.dead_letter_key is None else (queue.dead_letter_key,)
        exchange = queue.dead_letter_exchange
        return self._home(origin, [self._router.route(exchange, Keys(key)) for key in asked])

    def surely(self, exchange: str, key: str, *, home: str, here: str) -> bool:
        """Whether what came to `here` by this exchange and key is in `home` as well, and stays there.

        Both are the broker's word for how a message came, which no publisher can write.
        """
        reach = self._router.route(exchange, Keys(key))
        queue = self._queues.get(home)
        return reach.certain and {home, here} <= reach.queues and queue is not None and _keeps(queue)

    def _all(self) -> Iterable[tuple[str, str]]:
        for name, queue in self._queues.items():
            for reach in () if is_ours(name) else self._router.fates(queue):
                if reach.queues.isdisjoint(self._watched):
                    continue
                if (home := self._home(name, [reach])) is not None:
                    yield name, home

    def _home(self, origin: str, reaches: list[Reach]) -> str | None:
        if not all(reach.certain for reach in reaches):
            return None
        reached = (name for reach in reaches for name in copied_together(self._router, reach))
        together = frozenset(name for name in reached if not is_ours(name))
        if len(together) < 2:
            return None
        owners = {name: owner(name, self._queues, together) for name in together}
        claiming = {name for name in together if name in self._watched or owners[name] is not None}
        if len(claiming) < 2:
            return None
        named = dlq_name(origin)
        own = {name for name in claiming if owners[name] == origin}
        return named if named in claiming else min(own or claiming)


def copied_together(router: Router, reach: Reach) -> frozenset[str]:
    """Queues that get the same letter, of all that letters with these keys may reach.

    The queues of a pattern are those of all its keys, and most exchanges keep them apart. One letter is
    copied where two bindings take whatever comes, or where one within the pattern meets another.
    """
    if not reach.keys.pattern or len(reach.queues) < 2:
        return reach.queues
    kind = router.topology.exchanges[reach.exchange].type
    taken = [
        (name, keys_of(binding, kind))
        for name in sorted(reach.queues)
        for binding in router.bindings_into(name)
        if binding.source == reach.exchange
    ]
    always = frozenset(name for name, keys in taken if reach.keys.all_within(keys))
    if always:
        return always if len(always) > 1 else always | {min(reach.queues - always)}
    for name, keys in taken:
        if keys.all_within(reach.keys):
            beside = router.route(reach.exchange, keys).queues - {name}
            if beside:
                return frozenset({name, min(beside)}) if keys.pattern else beside | {name}
    return frozenset()


def owner(name: str, queues: Collection[str], beside: frozenset[str]) -> str | None:
    """The queue a dead-letter queue is named after: orders for orders.dlq and for dlq.orders."""
    cuts = [at for at, sign in enumerate(name) if sign in _SEPARATORS]
    longest_first = [*(name[:at] for at in reversed(cuts)), *(name[at + 1 :] for at in cuts)]
    return next((part for part in longest_first if part in queues and part not in beside), None)


def _keeps(queue: Queue) -> bool:
    """Whether a letter that came into it is there until somebody takes it out."""
    limits = (queue.max_length, queue.max_length_bytes, queue.ttl_ms, queue.expires_ms)
    bounded = any(limit is not None for limit in limits)
    return queue.type in ("classic", "quorum") and queue.durable and not (bounded or queue.auto_delete)


NO_FANOUTS: Final = Fanouts(Topology(), frozenset())
