"""Settings that are there and do not hold: policies without effect, delays that are none or another.

Somebody set them and counts on them. RabbitMQ says nothing: a policy with one key that the queue's type does
not take has no effect on that queue, and of a declaration and a policy the declaration mostly wins.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.text.durations import duration_text
from deadletter.core.topology.drift import said
from deadletter.core.topology.merging import BrokerPolicy, void_keys
from deadletter.core.topology.queue_arguments import X_MESSAGE_TTL, as_argument
from deadletter.core.topology.vhost import Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures, path_words
from deadletter.doctor.rules.case import Case, rule

_CARRYING: Final = frozenset({"message-ttl", "dead-letter-exchange", "dead-letter-routing-key"})
"""Keys without which letters go nowhere, or never."""
_COMPARED: Final = ("message-ttl", "dead-letter-exchange", "dead-letter-routing-key")
_DELAY: Final = re.compile(r"retry|delay|wait", re.IGNORECASE)
"""In a name: letters only wait there. Whether somebody consumes it, a file does not tell."""


# -- policy-without-effect ---------------------------------------------------------------------------------
@rule(
    "policy-without-effect",
    Harm.STUCK,
    summary="a policy that matches a queue and has no effect on it",
    why="One key that the queue's type does not take makes the whole policy void on that queue: "
    "delivery-limit or dead-letter-strategy on a classic queue, queue-mode on a quorum queue. Nothing of "
    "it holds, the API shows none, and the next policy that matches applies instead. An error where a "
    "TTL or a dead-letter exchange is lost that way, else a warning; a policy that has no other keys is "
    "not told. The same on 3.10, 4.0 and 4.3.",
)
def policy_without_effect(case: Case) -> Iterator[Evidence]:
    voided: dict[tuple[str, bool, str], list[Queue]] = defaultdict(list)
    meant: dict[tuple[str, bool, str], BrokerPolicy] = {}
    for queue in case.topology.queues.values():
        if not path_words.dies(queue) or queue.exclusive:
            continue
        for operator in (False, True):
            policy = case.chooser.without_effect(queue.name, queue.type, operator=operator)
            if policy is not None and _missed(case, policy, queue):
                key = (policy.name, operator, queue.type)
                voided[key].append(queue)
                meant[key] = policy
    for key, queues in voided.items():
        yield _void(case, meant[key], queues)


def _missed(case: Case, policy: BrokerPolicy, queue: Queue) -> dict[str, Value]:
    """What of it would hold if its other keys were not there, and does not."""
    void = void_keys(queue.type, policy.definition, case.version)
    return {
        key: value
        for key, value in policy.definition.items()
        if key not in void and queue.effective.get(key) != value
    }


def _void(case: Case, policy: BrokerPolicy, queues: list[Queue]) -> Evidence:
    queue = queues[0]
    missed = _missed(case, policy, queue)
    void = ", ".join(sorted(void_keys(queue.type, policy.definition, case.version)))
    kind = "operator policy" if policy.operator else "policy"
    stranded = bool(_CARRYING & missed.keys())
    others = f" The same of {path_words.some(one.name for one in queues[1:])}." if queues[1:] else ""
    instead = queue.operator_policy if policy.operator else queue.policy
    return path_words.in_queue(
        queue,
        Severity.ERROR if stranded else Severity.WARNING,
        f"{kind} {policy.name}",
        f"a {queue.type} queue takes no {void}",
        "none of the policy holds" if instead is None else f"{kind} {instead} applies instead",
        harm=Harm.LOST if "dead-letter-exchange" in missed else Harm.STUCK,
        why=f"{kind} {policy.name} means {queue.name}, but {void} makes all of it void on a {queue.type} "
        f"queue: its {', '.join(f'{key} {said(value)}' for key, value in missed.items())} does not hold."
        f"{others}",
        fix=cures.set_policy(case, queue, **{key.replace("-", "_"): value for key, value in missed.items()}),
    )


# -- delay-without-ttl -------------------------------------------------------------------------------------
@rule(
    "delay-without-ttl",
    Harm.STUCK,
    summary="a delay queue without a TTL",
    why="A letter that died into a queue has no expiration of its own any more. Where the queue has no "
    "TTL and nobody consumes it, it never leaves, and its retry never comes. An error where the settings "
    "name the delay or letters wait there, else a warning.",
)
def delay_without_ttl(case: Case) -> Iterator[Evidence]:
    for queue, _ in path_words.dead_lettering(case):
        if queue.ttl_ms is not None or (queue.state is not None and queue.state.consumers):
            continue
        planned_ms = case.delays_ms.get(queue.name)
        back = _round(case, queue)
        if planned_ms is None and (back is None or not _DELAY.search(queue.name)):
            continue
        waiting = queue.state.messages if queue.state is not None else 0
        whose = (
            f"the settings say {duration_text(planned_ms)}" if planned_ms is not None else "nobody set one"
        )
        yield path_words.in_queue(
            queue,
            Severity.ERROR if planned_ms is not None or waiting else Severity.WARNING,
            "no TTL",
            "letters wait for ever" if back is None else f"never back in queue {back}",
            why=f"{queue.name} is a delay, but has no TTL ({whose}): what comes there stays"
            + (f"; {waiting} letters wait now." if waiting else "."),
            fix=("" if planned_ms is not None else "if its delay is 30 s: ")
            + cures.set_policy(case, queue, message_ttl=planned_ms or 30_000),
        )


def _round(case: Case, queue: Queue) -> str | None:
    """The queue from which letters die into this one and to which it would send them back."""
    sources = {source.name for source in case.dying_into.get(queue.name, ()) if source.name != queue.name}
    return min(sources & case.router.dead_letter_queues(queue), default=None)


# -- argument-over-policy ----------------------------------------------------------------------------------
@rule(
    "argument-over-policy",
    Harm.STUCK,
    summary="what a queue was declared with wins over a delay or dead-letter exchange set later",
    why="Of a TTL in the declaration and one in a policy the smaller holds, of a dead-letter exchange "
    "and its key always the declaration's. Who raises a delay by policy, or in the settings file, "
    "changes nothing then.",
)
def argument_over_policy(case: Case) -> Iterator[Evidence]:
    for queue in case.topology.queues.values():
        if not path_words.dies(queue):
            continue
        wanted = _overruled(case, queue)
        if wanted:
            yield _overruling(queue, *wanted)


def _overruled(case: Case, queue: Queue) -> tuple[str, dict[str, Value]] | None:
    """Who wants what, and in vain."""
    planned_ms = case.delays_ms.get(queue.name)
    declared = X_MESSAGE_TTL in queue.arguments
    if planned_ms is not None and declared and queue.ttl_ms != planned_ms:
        return "the settings", {"message-ttl": planned_ms}
    definition = case.chooser.definition(queue.name, queue.type)
    lost = {
        key: definition[key]
        for key in _COMPARED
        if as_argument(key) in queue.arguments
        and key in definition
        and queue.effective[key] != definition[key]
    }
    return (f"policy {queue.policy or queue.operator_policy}", lost) if lost else None


def _overruling(queue: Queue, who: str, wanted: dict[str, Value]) -> Evidence:
    held = ", ".join(f"{as_argument(key)} {said(queue.arguments[as_argument(key)])}" for key in wanted)
    meant = ", ".join(f"{key} {said(value)}" for key, value in wanted.items())
    return path_words.in_queue(
        queue,
        Severity.WARNING,
        f"declared with {held}",
        f"{who}: {meant}",
        "the declaration wins",
        why=f"{queue.name} was declared with {held}; {meant}, which {who} asks for, does not hold.",
        fix=cures.declare_anew(queue, wanted),
    )
