"""Letters that vanish because nothing is where they are sent, or because nobody sends them anywhere.

RabbitMQ says nothing when a dead letter has no way to go: not to the consumer that rejected it, not to the
publisher, not in its log. The rules here look for the places where that is decided: a dead-letter exchange
that is not there, a key that nothing takes, a key that looks like a name. A quorum queue that dead-letters at
least once keeps such letters instead, and stands still: `at-least-once-into-refusing` tells that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deadletter.core.topology.routing import Reach
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, DestinationKind, Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures, path_words
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.routes import keeps_what_fails

_GRAVITY: Final = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@rule(
    "missing-dlx",
    Harm.LOST,
    summary="a queue dead-letters to an exchange that does not exist",
    why="RabbitMQ does not check a dead-letter exchange when it is named, and when it is missing at the "
    "moment of a death the letter is dropped silently, on every version.",
)
def missing_dlx(case: Case) -> Iterator[Evidence]:
    for queue, exchange in path_words.dead_lettering(case):
        if exchange in case.topology.exchanges or keeps_what_fails(queue):
            continue
        yield path_words.in_queue(
            queue,
            Severity.ERROR,
            path_words.usual_death(queue),
            path_words.exchange_step(exchange),
            "no such exchange",
            why=f"Dead letters of {queue.name} go to exchange {exchange}, which does not exist: the broker "
            "drops each of them and tells nobody.",
            fix=_make_exchange(case, queue, exchange),
        )


def _make_exchange(case: Case, queue: Queue, exchange: str) -> str:
    """Direct, and a key for each queue: a fanout that several queues die into would multiply letters."""
    key = queue.dead_letter_key
    dlq = f"{queue.name}.dlq" if key is None else f"{key}.dlq".replace(".dlq.dlq", ".dlq")
    steps = [cures.declare_exchange(case, exchange, "direct")]
    if dlq not in case.topology.queues:
        steps.append(cures.declare_queue(case, dlq, queue.type))
    steps.append(cures.bind(case, exchange, dlq, key or dlq))
    if key is None:
        steps.append(cures.set_policy(case, queue, dead_letter_routing_key=dlq))
    return " && ".join(steps)


@rule(
    "dead-letter-key-unbound",
    Harm.LOST,
    summary="a dead-letter exchange has no binding for the keys dead letters come with",
    why="A dead letter keeps its routing key unless the queue sets another. Where the dead-letter "
    "exchange has no binding for that key, the letter is dropped silently, as an ordinary message "
    "would be. An error when no letter with the key can arrive, a warning when some may not.",
)
def dead_letter_key_unbound(case: Case) -> Iterator[Evidence]:
    for queue, exchange in path_words.dead_lettering(case):
        if exchange not in case.topology.exchanges or keeps_what_fails(queue):
            continue  # told by missing-dlx, or not lost
        judged = [(grade, reach) for reach in path_words.fates(case, queue) if (grade := _grade(case, reach))]
        if judged:
            worst = min((grade for grade, _ in judged), key=_GRAVITY.index)
            yield _unbound(case, queue, worst, [reach for grade, reach in judged if grade is worst])


def _grade(case: Case, reach: Reach) -> Severity | None:
    """How bad it is; None where every letter finds a queue, or where nothing can be said."""
    if path_words.reaches_nothing(reach):
        return Severity.ERROR if path_words.is_sure(case, reach) else Severity.WARNING
    if reach.certain:
        return None if reach.complete else Severity.WARNING
    # Of a plugin's exchange we do not know what it does; of headers we do: they may match nothing.
    return Severity.NOTE if case.topology.exchanges[reach.exchange].type == "headers" else None


def _unbound(case: Case, queue: Queue, severity: Severity, lost: list[Reach]) -> Evidence:
    first = min(lost, key=lambda reach: reach.keys)
    where = path_words.exchange_step(first.exchange)
    keys = path_words.some(path_words.key_step(reach.keys) for reach in lost)
    if not path_words.reaches_nothing(first):
        end = "depends on headers" if severity is Severity.NOTE else "not every such key is bound"
        why = (
            f"Dead letters of {queue.name} reach {where} with {keys}. Only some find a queue there "
            f"({path_words.some(first.queues)}); the others may be dropped without a word."
        )
    else:
        end = _dead_end(first)
        sure = severity is Severity.ERROR
        why = (
            f"Dead letters of {queue.name} reach {where} with {keys}, and nothing there "
            f"{'takes' if sure else 'seems to take'} it: the broker {'drops' if sure else 'may drop'} "
            "them without a word."
        )
    return path_words.in_queue(
        queue,
        severity,
        path_words.usual_death(queue),
        where,
        path_words.key_step(first.keys),
        end,
        why=why,
        fix=_way_out(case, queue, first),
    )


def _dead_end(reach: Reach) -> str:
    if reach.missing is not None:
        return f"alternate exchange {reach.missing} does not exist"
    return "no queue of that name" if reach.exchange == DEFAULT_EXCHANGE else path_words.NO_BINDING


def _way_out(case: Case, queue: Queue, reach: Reach) -> str:
    """A binding for the key where one binding can take it, else one key for all of them."""
    target = _right_dlq(case, queue, reach.exchange)
    steps = []
    if target not in case.topology.queues:
        steps.append(cures.declare_queue(case, target, queue.type))
    if reach.exchange == DEFAULT_EXCHANGE:
        steps.append(cures.set_policy(case, queue, dead_letter_routing_key=target))
    elif not reach.keys.pattern or case.topology.exchanges[reach.exchange].type == "topic":
        steps.append(cures.bind(case, reach.exchange, target, reach.keys.text))
    else:
        steps.append(cures.bind(case, reach.exchange, target, target))
        steps.append(cures.set_policy(case, queue, dead_letter_routing_key=target))
    return " && ".join(steps)


def _right_dlq(case: Case, queue: Queue, exchange: str) -> str:
    """Where its letters belong: where those with other keys go already, the only queue there, or its own."""
    if others := case.router.dead_letter_queues(queue):
        return min(others)
    seen = ""
    for binding in case.router.bindings_from(exchange):
        if binding.to is not DestinationKind.QUEUE or seen not in ("", binding.destination):
            return f"{queue.name}.dlq"
        seen = binding.destination
    return seen or f"{queue.name}.dlq"


@rule(
    "key-named-like-exchange",
    Harm.LOST,
    summary="an exchange takes no key but its own name",
    why="Name and routing key are easily mixed up in a table of bindings. Publishers that use the key "
    "they were told lose every message, and unless they publish as mandatory they do not learn it.",
)
def key_named_like_exchange(case: Case) -> Iterator[Evidence]:
    """Where letters die there, the keys are known and `dead-letter-key-unbound` knows better."""
    dlxes = {exchange for _, exchange in path_words.dead_lettering(case)}
    for exchange in case.topology.exchanges.values():
        bindings = case.router.bindings_from(exchange.name)
        if (
            exchange.type not in ("direct", "topic")
            or exchange.name in dlxes
            or not bindings
            or any(b.routing_key != exchange.name or b.destination == exchange.name for b in bindings)
        ):
            continue
        target = min(b.destination for b in bindings)
        yield Evidence(
            severity=Severity.NOTE,
            subject=exchange.name,
            path=(
                path_words.exchange_step(exchange.name),
                path_words.key_step(Keys(exchange.name)),
                path_words.queue_step(target),
                "any other key: no binding",
            ),
            why=f"The only key that {exchange.name} takes is its own name, which looks like a mix-up of name "
            f"and key. What is published there with another key may never reach {target}.",
            fix=f"if publishers use another key: {cures.bind(case, exchange.name, target, 'KEY')}",
        )
