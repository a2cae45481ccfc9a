"""Queues nobody looks after: where failed letters are parked, pile up, vanish or fall into wrong hands.

A dead-letter queue is the last place a letter can be found. A TTL, a length limit or an expiry on it throws
away what somebody wanted to keep; nobody watching it is the same, only later. And a queue that is still bound
but no longer consumed goes on collecting: either it grows until the broker is full, or it expires into a
dead-letter exchange, where letters that never failed lie among those that did and are replayed with them.

Who consumes is told by a live broker only; of a file such rules say nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from deadletter.core.letter import names
from deadletter.core.text.durations import duration_text
from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.vhost import LiveConsumer, Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.path_words import in_queue, queue_step, some
from deadletter.doctor.rules.routes import dead_letter_exchanges, is_full, setting_step, way_out

_LIMITS: Final = ("message-ttl", "max-length", "max-length-bytes", "expires")
_ADDRESS: Final = re.compile(r"\S+:\d+ -> \S+:\d+|[\d.]+:\d+|\[[\da-fA-F:]+\]:\d+")
_INSTANCE: Final = re.compile(r"[\s:#@/(].*$|[-_.][\da-fA-F-]*\d[\da-fA-F-]*$")
"""What follows the service's name in that of a connection: a host, a number, a process, a random id."""


def failure_queues(case: Case) -> Iterator[Queue]:
    """Where failed letters stay: watched ones, and those that only dead letters come to."""
    for_dead_letters = dead_letter_exchanges(case)
    watched = case.watched or frozenset()
    for queue in case.topology.queues.values():
        bindings = case.router.bindings_into(queue.name)
        if queue.name in watched or (
            case.is_dlq(queue) and all(binding.source in for_dead_letters for binding in bindings)
        ):
            yield queue


def way_into(case: Case, queue: Queue) -> tuple[str, ...]:
    """The path of a letter that dies into a queue; only the queue where nothing does."""
    for source in case.dying_into.get(queue.name, ()):
        if source.name == queue.name:
            continue
        for reach in case.router.fates(source):
            if queue.name in reach.queues:
                return (*way_out(source, reach), queue_step(queue.name))
    return (queue_step(queue.name),)


def has_no_consumer(queue: Queue) -> bool:
    """Whether a live broker says that nobody consumes it."""
    return queue.state is not None and not queue.state.consumers


# -- dlq-limits --------------------------------------------------------------------------------------------
@rule(
    "dlq-limits",
    Harm.LOST,
    summary="a dead-letter queue that throws letters away: TTL, length limit or expiry",
    why="What lies in a dead-letter or parking queue waits for a person. A message TTL throws each "
    "letter away, a length limit the oldest (or refuses the newest), `expires` the whole queue once "
    "nobody has used it for that long. A policy for `.*` is enough. The same on every version.",
)
def dlq_limits(case: Case) -> Iterator[Evidence]:
    for queue in failure_queues(case):
        for key in _LIMITS:
            if key in queue.effective and (queue.dead_letter_exchange is None or key == "expires"):
                yield _limited(case, queue, key)


def _limited(case: Case, queue: Queue, key: str) -> Evidence:
    step, harm = _what_a_limit_does(queue, key)
    certain = key == "message-ttl" or (key == "expires" and has_no_consumer(queue)) or is_full(queue)
    return Evidence(
        severity=Severity.ERROR if certain else Severity.WARNING,
        subject=queue.name,
        path=(*way_into(case, queue), step, "gone"),
        why=f"{queue.name} keeps letters that failed, until somebody has looked at them; but {harm}.",
        fix=cures.take_off(case, queue, key),
    )


def _what_a_limit_does(queue: Queue, key: str) -> tuple[str, str]:
    """The step a letter is lost by, and the sentence about it."""
    limit = setting_step(key, queue.effective[key])
    match key:
        case "message-ttl":
            after = duration_text(queue.ttl_ms or 0)
            return f"expired after {after}", f"after {after} each of them is thrown away"
        case "expires":
            after = duration_text(queue.expires_ms or 0)
            return (
                f"queue unused for {after}",
                f"after {after} without a consumer the whole queue goes, with all its letters",
            )
        case _ if queue.overflow == "drop-head":
            return f"{limit}, drop-head", f"over {limit} every new letter throws an old one away"
        case _:
            return (
                f"{limit}, {queue.overflow}",
                f"at {limit} it refuses new ones, and dead letters that are refused are lost",
            )


# -- unused-queue ------------------------------------------------------------------------------------------
@rule(
    "unused-queue",
    Harm.STUCK,
    live=True,
    summary="a queue without consumers that grows, or expires into a dead-letter exchange",
    why="A queue that is bound but not consumed keeps collecting. It grows until the broker stops its "
    "publishers; or it expires into a dead-letter queue, where letters that never failed are "
    "replayed to the exchange and come back as more. Only a live broker shows it.",
)
def unused_queue(case: Case) -> Iterator[Evidence]:
    parked = frozenset(queue.name for queue in failure_queues(case))
    for queue in case.topology.queues.values():
        if not has_no_consumer(queue) or queue.type == "stream" or queue.name in parked:
            continue
        if names.is_ours(queue.name):
            continue
        if queue.dead_letter_exchange is not None and queue.ttl_ms is not None:
            yield from _expiring_unused(case, queue, parked)
        else:
            yield from _growing_unused(case, queue)


def _growing_unused(case: Case, queue: Queue) -> Iterator[Evidence]:
    state = queue.state
    if state is None or state.growth_per_s <= 0 or state.delivered_per_s > 0:
        return
    feeding = sorted({binding.source for binding in case.router.bindings_into(queue.name)})
    yield Evidence(
        severity=Severity.WARNING,
        subject=queue.name,
        path=(
            *(f"exchange {name}" for name in feeding[:1]),
            queue_step(queue.name),
            "no consumer",
            f"grows by {state.growth_per_s:g}/s",
        ),
        why=(
            f"Nobody consumes {queue.name}, it holds {state.messages} letters and grows by "
            f"{state.growth_per_s:g}/s; it will, until memory or disk stops every publisher."
        ),
        fix=_remove(case, queue),
    )


def _expiring_unused(case: Case, queue: Queue, parked: frozenset[str]) -> Iterator[Evidence]:
    """Not a delay: what expires there ends among failed letters, and does not come back to be worked on."""
    state = queue.state
    if state is None or not (state.messages or state.published_per_s > 0):
        return
    for reach in case.router.fates(queue):
        mixed = sorted(name for name in reach.queues if name in parked and _also_others(case, name, queue))
        if mixed and len(mixed) == len(reach.queues):
            yield Evidence(
                severity=Severity.WARNING,
                harm=Harm.MULTIPLIED,
                subject=queue.name,
                path=(*way_out(queue, reach), queue_step(mixed[0])),
                why=(
                    f"Nobody consumes {queue.name}; what comes to it expires into {some(mixed)}, although it "
                    "never failed. Who replays that queue to an exchange feeds this one again, and there are "
                    "more letters after each round."
                ),
                fix=_remove(case, queue),
            )
            return


def _also_others(case: Case, target: str, queue: Queue) -> bool:
    """Whether letters that did fail die into it too, or nobody takes any from it; a delay has its own."""
    sources = case.dying_into.get(target, ())
    return has_no_consumer(case.topology.queues[target]) or any(
        source.name != queue.name and source.ttl_ms is None for source in sources
    )


def _remove(case: Case, queue: Queue) -> str:
    delete = rabbitmq_commands.delete_queue(queue.name, case.topology.vhost)
    return f"start its consumer; or, if nobody needs it any more, empty it and then: {delete}"


# -- unwatched-dlq -----------------------------------------------------------------------------------------
@rule(
    "unwatched-dlq",
    Harm.STUCK,
    summary="a dead-letter queue that nobody watches",
    why="Letters end there, and neither the configuration nor a consumer takes care of them: they are "
    "found when a customer asks. Said only where a configuration names the queues that are watched.",
)
def unwatched_dlq(case: Case) -> Iterator[Evidence]:
    if case.watched is None:
        return
    for queue in failure_queues(case):
        if queue.name in case.watched or names.is_ours(queue.name):
            continue
        if queue.state is not None and queue.state.consumers:
            continue
        waiting = "" if queue.state is None else f"; {queue.state.messages} letters lie there now"
        yield Evidence(
            severity=Severity.WARNING,
            subject=queue.name,
            path=(*way_into(case, queue), "not watched" if queue.state is None else "no consumer"),
            why=f"Letters end in {queue.name}, and neither a watch nor a consumer takes them{waiting}.",
            fix=f'watch it: [[watches]] with dlq = "{queue.name}" in deadletter.toml; to look first: '
            f"dlq peek {shlex.quote(queue.name)}",
        )


# -- mixed-services ----------------------------------------------------------------------------------------
@rule(
    "mixed-services",
    Harm.LOST,
    live=True,
    summary="several services consume one dead-letter queue",
    why="RabbitMQ hands the letters of a queue to its consumers in turn, whoever they are meant for. Two "
    "services on one dead-letter queue each get half of the other's letters. Different users are "
    "a warning; different connection names alone, which may be two instances, a note.",
)
def mixed_services(case: Case) -> Iterator[Evidence]:
    for queue in failure_queues(case):
        if queue.state is None or names.is_ours(queue.name):
            continue
        users = sorted({c.user for c in queue.state.consumers if c.user})
        services = sorted({name for c in queue.state.consumers if (name := service_of(c)) is not None})
        if len(users) < 2 and len(services) < 2:
            continue
        who = [f"user {name}" for name in users] if len(users) > 1 else [f"service {s}" for s in services]
        yield Evidence(
            severity=Severity.WARNING if len(users) > 1 else Severity.NOTE,
            subject=queue.name,
            path=(*way_into(case, queue), *(f"consumer of {each}" for each in who)),
            why=(
                f"{', '.join(who)} consume {queue.name} together. RabbitMQ gives each letter to one of them "
                "in turn, so each takes letters of the others, and what it does not know it throws away or "
                "sends back to the wrong queue."
            ),
            fix=f"a dead-letter queue for each service, or one consumer for {queue.name} that knows all "
            "origins: a watch of Deadletter",
        )


def service_of(consumer: LiveConsumer) -> str | None:
    """The service by the name of its connection; None where that is only an address."""
    if not consumer.connection or _ADDRESS.fullmatch(consumer.connection):
        return None
    return _INSTANCE.sub("", consumer.connection).casefold() or None


# -- no-prefetch -------------------------------------------------------------------------------------------
@rule(
    "no-prefetch",
    Harm.STUCK,
    live=True,
    summary="a consumer that acknowledges but has no prefetch limit",
    why="Without a prefetch a consumer is given all there is (2,000 at a time on a quorum queue), and "
    "the other consumers nothing. When it crashes, everything comes back at once, and on a quorum "
    "queue from 4.0 on each letter has spent one of 20 deliveries: a crash loop destroys them all.",
)
def no_prefetch(case: Case) -> Iterator[Evidence]:
    for queue in case.topology.queues.values():
        if queue.state is None or names.is_ours(queue.name):
            continue
        unlimited = [c for c in queue.state.consumers if c.ack_required and c.prefetch == 0]
        if not unlimited:
            continue
        destroys = queue.type == "quorum" and case.traits.limits_deliveries
        limit = queue.delivery_limit(case.version)
        cost = (
            f"; when it crashes, every one of them has spent a delivery, and after {limit} it is thrown out"
            if destroys and limit is not None
            else ""
        )
        yield in_queue(
            queue,
            Severity.WARNING,
            f"consumer {some({c.tag for c in unlimited})}",
            "acknowledges, prefetch 0",
            f"{queue.state.unacked} unacknowledged",
            harm=Harm.LOST if cost else Harm.STUCK,
            why=(
                f"A consumer of {queue.name} has no limit on what it is given at once: it holds "
                f"{queue.state.unacked} letters that no other consumer gets{cost}. (Before 4.3 RabbitMQ does "
                "not show a limit for a whole channel here; if it has one, this is fine.)"
            ),
            fix="set a prefetch in the application before it consumes: basic.qos with prefetch_count=100, "
            "global=false",
        )
