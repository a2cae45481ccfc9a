"""Replays for somebody who does not see all letters.

A replay is seen by whom sees all its letters: that of another vhost, or one with a letter of a queue that is
not theirs, is not there for them. Before it has letters it is seen by those who see what its selection may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from deadletter.core.access.scope import Scope
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToExchange, ToOrigin, ToQueue
from deadletter.errors import NotAllowed, NotStored
from deadletter.operations.replays.replay_told import ReplayWish
from deadletter.store.replays.recipe_table import Recipe
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView

_REMEMBERED: Final = 100


class ReplayScope:
    """What of the replays of a store somebody sees."""

    def __init__(
        self, scope: Scope, replays: ReplayStore, known: dict[int, tuple[str, ...]] | None = None
    ) -> None:
        self.scope: Final = scope
        self.known: Final = {} if known is None else known
        """Origins of replays: the same for everybody."""
        self._replays = replays

    def own(self, wish: ReplayWish) -> ReplayWish:
        """Of letters that may be seen, to where they may be sent. NotAllowed: it is elsewhere."""
        wish = replace(wish, selection=replace(wish.selection, scope=self.scope))
        if self.scope.whole:
            return wish
        if wish.vhost and not self.scope.in_vhost(wish.vhost):
            raise NotAllowed(f"vhost {wish.vhost} is not theirs")
        match wish.target:
            case ToOrigin():
                return wish
            case ToQueue(queue=queue) if self.scope.of_queue(queue):
                return wish
            case ToQueue() | ToExchange():
                raise NotAllowed("they send letters to where these failed, or to a queue of theirs")

    async def view(self, replay: int) -> ReplayView:
        """NotStored: there is none that may be seen."""
        view = await self._replays.view(replay)
        if not await self._is_seen(view):
            raise NotStored(f"replay {replay}: there is none of this number")
        return view

    async def views(
        self, states: Sequence[ReplayState], *, after: int | None, limit: int
    ) -> Sequence[ReplayView]:
        found: list[ReplayView] = []
        while True:
            page = await self._replays.views(states=states, after=after, limit=limit)
            found += [view for view in page if await self._is_seen(view)]
            if len(page) < limit or len(found) >= limit:
                return found[:limit]
            after = page[-1].id

    async def origins_of(self, view: ReplayView) -> tuple[str, ...]:
        """Of one that is frozen they stay the same, and to find them costs a look at every letter."""
        found = self.known.get(view.id)
        if found is None:
            found = await self._replays.origins(view.id)
            if view.state is not ReplayState.FREEZING and view.began_ms is not None:
                if len(self.known) >= _REMEMBERED:
                    self.known.clear()
                self.known[view.id] = found
        return found

    # -- recipes -----------------------------------------------------------------------------------------
    def sees_recipe(self, recipe: Recipe) -> bool:
        """One for no queue in particular is everybody's."""
        return not recipe.origin or self.scope.of_queue(recipe.origin)

    def must_own(self, recipe: Recipe) -> None:
        """NotAllowed: it is for queues that they do not see, too."""
        if not self.scope.whole and not self.scope.of_queue(recipe.origin):
            raise NotAllowed(f"recipe {recipe.name} is not for a queue of theirs alone")

    async def _is_seen(self, view: ReplayView) -> bool:
        if self.scope.whole:
            return True
        asked = view.selection.scope
        if not asked.whole and _covers(self.scope, asked):
            return True
        origins = await self.origins_of(view)
        return self.scope.in_vhost(view.vhost) and bool(origins) and all(map(self.scope.of_queue, origins))


def _covers(wide: Scope, narrow: Scope) -> bool:
    """Whether every pattern of one is among those of the other."""
    vhosts = wide.all_vhosts or set(narrow.vhosts) <= set(wide.vhosts)
    return vhosts and (wide.all_queues or set(narrow.queues) <= set(wide.queues))
