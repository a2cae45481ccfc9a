"""What can be asked of replays: on the store itself, or over HTTP from the service that has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import ReplayPace
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.operations.replays.replay_told import (
    TRIED,
    DeployPage,
    DeployTold,
    DraftDropped,
    DraftSaved,
    DraftTold,
    DraftWish,
    EditTried,
    EditWish,
    OutcomePage,
    OutcomeState,
    PreflightTold,
    Proposals,
    Recipes,
    ReplayDetail,
    ReplayPage,
    ReplayTold,
    ReplayWish,
)
from deadletter.store.replays.recipe_table import Recipe


class Replays(Protocol):
    """Replays of stored letters. NotStored where there is none of that number, name or id; EditRefused where
    a letter cannot be changed so."""

    # -- replays -----------------------------------------------------------------------------------------
    async def preflight(self, wish: ReplayWish) -> PreflightTold: ...

    async def start(
        self, wish: ReplayWish, *, who: str, why: str, run: str = "", careful: bool = False
    ) -> ReplayTold:
        """It has no letters yet: the service freezes them. Several calls with the same `run` are one replay;
        UsageError where that one is of another wish. `careful`: a preflight is made, and UsageError where it
        says stop; without, whoever starts it has made one."""
        ...

    async def replays(
        self, states: Sequence[ReplayState] = (), *, after: int | None = None, limit: int = 50
    ) -> ReplayPage: ...

    async def replay(self, replay: int, *, newcomers: bool = True) -> ReplayDetail:
        """`newcomers`: whether they are counted, which may take a while."""
        ...

    async def outcomes(
        self,
        replay: int,
        state: OutcomeState | None = None,
        *,
        doubtful: bool = False,
        after: int | None = None,
        limit: int = 50,
    ) -> OutcomePage:
        """`doubtful`: only those that may have gone twice."""
        ...

    async def pause(self, replay: int, *, who: str) -> ReplayTold:
        """UsageError, also of the three below: it is over."""
        ...

    async def resume(self, replay: int, *, who: str) -> ReplayTold: ...

    async def cancel(self, replay: int, *, who: str) -> ReplayTold:
        """What waits is let go; what was sent is waited for."""
        ...

    async def set_pace(self, replay: int, pace: ReplayPace, *, who: str) -> ReplayTold: ...

    # -- edits -------------------------------------------------------------------------------------------
    async def try_edit(
        self, selection: LetterQuery, edit: EditWish, *, after: int | None = None, limit: int = TRIED
    ) -> EditTried:
        """What the edit would do to the next letters of a selection, at most so many, oldest first; fewer
        where it takes long. Changes nothing."""
        ...

    async def recipes(self) -> Recipes: ...

    async def recipe(self, name: str) -> Recipe: ...

    async def save_recipe(self, recipe: Recipe, *, who: str, replace: bool = False) -> Recipe:
        """UsageError: its program does not compile, or there is one of this name and it is not to be
        replaced."""
        ...

    async def delete_recipe(self, name: str, *, who: str) -> Recipe: ...

    async def propose(self, letter: str) -> Proposals:
        """Programs that do to others what was done to this letter by hand. UsageError: it has no draft."""
        ...

    async def draft(self, letter: str) -> DraftTold: ...

    async def save_draft(
        self, letter: str, wish: DraftWish, *, who: str, note: str = "", keep: bool = True
    ) -> DraftSaved:
        """Upon the draft that is there. `keep` False: only what would change. EditRefused: the result is not
        allowed, or not what the schema of its queue wants."""
        ...

    async def drop_draft(self, letter: str, *, who: str) -> DraftDropped: ...

    # -- deploys -----------------------------------------------------------------------------------------
    async def deployed(self, service: str, release: str, *, who: str) -> DeployTold: ...

    async def deploys(
        self, service: str | None = None, *, after: int | None = None, limit: int = 50
    ) -> DeployPage: ...
