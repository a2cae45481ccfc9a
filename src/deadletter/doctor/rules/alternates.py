"""Alternate exchanges: what no binding takes goes there, and nobody is told.

To nowhere, if it does not exist or leads back; to the queue the letter died in, where it spins; into a queue
nobody looks at. On an exchange by which letters return to their origin it turns a return, which we would see,
into a silent loss.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from deadletter.core.letter import names
from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.routing import Reach
from deadletter.core.topology.routing_keys import ANY_KEY
from deadletter.core.topology.vhost import DestinationKind, Exchange, Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.path_words import dead_lettering, exchange_step, queue_step
from deadletter.doctor.rules.routes import way_out

_RETURNS: Final = names.PREFIX + "return."


@rule(
    "alternate-exchange",
    Harm.LOST,
    summary="an alternate exchange that is missing, leads back, or hides what found no queue",
    why="What no binding takes goes to the alternate exchange. If that does not exist or leads back, "
    "RabbitMQ drops the letter; if it leads to the queue the letter died in, the letter spins; if it "
    "leads to a queue nobody consumes, nobody finds it. On an exchange by which letters return to "
    "their origin it turns a visible return into a silent loss. The same on every version.",
)
def alternate_exchange(case: Case) -> Iterator[Evidence]:
    for exchange in case.topology.exchanges.values():
        if (alternate := exchange.alternate) is None:
            continue
        if exchange.name.startswith(_RETURNS):
            yield _hides_a_return(case, exchange, alternate)
        elif not _takes_everything(case, exchange.name):
            yield from _lost_alternate(case, exchange)
    for queue, _ in dead_lettering(case):
        yield from _caught_elsewhere(case, queue)


def _hides_a_return(case: Case, exchange: Exchange, alternate: str) -> Evidence:
    origin = exchange.name.removeprefix(_RETURNS)
    return Evidence(
        severity=Severity.ERROR,
        subject=exchange.name,
        path=(exchange_step(exchange.name), f"queue {origin} gone", exchange_step(alternate), "confirmed"),
        why=(
            f"Deadletter releases letters to {origin} through {exchange.name} and relies on RabbitMQ to "
            f"return what has no queue. {exchange_step(alternate)} takes it instead, and a letter without "
            "an origin counts as home."
        ),
        fix=_without_alternate(case, exchange),
    )


def _lost_alternate(case: Case, exchange: Exchange) -> Iterator[Evidence]:
    """Follow the alternates of one exchange: to a missing one, or round in a circle."""
    walked = [exchange.name]
    while (following := case.topology.exchanges[walked[-1]].alternate) is not None:
        if following in case.topology.exchanges and following not in walked:
            if _takes_everything(case, following):
                return
            walked.append(following)
            continue
        if following in walked[1:] or (following not in case.topology.exchanges and len(walked) > 1):
            return  # told where the circle or the gap itself is
        missing = following not in case.topology.exchanges
        end = "no such exchange" if missing else "has been there: dropped"
        yield Evidence(
            severity=Severity.ERROR,
            subject=exchange.name,
            path=(
                exchange_step(exchange.name),
                "no binding",
                *(exchange_step(name) for name in walked[1:]),
                exchange_step(following),
                end,
            ),
            why=(
                f"What no binding of {exchange.name} takes goes to its alternate exchange "
                f"{following if missing else walked[-1]}, which "
                f"{'does not exist' if missing else 'leads back'}: RabbitMQ drops it without a word."
            ),
            fix=(
                f"{cures.declare_queue(case, f'{following}.caught', 'classic')} && "
                f"{cures.declare_exchange(case, following, 'fanout')} && "
                f"{cures.bind(case, following, f'{following}.caught', '')}"
                if missing
                else _without_alternate(case, exchange)
            ),
        )
        return


def _caught_elsewhere(case: Case, queue: Queue) -> Iterator[Evidence]:
    """Dead letters that an alternate exchange takes: back to where they died, or where nobody looks."""
    for reach in case.router.fates(queue):
        for alternate in reach.alternates:
            caught = case.router.route(alternate, reach.keys).queues
            path = (*way_out(queue, reach), "no binding", exchange_step(alternate))
            if queue.name in caught:
                yield _leads_back(queue, reach, alternate, path)
                return
            unseen = sorted(name for name in caught if _nobody_looks(case, name))
            if unseen:
                yield _swallowed(case, queue, reach, unseen[0], path)
                return


def _leads_back(queue: Queue, reach: Reach, alternate: str, path: tuple[str, ...]) -> Evidence:
    return Evidence(
        severity=Severity.ERROR,
        harm=Harm.SPUN,
        subject=queue.name,
        path=(*path, queue_step(queue.name)),
        why=(
            f"What dies in {queue.name} with a key that {reach.exchange} has no binding for comes back to it "
            f"by the alternate exchange {alternate}: rejected, it spins; expired, RabbitMQ sees a cycle and "
            "drops it."
        ),
        fix=f"unbind {queue.name} from {alternate}, or bind its dead-letter queue to {reach.exchange} "
        f"with key {reach.keys}",
    )


def _swallowed(case: Case, queue: Queue, reach: Reach, where: str, path: tuple[str, ...]) -> Evidence:
    dlq = f"{queue.name}.dlq"
    declare = "" if dlq in case.topology.queues else f"{cures.declare_queue(case, dlq, queue.type)} && "
    return Evidence(
        severity=Severity.NOTE,
        harm=Harm.STUCK,
        subject=queue.name,
        path=(*path, queue_step(where), "no consumer"),
        why=(
            f"Dead letters of {queue.name} that no binding of {reach.exchange} takes end in {where}, which "
            "nobody consumes; who looks for them in its dead-letter queue does not find them."
        ),
        fix=f"{declare}{cures.bind(case, reach.exchange, dlq, reach.keys.text)}; or let somebody look after "
        f"{where}: dlq peek {shlex.quote(where)}",
    )


def _nobody_looks(case: Case, name: str) -> bool:
    """Only a live broker tells who consumes."""
    if case.watched is not None and name in case.watched:
        return False
    state = case.topology.queues[name].state
    return state is not None and not state.consumers


def _takes_everything(case: Case, exchange: str) -> bool:
    """Whether nothing ever gets to the alternate of an exchange."""
    kind = case.topology.exchanges[exchange].type
    bindings = case.router.bindings_from(exchange)
    match kind:
        case "fanout":
            return bool(bindings)
        case "topic":
            return any(b.routing_key == ANY_KEY.text and b.to is DestinationKind.QUEUE for b in bindings)
        case _:
            return False


def _without_alternate(case: Case, exchange: Exchange) -> str:
    if "alternate-exchange" in exchange.arguments:
        return (
            f"alternate-exchange was given when {exchange.name} was declared and no policy takes it off: "
            "delete the exchange and declare it again without, with its bindings"
        )
    setting = (p for p in case.topology.policies if p.fits(exchange.name, "exchange"))
    policy = next((p for p in setting if "alternate-exchange" in p.definition), None)
    if policy is None:
        return f"take the alternate exchange off {exchange.name}"
    # An empty policy is refused, so it cannot be covered by one: its pattern has to pass this exchange by.
    pattern = f"^(?!{re.escape(exchange.name)}$)(?=.*?(?:{policy.pattern}))"
    return rabbitmq_commands.set_policy(replace(policy, pattern=pattern), case.topology.vhost)
