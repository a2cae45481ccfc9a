"""How safely a dead letter travels: at most once, or at least once.

Dead-lettering is a publish without a confirm. If the target is full, its node is down, or it is just being
moved, the letter is gone. Quorum queues can do better since 3.10, when they are asked in the right way; asked
in the wrong way they do not complain and do not do it.
"""

from __future__ import annotations

from collections.abc import Iterator

from deadletter.core.topology.vhost import Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures, path_words
from deadletter.doctor.rules.case import Case, rule


@rule(
    "at-most-once-from-quorum",
    Harm.LOST,
    summary="a quorum queue dead-letters at most once",
    why="By default a dead letter is published without waiting for a confirm and removed from its queue. "
    "If the target refuses it or is not there at that moment, it is lost, although the queue it came "
    "from is replicated. Quorum queues of 3.10 and later can wait for the confirm.",
)
def at_most_once_from_quorum(case: Case) -> Iterator[Evidence]:
    if case.traits.is_known and not case.traits.at_least_once:
        return  # there is nothing better there
    for queue, exchange in path_words.dead_lettering(case):
        if queue.type != "quorum" or exchange not in case.topology.exchanges or _asks(case, queue):
            continue
        yield path_words.in_queue(
            queue,
            Severity.WARNING,
            path_words.usual_death(queue),
            path_words.exchange_step(exchange),
            "published once, not confirmed",
            why=f"{queue.name} is replicated, but its dead letters leave it at most once: one that its "
            "target cannot take at that moment is lost.",
            fix=_ask_rightly(case, queue),
        )


@rule(
    "at-least-once-downgraded",
    Harm.LOST,
    summary="at-least-once dead-lettering is asked for and not applied",
    why="dead-letter-strategy at-least-once works on quorum queues with overflow reject-publish. Without "
    "it, and on classic queues, RabbitMQ goes on at most once and says nothing.",
)
def at_least_once_downgraded(case: Case) -> Iterator[Evidence]:
    for queue, exchange in path_words.dead_lettering(case):
        if not _asks(case, queue) or (queue.type == "quorum" and queue.overflow == "reject-publish"):
            continue
        classic = queue.type == "classic"
        yield path_words.in_queue(
            queue,
            Severity.WARNING,
            "a classic queue" if classic else f"overflow {queue.overflow}",
            "at-least-once is not applied",
            path_words.exchange_step(exchange),
            why=f"{queue.name} asks for at-least-once dead-lettering and does not get it, because "
            + ("classic queues do not have it" if classic else "it needs overflow reject-publish")
            + ": its dead letters leave it at most once, and the broker does not say so.",
            fix=_as_quorum(queue) if classic else _ask_rightly(case, queue),
        )


def _asks(case: Case, queue: Queue) -> bool:
    """By what holds; or by a policy that says nothing else and has no effect on a classic queue."""
    meant = case.chooser.without_effect(queue.name, queue.type)
    asked = queue.effective if meant is None or len(meant.definition) > 1 else meant.definition
    return asked.get("dead-letter-strategy") == "at-least-once"


def _ask_rightly(case: Case, queue: Queue) -> str:
    command = cures.set_policy(case, queue, dead_letter_strategy="at-least-once", overflow="reject-publish")
    limited = queue.max_length is not None or queue.max_length_bytes is not None
    return f"mind that a full {queue.name} refuses publishers then: {command}" if limited else command


def _as_quorum(queue: Queue) -> str:
    return (
        f"a queue keeps its type: declare {queue.name} anew with x-queue-type=quorum and "
        "x-overflow=reject-publish, or take dead-letter-strategy off it"
    )
