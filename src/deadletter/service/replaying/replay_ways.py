"""The ways to the queues that letters of a replay go to: looked for when letters are marked, and again where
one did not arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from deadletter.broker.return_exchanges import Home, WaysBack
from deadletter.core.letter.header_values import shown
from deadletter.core.replaying.replay_target import ReplayTarget, ToExchange, queue_to
from deadletter.errors import WireError
from deadletter.store.replays.replay_views import ClaimedLetter

AGAIN_S: Final = 0.25


class NoWay(NamedTuple):
    """A letter that has none, and why."""

    one: ClaimedLetter
    queue: str
    why: str


class ReplayWays:
    """Of one replay. `homes`: those that were found, for whoever packs letters."""

    def __init__(self, ways: WaysBack, target: ReplayTarget, homes: dict[str, Home]) -> None:
        self._ways = ways
        self._target = target
        self._homes = homes
        self._stale: set[str] = set()
        """Origins that did not take a letter: the way is looked for again."""

    def doubt(self, queue: str) -> None:
        self._stale.add(queue)

    async def sorted(self, some: Sequence[ClaimedLetter]) -> tuple[Sequence[ClaimedLetter], list[NoWay]]:
        """Those that have a way, and the others."""
        if isinstance(self._target, ToExchange):
            return some, []
        for queue in {queue_to(self._target, one.origin) for one in some} - {""}:
            await self._find(queue)
        going: list[ClaimedLetter] = []
        staying: list[NoWay] = []
        for one in some:
            if (queue := queue_to(self._target, one.origin)) in self._homes:
                going.append(one)
                continue
            why = f"there is no queue {shown(queue)}" if queue else "nothing says which queue it failed in"
            staying.append(NoWay(one, queue, why))
        return going, staying

    async def find_anew(self) -> None:
        """A way back vanished: somebody deleted the exchange."""
        self._ways.forget()
        for queue in list(self._homes):
            await self._find(queue)

    async def _find(self, queue: str) -> None:
        """However long the broker is away: its letters are marked already."""
        while True:
            try:
                home = await self._ways.find(queue, again=queue in self._stale)
            except WireError:
                await asyncio.sleep(AGAIN_S)
                continue
            self._stale.discard(queue)
            if home is None:
                self._homes.pop(queue, None)
            else:
                self._homes[queue] = home
            return
