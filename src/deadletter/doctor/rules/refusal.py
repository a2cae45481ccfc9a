"""Where a letter that leaves finds nobody to take it, or waits behind another.

Two mechanisms, both silent. At-least-once dead-lettering keeps what its target refuses or what has no target,
and its worker holds 32 letters: the 32nd stops the queue for every letter behind it, good ones too. And a
letter that carries its own expiration leaves only from the head of its queue, so a short delay behind a long
one is a long delay. A third, alternate exchanges, has a page of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deadletter.core.letter import names
from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.routing import Reach
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Exchange, Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.path_words import (
    dead_lettering,
    exchange_step,
    fates,
    in_queue,
    key_step,
    queue_step,
)
from deadletter.doctor.rules.routes import (
    can_refuse,
    dead_letter_exchanges,
    gap_of,
    is_full,
    keeps_what_fails,
    setting_step,
    way_out,
)

WORKER_HOLDS: Final = 32
"""How many letters the at-least-once worker of a quorum queue holds; measured on 3.10, 4.0 and 4.3."""


# -- at-least-once-into-refusing ---------------------------------------------------------------------------
@rule(
    "at-least-once-into-refusing",
    Harm.STUCK,
    summary="at-least-once dead-lettering into a target that can refuse or be missing",
    why="A quorum queue with at-least-once dead-lettering keeps a letter until its target has confirmed "
    "it. If the target is full and refuses, or no queue is bound for its key, the letter stays; "
    "after 32 of them the queue lets nothing through any more, not even letters for other targets. "
    "The same on 3.10, 4.0 and 4.3. An alternate exchange helps against a missing target, not "
    "against a full one.",
)
def at_least_once_into_refusing(case: Case) -> Iterator[Evidence]:
    refusing = frozenset(name for name, queue in case.topology.queues.items() if can_refuse(queue))
    for queue, _ in dead_lettering(case):
        if keeps_what_fails(queue):
            yield from _refused(case, queue, refusing)
            yield from _unroutable(case, queue)


def _refused(case: Case, queue: Queue, refusing: frozenset[str]) -> Iterator[Evidence]:
    told: set[str] = set()
    for reach in fates(case, queue):
        for name in sorted((reach.queues & refusing) - told):
            told.add(name)
            target = case.topology.queues[name]
            yield Evidence(
                severity=Severity.ERROR if is_full(target) else Severity.WARNING,
                subject=queue.name,
                path=(
                    *way_out(queue, reach),
                    queue_step(name),
                    f"{_limit(target)}, {target.overflow}",
                    f"{WORKER_HOLDS} letters wait, the others behind them",
                ),
                why=(
                    f"{queue.name} dead-letters at least once into {name}, which refuses letters "
                    f"{'and is full now' if is_full(target) else 'when it is full'}. What is refused stays, "
                    f"and after {WORKER_HOLDS} such letters {queue.name} lets no letter through to anybody; "
                    "an alternate exchange does not help against a full queue."
                ),
                fix=cures.take_off(case, target, *_limits(target)),
            )


def _unroutable(case: Case, queue: Queue) -> Iterator[Evidence]:
    for reach in fates(case, queue):
        gap = gap_of(case, reach)
        if gap is None:
            continue
        who = "No letter of it" if gap.whole else f"A letter whose key ({reach.keys}) no binding takes never"
        yield Evidence(
            severity=Severity.ERROR if gap.whole else Severity.WARNING,
            subject=queue.name,
            path=(
                *way_out(queue, reach),
                *gap.steps,
                f"{WORKER_HOLDS} letters wait, the others behind them",
            ),
            why=(
                f"{queue.name} dead-letters at least once. {who} finds a queue; it stays, and after "
                f"{WORKER_HOLDS} such letters {queue.name} lets no letter through to anybody."
            ),
            fix=_close_gap(case, reach),
        )
        return  # one key without a home says it; a queue may have a hundred


def _close_gap(case: Case, reach: Reach) -> str:
    """A queue to catch what has no home: named after the exchange, so that one serves all its keys."""
    if reach.exchange == DEFAULT_EXCHANGE:
        return cures.declare_queue(case, reach.keys.text, "quorum")
    catch_all = f"{reach.exchange}.unroutable"
    steps = [cures.declare_queue(case, catch_all, "quorum")]
    exchange = case.topology.exchanges.get(reach.exchange)
    if exchange is None:
        steps.append(cures.declare_exchange(case, reach.exchange, "fanout"))
        steps.append(cures.bind(case, reach.exchange, catch_all, ""))
    else:
        steps.append(cures.declare_exchange(case, catch_all, "fanout"))
        steps.append(cures.bind(case, catch_all, catch_all, ""))
        steps.append(_catch(case, exchange, catch_all))
    return " && ".join(steps)


def _limits(queue: Queue) -> tuple[str, ...]:
    return tuple(key for key in ("max-length", "max-length-bytes") if key in queue.effective)


def _limit(queue: Queue) -> str:
    return " and ".join(setting_step(key, queue.effective[key]) for key in _limits(queue))


def _catch(case: Case, exchange: Exchange, alternate: str) -> str:
    """A policy for this exchange alone, above every other: only one applies to it."""
    if "alternate-exchange" in exchange.arguments:
        return (
            f"declare {exchange.name} again with alternate-exchange {alternate}: the present one was given "
            "when it was declared, and no policy overrides an argument"
        )
    above = max((policy.priority for policy in case.topology.policies if not policy.operator), default=-1) + 1
    policy = BrokerPolicy(
        name=f"dlq-{exchange.name}",
        pattern=rabbitmq_commands.named(exchange.name),
        definition={"alternate-exchange": alternate},
        apply_to="exchanges",
        priority=above,
    )
    return rabbitmq_commands.set_policy(policy, case.topology.vhost)


# -- mixed-ttl ---------------------------------------------------------------------------------------------
@rule(
    "mixed-ttl",
    Harm.STUCK,
    summary="a delay queue without a TTL of its own: short delays wait behind long ones",
    why="RabbitMQ looks at expiration only at the head of a queue. Where each letter carries its own, a "
    "letter of 0.2 s behind one of 6 s comes out after 6 s, in classic and quorum queues of every "
    "version. A file shows neither consumers nor what letters carry, so there this is a note; on a "
    "live broker letters that wait where nobody consumes are a warning.",
)
def mixed_ttl(case: Case) -> Iterator[Evidence]:
    for_dead_letters = dead_letter_exchanges(case)
    for queue, _ in dead_lettering(case):
        if queue.ttl_ms is not None or queue.name in case.dying_into or names.is_ours(queue.name):
            # Dying takes a letter's own expiration off: what comes by dying cannot leave by it.
            continue
        if queue.state is not None and (queue.state.consumers or queue.state.delivered_per_s > 0):
            continue
        for reach in case.router.fates(queue):
            worked = (name for name in sorted(reach.queues) if _is_worked(case, name, for_dead_letters))
            if (home := next(worked, None)) is not None:
                yield _mixed(case, queue, reach, home)
                break


def _is_worked(case: Case, name: str, for_dead_letters: frozenset[str]) -> bool:
    """Whether letters come there to be worked on, not to lie: more than dead letters are bound to it or its
    own letters can die on, and it has consumers, where we can see them."""
    queue = case.topology.queues[name]
    if queue.ttl_ms is not None or (case.watched is not None and name in case.watched):
        return False
    bound = any(b.source not in for_dead_letters for b in case.router.bindings_into(name))
    if queue.state is None:
        return bound
    return bool(queue.state.consumers) and (bound or queue.dead_letter_exchange is not None)


def _mixed(case: Case, queue: Queue, reach: Reach, home: str) -> Evidence:
    seen = queue.state
    evidence = (
        f"nobody consumes it and {seen.ready} letters wait in it"
        if seen is not None
        else "whether somebody consumes it, a file does not tell; if nobody does"
    )
    return in_queue(
        queue,
        Severity.WARNING if seen is not None and seen.ready else Severity.NOTE,
        "expired by the letter's own expiration, at the head only",
        exchange_step(reach.exchange),
        key_step(reach.keys),
        queue_step(home),
        why=(
            f"{queue.name} has no TTL of its own and sends what expires to {home}; {evidence}, letters leave "
            "it only by the expiration they carry, and only from its head: one of 0.2 s behind one of 6 s "
            "comes out after 6 s."
        ),
        fix=(
            "one queue for each delay, with the delay as its TTL, and letters published without expiration; "
            f"for this one, if its delay is 30 s: {cures.set_policy(case, queue, message_ttl=30_000)}"
        ),
    )
