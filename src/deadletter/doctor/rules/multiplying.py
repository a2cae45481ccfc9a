"""One letter becomes two, the two become four.

RabbitMQ copies a message to every queue whose binding takes it, dead letters as well. That is harmless as
long as only one of the copies ever comes back. Two shapes bring back more than one, and then every round has
more: a dead-letter exchange that copies into the dead-letter queues of several owners, each of whom retries;
and a retry that publishes to the exchange instead of the queue that failed, so that queues nobody consumes
get a copy, let it expire, and it comes to the same dead-letter queue again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from deadletter.core.topology.fanout import copied_together, owner
from deadletter.core.topology.routing import Reach, keys_of
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Queue
from deadletter.doctor.finding import Evidence, Finding, Harm, Severity
from deadletter.doctor.rules import cures, path_words
from deadletter.doctor.rules.case import Case, rule


class _Copying(NamedTuple):
    """One queue whose dead letters arrive more than once."""

    severity: Severity
    queue: str
    keys: Keys
    targets: tuple[str, ...]


@rule(
    "shared-dlx-fanout",
    Harm.MULTIPLIED,
    summary="one dead letter arrives in several queues",
    why="A dead-letter exchange that copies gives every owner of a dead-letter queue the letters of all "
    "others. Two queues that share a fanout and are retried make 2, 4, 8, 16 of one letter. An error "
    "when the copies belong to different queues or go back by themselves; a warning when it may be a "
    "copy that somebody wants.",
)
def shared_dlx_fanout(case: Case) -> Iterator[Evidence]:
    """One finding per exchange: the cure is there, however many queues die into it."""
    worst: dict[str, _Copying] = {}
    sources: dict[str, set[str]] = {}
    judged: dict[Reach, _Copying | None] = {}
    for queue, exchange in path_words.dead_lettering(case):
        for reach in case.router.fates(queue):
            if reach not in judged:
                judged[reach] = _copying(case, queue.name, reach)
            found = judged[reach]
            if found is None:
                continue
            sources.setdefault(exchange, set()).add(queue.name)
            if exchange not in worst or _before(found, worst[exchange]):
                worst[exchange] = found
    for exchange, found in worst.items():
        yield _shared(case, exchange, found, sources[exchange])


def multiplied(case: Case, concerned: Collection[str]) -> tuple[Finding, ...]:
    """The errors of that kind which letters of these queues meet: those that die in them, or into them."""
    meeting = {
        exchange
        for queue, exchange in path_words.dead_lettering(case)
        if queue.name in concerned or not case.router.dead_letter_queues(queue).isdisjoint(concerned)
    }
    return tuple(
        found
        for found in shared_dlx_fanout.check(case)
        if found.severity is Severity.ERROR and found.subject in meeting
    )


def _before(one: _Copying, other: _Copying) -> bool:
    if one.severity is not other.severity:
        return one.severity is Severity.ERROR
    return (one.queue, one.keys) < (other.queue, other.keys)


def _copying(case: Case, queue: str, reach: Reach) -> _Copying | None:
    """Headers and plugins' exchanges may choose one of many: nothing is said of them."""
    if not reach.certain or len(reach.queues) < 2:
        return None
    together = copied_together(case.router, reach)
    if len(together) < 2:
        return None
    coming_back = [name for name in together if _comes_back(case, name)]
    owners = {owner for name in together if (owner := _owner(case, name, together)) is not None}
    return _Copying(
        severity=Severity.ERROR if len(coming_back) > 1 or len(owners) > 1 else Severity.WARNING,
        queue=queue,
        keys=reach.keys,
        targets=tuple(sorted(together)),
    )


def _comes_back(case: Case, name: str) -> bool:
    """Whether letters go from there, by themselves, to a queue whose letters die into it."""
    queues = case.topology.queues
    return any(
        name in case.router.dead_letter_queues(queues[further])
        for further in case.router.dead_letter_queues(queues[name])
    )


def _owner(case: Case, name: str, beside: frozenset[str]) -> str | None:
    return owner(name, case.topology.queues, beside)


def _shared(case: Case, exchange: str, found: _Copying, sources: set[str]) -> Evidence:
    queue = case.topology.queues[found.queue]
    targets = path_words.some(found.targets)
    if found.severity is Severity.ERROR:
        why = (
            f"Every letter that dies in {path_words.some(sources)} is copied to {len(found.targets)} queues "
            f"({targets}). Where each of them sends its letters back, one letter becomes "
            f"{len(found.targets)}, then {len(found.targets) ** 2}, then {len(found.targets) ** 3}."
        )
    else:
        why = (
            f"Every letter that dies in {path_words.some(sources)} is copied to {len(found.targets)} queues "
            f"({targets}). As an archive that is fine; as soon as letters are sent back from more than one "
            "of them they multiply with every round."
        )
    return Evidence(
        severity=found.severity,
        subject=exchange,
        path=(
            path_words.queue_step(found.queue),
            path_words.usual_death(queue),
            path_words.exchange_step(exchange),
            path_words.key_step(found.keys),
            *(path_words.queue_step(name) for name in found.targets[:8]),
        ),
        why=why,
        fix=_own_way(case, queue, found.targets),
    )


def _own_way(case: Case, queue: Queue, targets: Iterable[str]) -> str:
    """Straight to its own dead-letter queue, past the exchange that copies."""
    every = sorted(targets)
    own = next((name for name in every if _owner(case, name, frozenset(every)) == queue.name), every[0])
    return cures.set_policy(case, queue, dead_letter_exchange="", dead_letter_routing_key=own)


# -- the retry that goes through the exchange ---------------------------------------------------------------


class _Feeding(NamedTuple):
    """An exchange that feeds an unconsumed queue beside one that fails."""

    unused: str
    keys: Keys
    beside: str
    dlq: str


@rule(
    "republish-loop",
    Harm.MULTIPLIED,
    summary="a retry through the exchange feeds queues that expire into the same dead-letter queue",
    why="Whoever publishes a dead letter to its exchange again, instead of to the queue that failed, "
    "gives a copy to every queue bound there. Where one of them is not consumed, has a TTL and shares "
    "the dead-letter queue, its copy dies into it too. A warning on a live broker, where consumers are "
    "seen; a note in a file, where they are not.",
)
def republish_loop(case: Case) -> Iterator[Evidence]:
    """One finding per exchange, of the first unused queue by name."""
    found: dict[str, _Feeding] = {}
    unused: dict[str, set[str]] = {}
    for dlq, sources in sorted(case.dying_into.items()):
        if len(sources) < 2 or not case.is_dlq(case.topology.queues[dlq]):
            continue
        dying = {queue.name for queue in sources}
        pairs: dict[tuple[str, Keys], tuple[str, ...]] = {}
        for queue in sources:
            if queue.ttl_ms is None or _is_consumed(case, queue):
                continue
            for exchange, keys in _ways_in(case, queue):
                if (exchange, keys) not in pairs:
                    fed = case.router.route(exchange, keys).queues
                    pairs[exchange, keys] = tuple(sorted(fed & dying)[:2])
                beside = next((name for name in pairs[exchange, keys] if name != queue.name), None)
                if beside is None:
                    continue
                unused.setdefault(exchange, set()).add(queue.name)
                feeding = _Feeding(queue.name, keys, beside, dlq)
                found[exchange] = min(found.get(exchange, feeding), feeding)
    for exchange, feeding in found.items():
        yield _republished(case, exchange, feeding, unused[exchange])


def _is_consumed(case: Case, queue: Queue) -> bool:
    """Whether somebody surely takes its letters before they expire; a file does not tell."""
    return case.topology.live and queue.state is not None and bool(queue.state.consumers)


def _ways_in(case: Case, queue: Queue) -> Iterator[tuple[str, Keys]]:
    for binding in case.router.bindings_into(queue.name):
        exchange = case.topology.exchanges.get(binding.source)
        if exchange is not None and exchange.type in ("direct", "topic", "fanout"):
            yield exchange.name, keys_of(binding, exchange.type)


def _republished(case: Case, exchange: str, feeding: _Feeding, unused: set[str]) -> Evidence:
    queue = case.topology.queues[feeding.unused]
    live = case.topology.live
    names = path_words.some(unused)
    nobody = f"which nobody consumes ({names})" if live else f"which expire unless consumed ({names})"
    delete = cures.admin(case, "delete queue", name=feeding.unused)
    return Evidence(
        severity=Severity.WARNING if live else Severity.NOTE,
        subject=exchange,
        path=(
            path_words.exchange_step(exchange),
            path_words.key_step(feeding.keys),
            f"{path_words.queue_step(feeding.unused)} beside {path_words.queue_step(feeding.beside)}",
            path_words.EXPIRED,
            path_words.exchange_step(queue.dead_letter_exchange or DEFAULT_EXCHANGE),
            path_words.queue_step(feeding.dlq),
        ),
        why=f"A retry that publishes letters of {feeding.dlq} to {exchange} also feeds queues {nobody}: "
        f"their copies expire into {feeding.dlq} beside those of {feeding.beside}, and every round has more.",
        fix=f"send letters back to the queue that failed and not to {exchange}; if {feeding.unused} is not "
        f"used: {delete}",
    )
