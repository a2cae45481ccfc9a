"""The service, for whoever is at the desk: sweeps that they may ask for, written down in their name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from deadletter.core.access.rights import Action
from deadletter.desk.access.present import person
from deadletter.desk.answers.desk_route import JournalSource
from deadletter.desk.view import ServiceView, Status, SweepAnswer, anywhere
from deadletter.errors import NotAllowed, StoreError


class RightfulService:
    """`ServiceView`, asked by a person who may. Its status is open to all."""

    def __init__(self, service: ServiceView, journal: JournalSource | None) -> None:
        self._service: Final = service
        self._journal: Final = journal

    async def sweep(
        self, dlqs: Sequence[str], *, in_vhost: Callable[[str], bool] = anywhere
    ) -> list[SweepAnswer]:
        """In their vhosts alone: queues of two vhosts may have one name."""
        who = person()
        who.must(Action.SWEEP)
        if not who.scope.whole and (not dlqs or not all(map(who.scope.of_queue, dlqs))):
            raise NotAllowed("expected dead-letter queues of theirs, by name, got others, too")
        answers = await self._service.sweep(
            dlqs, in_vhost=lambda vhost: who.scope.in_vhost(vhost) and in_vhost(vhost)
        )
        if self._journal is not None:
            told = {one.dlq: {"state": one.state.value, "moved": one.moved} for one in answers}
            with suppress(StoreError):  # letters go home also while the store is away; the log has it
                await (await self._journal()).noted(who.called(), "swept", {"queues": told})
        return answers

    def status(self) -> Status:
        return self._service.status()
