"""What is told about the broker to somebody who sees some of its queues: the same, without the others."""

from __future__ import annotations

from dataclasses import replace

from deadletter.core.access.rights import Action
from deadletter.core.access.scope import Scope
from deadletter.desk.access.person import Person
from deadletter.errors import NotAllowed
from deadletter.operations.journal.journal import SamplePage
from deadletter.operations.outlook.outlook import QueuePage, WaitingTold
from deadletter.operations.waiting import WaitingChoice


def waiting_in_sight(told: WaitingTold, scope: Scope) -> WaitingTold:
    """Queues of ours hold letters of everybody: who does not see all of them is told of theirs alone."""
    if scope.whole:
        return told
    kinds = tuple(kind for kind in told.kinds if scope.of_queue(kind.origin))
    return replace(told, queues=(), kinds=kinds, letters=sum(kind.letters for kind in kinds))


def queues_in_sight(page: QueuePage, scope: Scope) -> QueuePage:
    """Those that are theirs, and those into which letters of theirs die."""
    if scope.whole:
        return page
    shown = tuple(
        one for one in page.queues if any(scope.of_queue(name) for name in (one.name, *(one.dead_from or ())))
    )
    return replace(page, queues=shown, notes=())


def samples_in_sight(page: SamplePage, scope: Scope) -> SamplePage:
    return replace(page, queues=tuple(one for one in page.queues if scope.sees(one.vhost, one.queue)))


def may_handle(person: Person, choice: WaitingChoice, vhost: str) -> None:
    """NotAllowed, unless all that is chosen is theirs."""
    person.must(Action.HANDLE_WAITING, vhost=vhost, queue=choice.origin)
    if not person.scope.whole and (choice.origin is None or "*" in choice.origin):
        raise NotAllowed("expected one origin of yours by its name, got letters of others, too")


def sees_all(person: Person) -> None:
    """NotAllowed: it is about all queues at once."""
    if not person.scope.whole:
        raise NotAllowed("that is about all queues at once, and you see some of them")
