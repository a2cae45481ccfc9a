"""Replays, for whoever is at the desk: what they may, of what they see, in their name.

An edit sees the whole letter, and what it puts elsewhere is shown: so where fields are masked, only those
edit who see them. Others replay letters as they are, as somebody repaired them, or by a recipe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from deadletter.core.access.field_masks import MASKED, FieldMasks
from deadletter.core.access.rights import Action
from deadletter.core.access.scope import Scope
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import ReplayPace
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.desk.access.access import Access
from deadletter.desk.access.person import Person
from deadletter.desk.access.present import person
from deadletter.desk.access.rightful_records import masks_for, scope_of
from deadletter.desk.access.typed_texts import (
    recipe_without_texts,
    replay_without_texts,
    trial_without_texts,
)
from deadletter.errors import NotAllowed
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
from deadletter.operations.replays.replays import Replays
from deadletter.store.replays.recipe_table import Recipe


class ScopedReplays(Replays, Protocol):
    """Those that can be narrowed to what somebody sees."""

    def within(self, scope: Scope) -> Replays: ...


ScopedReplaysSource: TypeAlias = Callable[[], Awaitable[ScopedReplays]]


def rightful_replays(replays: ScopedReplaysSource, access: Access) -> Callable[[], Awaitable[Replays]]:
    """Those of whoever asks."""

    async def of_person() -> Replays:
        who = person()
        who.must(Action.SEE)
        found = (await replays()).within(scope_of(who, access))
        return RightfulReplays(found, who, masks_for(who, access))

    return of_person


class RightfulReplays:
    """`Replays`, each asked by a person who may."""

    def __init__(self, replays: Replays, who: Person, masks: FieldMasks) -> None:
        self._replays: Final = replays
        self._person: Final = who
        self._masks: Final = masks

    def _may(self, action: Action, said: str) -> str:
        """NotAllowed; else their name, for the audit."""
        self._person.must(action)
        return self._person.called(said)

    def _shown(self, told: ReplayTold) -> ReplayTold:
        """What somebody typed themselves they know."""
        theirs = bool(self._person.name) and told.who == self._person.name
        return replay_without_texts(told) if self._masks and not theirs else told

    def _edits(self, said: str = "") -> str:
        who = self._may(Action.EDIT, said)
        if self._masks:
            raise NotAllowed(
                f"{who} may not edit letters here: an edit sees all of a letter, and some fields are masked"
            )
        return who

    # -- replays -----------------------------------------------------------------------------------------
    async def preflight(self, wish: ReplayWish) -> PreflightTold:
        return await self._replays.preflight(wish)

    async def start(
        self, wish: ReplayWish, *, who: str, why: str, run: str = "", careful: bool = False
    ) -> ReplayTold:
        who = self._may(Action.REPLAY, who)
        if wish.edit.program:
            self._edits(who)
        return self._shown(await self._replays.start(wish, who=who, why=why, run=run, careful=careful))

    async def replays(
        self, states: Sequence[ReplayState] = (), *, after: int | None = None, limit: int = 50
    ) -> ReplayPage:
        page = await self._replays.replays(states, after=after, limit=limit)
        return replace(page, replays=tuple(map(self._shown, page.replays)))

    async def replay(self, replay: int, *, newcomers: bool = True) -> ReplayDetail:
        told = await self._replays.replay(replay, newcomers=newcomers)
        return replace(told, replay=self._shown(told.replay))

    async def outcomes(
        self,
        replay: int,
        state: OutcomeState | None = None,
        *,
        doubtful: bool = False,
        after: int | None = None,
        limit: int = 50,
    ) -> OutcomePage:
        return await self._replays.outcomes(replay, state, doubtful=doubtful, after=after, limit=limit)

    async def pause(self, replay: int, *, who: str) -> ReplayTold:
        return self._shown(await self._replays.pause(replay, who=self._may(Action.REPLAY, who)))

    async def resume(self, replay: int, *, who: str) -> ReplayTold:
        return self._shown(await self._replays.resume(replay, who=self._may(Action.REPLAY, who)))

    async def cancel(self, replay: int, *, who: str) -> ReplayTold:
        return self._shown(await self._replays.cancel(replay, who=self._may(Action.REPLAY, who)))

    async def set_pace(self, replay: int, pace: ReplayPace, *, who: str) -> ReplayTold:
        return self._shown(await self._replays.set_pace(replay, pace, who=self._may(Action.REPLAY, who)))

    # -- edits -------------------------------------------------------------------------------------------
    async def try_edit(
        self, selection: LetterQuery, edit: EditWish, *, after: int | None = None, limit: int = TRIED
    ) -> EditTried:
        """Who may not see all of a letter is told how many a recipe, which others wrote, would change."""
        if not self._masks or edit.program:
            self._edits()
            return await self._replays.try_edit(selection, edit, after=after, limit=limit)
        self._may(Action.REPLAY, "")
        return trial_without_texts(await self._replays.try_edit(selection, edit, after=after, limit=limit))

    async def recipes(self) -> Recipes:
        told = await self._replays.recipes()
        if not self._masks:
            return told
        return replace(told, recipes=tuple(map(recipe_without_texts, told.recipes)))

    async def recipe(self, name: str) -> Recipe:
        told = await self._replays.recipe(name)
        return recipe_without_texts(told) if self._masks else told

    async def save_recipe(self, recipe: Recipe, *, who: str, replace: bool = False) -> Recipe:
        return await self._replays.save_recipe(recipe, who=self._edits(who), replace=replace)

    async def delete_recipe(self, name: str, *, who: str) -> Recipe:
        return await self._replays.delete_recipe(name, who=self._edits(who))

    async def propose(self, letter: str) -> Proposals:
        self._edits()
        return await self._replays.propose(letter)

    async def draft(self, letter: str) -> DraftTold:
        self._edits()
        return await self._replays.draft(letter)

    async def save_draft(
        self, letter: str, wish: DraftWish, *, who: str, note: str = "", keep: bool = True
    ) -> DraftSaved:
        return await self._replays.save_draft(letter, wish, who=self._edits(who), note=note, keep=keep)

    async def drop_draft(self, letter: str, *, who: str) -> DraftDropped:
        return await self._replays.drop_draft(letter, who=self._edits(who))

    # -- deploys -----------------------------------------------------------------------------------------
    async def deployed(self, service: str, release: str, *, who: str) -> DeployTold:
        told = await self._replays.deployed(service, release, who=self._may(Action.TELL_RELEASE, who))
        if not self._masks:
            return told
        return replace(told, offered=tuple(replace(one, title=MASKED) for one in told.offered))

    async def deploys(
        self, service: str | None = None, *, after: int | None = None, limit: int = 50
    ) -> DeployPage:
        return await self._replays.deploys(service, after=after, limit=limit)
