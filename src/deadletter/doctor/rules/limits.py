"""Limits that throw letters away: lengths, times, deliveries, and queues that go themselves.

A limit is a decision about what to do with the letter that is too much. Without a dead-letter exchange the
decision is to destroy it. For an ordinary queue somebody may have meant that; for a queue that holds what has
failed already it is the last copy. Lengths and times of the queues where dead letters end are told by
`dlq-limits` and not a second time here.
"""

from __future__ import annotations

from collections.abc import Iterator

from deadletter.core.letter import names
from deadletter.core.topology.vhost import Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures, path_words
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.neglect import failure_queues
from deadletter.doctor.rules.routes import keeps_what_fails


@rule(
    "limit-without-dlx",
    Harm.LOST,
    summary="a queue destroys what is too old or too much",
    why="Where a TTL or a length is reached, RabbitMQ dead-letters the letter; without a dead-letter "
    "exchange it is gone. With overflow reject-publish a full queue refuses new messages instead, and "
    "nothing that was accepted is lost. An error where the name says that failures are kept there, else "
    "a warning.",
)
def limit_without_dlx(case: Case) -> Iterator[Evidence]:
    for queue in _not_told_elsewhere(case):
        if queue.dead_letter_exchange is not None:
            continue
        limits = _destroying(queue)
        if not limits:
            continue
        reason = " or ".join(dict.fromkeys(limits.values()))
        last = path_words.holds_failures(case, queue)
        set_there = ", ".join(f"{name} {queue.effective[name]!s}" for name in limits)
        yield path_words.in_queue(
            queue,
            Severity.ERROR if last else Severity.WARNING,
            reason,
            path_words.NO_DLX,
            why=f"{queue.name} has {set_there} and no dead-letter exchange: what is too old or too much is "
            f"destroyed{', and it may be the last copy of a letter that failed' if last else ''}.",
            fix=cures.take_off(case, queue, *limits) if last else cures.own_dlq(case, queue),
        )


def _not_told_elsewhere(case: Case) -> Iterator[Queue]:
    told = {queue.name for queue in failure_queues(case)} | {names.OUTCOMES}  # words of consumers, no letters
    for queue in case.topology.queues.values():
        if path_words.dies(queue) and not path_words.is_temporary(queue) and queue.name not in told:
            yield queue


def _destroying(queue: Queue) -> dict[str, str]:
    """The limits that destroy letters, and the reason each gives. `reject-publish` refuses new ones instead,
    and a publisher that waits for confirms knows."""
    found = {}
    if queue.ttl_ms is not None:
        found["message-ttl"] = path_words.EXPIRED
    if path_words.drops_oldest(queue):
        found |= {
            name: path_words.MAXLEN for name in ("max-length", "max-length-bytes") if name in queue.effective
        }
    return found


@rule(
    "expiring-queue",
    Harm.LOST,
    summary="a queue that holds letters is deleted when it is not used",
    why="x-expires deletes the queue, not its messages one by one: nothing is dead-lettered. Only "
    "consumers and gets count as use, and of classic queues declarations. An error for queues that others "
    "die into and for delays that go before their letters are due, as quorum delays do.",
)
def expiring_queue(case: Case) -> Iterator[Evidence]:
    for queue in _not_told_elsewhere(case):
        expires = queue.expires_ms
        severity = None if expires is None else _gravity_of_expiry(case, queue, expires)
        if severity is None:
            continue
        declared = " or a declaration" if queue.type == "classic" else ""
        yield path_words.in_queue(
            queue,
            severity,
            f"unused for {expires} ms",
            "queue deleted",
            "its letters are not dead-lettered",
            why=f"{queue.name} is deleted after {expires} ms without a consumer or a get{declared}, and "
            "what it holds then goes with it: publishing to it does not count as use, and its dead-letter "
            "exchange is not asked.",
            fix=cures.take_off(case, queue, "expires"),
        )


def _gravity_of_expiry(case: Case, queue: Queue, expires_ms: int) -> Severity | None:
    """None for a queue of which nobody said that its letters matter."""
    if case.is_dlq(queue):
        return Severity.ERROR
    if queue.dead_letter_exchange is None:
        return Severity.WARNING if path_words.holds_failures(case, queue) else None
    if queue.ttl_ms is None:
        return Severity.WARNING
    # A delay has no consumers. If it goes before its letters are due, each of them is lost; if later, those
    # are safe that were published right after a declaration, which is how such queues are mostly used. A
    # declaration keeps a classic queue; a quorum queue goes all the same.
    kept = queue.type == "classic" and expires_ms > queue.ttl_ms
    return Severity.NOTE if kept else Severity.ERROR


@rule(
    "delivery-limit-into-nothing",
    Harm.LOST,
    summary="a quorum queue destroys what was delivered too often",
    why="From 4.0 on a quorum queue has a delivery limit of 20 unless it says otherwise. A consumer that "
    "takes a thousand letters and crashes, twenty-one times over, destroys all thousand. Before 4.0 only "
    "queues that set a limit do this. An error for queues of dead letters, else a warning.",
)
def delivery_limit_into_nothing(case: Case) -> Iterator[Evidence]:
    for queue in case.topology.queues.values():
        limit = queue.delivery_limit(case.version)
        if limit is None:
            continue
        end = _end_of_the_limit(case, queue)
        if end is None:
            continue
        last = path_words.holds_failures(case, queue)
        whose = "" if "delivery-limit" in queue.effective else " (the broker's default)"
        yield path_words.in_queue(
            queue,
            Severity.ERROR if last else Severity.WARNING,
            path_words.DELIVERY_LIMIT,
            *end,
            why=f"A letter of {queue.name} that was delivered {limit} times{whose} without an ack is "
            "destroyed"
            + (
                ": a consumer that crashes in a loop empties this queue of failures for good."
                if last
                else ", and no queue receives it."
            ),
            fix=cures.no_limit(case, queue) if last else _somewhere(case, queue),
        )


def _end_of_the_limit(case: Case, queue: Queue) -> tuple[str, ...] | None:
    """The last steps of a path to nowhere; None where some letter may find a queue."""
    exchange = queue.dead_letter_exchange
    if exchange is None:
        return (path_words.NO_DLX,)
    if keeps_what_fails(queue):
        return None  # held until there is a way
    if exchange not in case.topology.exchanges:
        return (path_words.exchange_step(exchange), "no such exchange")
    reaches = path_words.fates(case, queue)
    if all(path_words.reaches_nothing(reach) and path_words.is_sure(case, reach) for reach in reaches):
        first = min(reach.keys for reach in reaches)
        return (path_words.exchange_step(exchange), path_words.key_step(first), path_words.NO_BINDING)
    return None


def _somewhere(case: Case, queue: Queue) -> str:
    if queue.dead_letter_exchange is None:
        return cures.own_dlq(case, queue)
    return f"give its dead letters a way first; until then: {cures.no_limit(case, queue)}"
