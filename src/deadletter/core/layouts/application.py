"""What a layout asks of the application's own queue: a dead-letter exchange, by a policy on exactly its name.

A queue may have been declared with a dead-letter exchange of its own. Arguments win over policies, key by
key, and that is a trap: a dead-letter routing key of ours would join an exchange of theirs, where nobody
waits for it. So either all of our dead-lettering holds or none of it is planned. The layouts that can live
with another dead-letter queue say so in a note; the others refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deadletter.core.layouts.pieces import (
    SAFELY,
    Parts,
    exact_policy,
    policy_now,
    resting_queue,
    towards,
    unlimited,
)
from deadletter.core.layouts.request import Request
from deadletter.core.letter.field_table import Value
from deadletter.core.topology import merging
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_DEAD_LETTER_EXCHANGE, as_argument
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Queue
from deadletter.errors import UsageError

_LENGTHS: Final = ("max-length", "max-length-bytes")


def dead_lettering(layout: str, request: Request, settings: Mapping[str, Value]) -> Parts:
    """The policy on the application's queue; UsageError where what it was declared with stands against it."""
    against = _against(request, settings)
    if against is not None:
        raise UsageError(
            f"layout {layout}: expected queue {request.queue} without x-{against}, or with "
            f"{settings[against]!r} as the layout needs it, got {request.frozen[f'x-{against}']!r}, frozen "
            "at its declaration; declare the queue anew without it, or take the layout return"
        )
    return _policy(request, settings)


def own_dlq(request: Request, dlq: str) -> Parts:
    """A dead-letter queue of this queue alone, by its own key; or a note where the queue has another way."""
    settings = towards(dlq)
    if _against(request, settings) is None:
        return resting_queue(request, dlq) + _policy(request, settings)
    exchange = request.frozen.get(X_DEAD_LETTER_EXCHANGE, DEFAULT_EXCHANGE)
    note = (
        f"{request.queue} was declared with a dead-letter exchange or key of its own, which no policy can "
        f"change: its letters go on to exchange {exchange!r}; watch the dead-letter queue behind it. "
        f"{dlq} is not declared."
    )
    return Parts(notes=(note,))


def settings_now(request: Request) -> Mapping[str, Value]:
    """What holds for the application's queue now, a policy of ours from an earlier plan left out."""
    holding = policy_now(request, _queue(request))
    policies = (() if holding is None else (holding,)) + _operators(request)
    definition = merging.Chooser(policies, request.version).definition(request.queue, request.type)
    return merging.effective(request.frozen, definition, request.type)


def operator_settings(request: Request) -> Mapping[str, Value]:
    """What no policy of ours can take off the application's queue."""
    return merging.Chooser(_operators(request), request.version).definition(request.queue, request.type)


def _operators(request: Request) -> tuple[BrokerPolicy, ...]:
    there = request.there.policies if request.there is not None else ()
    return tuple(policy for policy in there if policy.operator)


def _queue(request: Request) -> Queue:
    return request.found or Queue(name=request.queue, type=request.type)


def _policy(request: Request, settings: Mapping[str, Value]) -> Parts:
    notes: list[str] = []
    why_not = _why_not_safely(request)
    if why_not is not None:
        notes.append(f"{request.queue} dead-letters at most once: {why_not}.")
    wanted = {**settings, **_limit(request), **(SAFELY if why_not is None else {})}
    holding = policy_now(request, _queue(request))
    if holding is not None:
        notes.append(_carried_note(request, holding, wanted))
    return Parts(policies=(exact_policy(_queue(request), wanted, holding),), notes=tuple(notes))


def _limit(request: Request) -> Mapping[str, Value]:
    """RabbitMQ 3 has no limit unless one is set, and takes -1 for 0."""
    match request.delivery_limit:
        case None:
            return {}
        case -1:
            return unlimited(request)
        case limit:
            return {"delivery-limit": limit}


def _carried_note(request: Request, holding: BrokerPolicy, settings: Mapping[str, Value]) -> str:
    before = holding.definition
    kept = sorted(before.keys() - settings.keys())
    replaced = [key for key in sorted(before) if key in settings and before[key] != settings[key]]
    said = f"policy {holding.name!r} holds for {request.queue} now; ours takes its place"
    if kept:
        said += f" and carries on its {', '.join(kept)}: plan again when it changes"
    if replaced:
        said += f"; its {', '.join(f'{key} {before[key]!r}' for key in replaced)} no longer holds"
    return said + "."


def _why_not_safely(request: Request) -> str | None:
    """Why dead-lettering at least once would change or break the queue; None: it may be."""
    if request.type != "quorum":
        return f"a {request.type} queue knows nothing else"
    now = settings_now(request)
    if any(key in now for key in _LENGTHS) and now.get("overflow") != "reject-publish":
        return "at least once needs overflow reject-publish, and its length limit drops the oldest instead"
    frozen = _against(request, SAFELY)
    return None if frozen is None else f"{as_argument(frozen)} is frozen at its declaration"


def _against(request: Request, settings: Mapping[str, Value]) -> str | None:
    """The first setting that would not hold, because another value is frozen into the queue."""
    held = merging.effective(request.frozen, settings, request.type)
    return next((key for key, value in settings.items() if held[key] != value), None)
