"""Replays, asked of the store itself. A replay is worked on by a running service alone: who starts one here
only writes down what is wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from deadletter.core.access.field_masks import MASKED
from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.stored_letter import UNKNOWN_ORIGIN
from deadletter.core.replaying.preflight import RemarkLevel
from deadletter.core.replaying.replay_pace import ReplayPace, pace_from, pace_json
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import target_from, target_json
from deadletter.errors import NotStored, UsageError
from deadletter.operations.records.masked_rows import masked_rows
from deadletter.operations.records.records import RUN_CHARS, WHY_CHARS
from deadletter.operations.records.store_records import LateRecords, bounded
from deadletter.operations.records.where_programs import Programs, WhereProgram
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.repairs.drafting import Drafting, program_of
from deadletter.operations.repairs.editing import Editor, preview
from deadletter.operations.replays import replay_telling
from deadletter.operations.replays.before_replay import BrokerLook, before_replay, to_be_sent, vhost_of
from deadletter.operations.replays.deploy_offers import offered
from deadletter.operations.replays.replay_scope import ReplayScope
from deadletter.operations.replays.replay_told import (
    TRIED,
    TRIED_MOST,
    DeployPage,
    DeployTold,
    DraftDropped,
    DraftSaved,
    DraftTold,
    DraftWish,
    EditFailure,
    EditSample,
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
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.deploy_table import DeployStore
from deadletter.store.replays.recipe_table import Recipe, RecipeStore
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView

OUTCOME_MOST_MS: Final = 30 * 86_400_000
"""The longest time that "not returned" is waited for."""
TRIED_S: Final = 10.0
"""After so long an edit is tried on no further letters at once."""
_AT_ONCE: Final = 50
"""So few that a program which hangs on each of them is through before whoever asked loses patience."""


class StoreReplays:
    """The operations on an open store.

    `look_at`: asks the broker; None: it is not known here. `attended`: a service answers, which works on
    replays. `schemas`: what edited bodies have to keep, now. `scope`: what whoever asks may see. `known`:
    origins of replays that were looked up.
    """

    def __init__(
        self,
        store: LetterStore,
        programs: Programs,
        *,
        look_at: BrokerLook | None = None,
        attended: bool = False,
        schemas: Callable[[], BodySchemas] = BodySchemas,
        scope: Scope = WHOLE,
        known: dict[int, tuple[str, ...]] | None = None,
    ) -> None:
        self.scope: Final = scope
        self._store = store
        self._programs = programs
        self._look_at = look_at
        self._attended = attended
        self._schemas = schemas
        self._replays = ReplayStore(store)
        self._recipes = RecipeStore(store)
        self._deploys = DeployStore(store)
        self._drafting = Drafting(store, scope)
        self._seen = ReplayScope(scope, self._replays, known)

    def within(self, scope: Scope) -> StoreReplays:
        """The same, for somebody who does not see all of it."""
        return StoreReplays(
            self._store,
            self._programs,
            look_at=self._look_at,
            attended=self._attended,
            schemas=self._schemas,
            scope=scope,
            known=self._seen.known,
        )

    # -- replays -----------------------------------------------------------------------------------------
    async def preflight(self, wish: ReplayWish) -> PreflightTold:
        _is_sound(wish)
        told = await before_replay(
            self._store,
            self._seen.own(wish),
            where=self._where,
            look_at=self._look_at,
            attended=self._attended,
        )
        return replace(told, sample=await masked_rows(self._store, told.sample, self.scope.masks))

    async def start(
        self, wish: ReplayWish, *, who: str, why: str, run: str = "", careful: bool = False
    ) -> ReplayTold:
        _is_sound(wish)
        wish = self._seen.own(wish)
        if len(run) > RUN_CHARS or len(why) > WHY_CHARS:
            raise UsageError(f"expected at most {RUN_CHARS} characters of run and {WHY_CHARS:,} of why")
        before = await self._replays.of_run(run) if run else None
        plan = await self._plan(wish, before, careful=careful)
        try:
            begun = await self._replays.begin(plan, who=who, why=why, run=run)
        except UsageError:
            meanwhile = await self._replays.of_run(run) if run and before is None else None
            if meanwhile is None:
                raise
            plan = await self._plan(wish, meanwhile, careful=careful)
            begun = await self._replays.begin(plan, who=who, why=why, run=run)
        return self._told(begun)

    async def _plan(self, wish: ReplayWish, before: ReplayView | None, *, careful: bool) -> ReplayPlan:
        """`before`: the same run has begun this one. Its letters are no longer open, and its recipe may be
        another now: what it found out then still holds."""
        selection = to_be_sent(wish.selection, wish.vhost)
        where = await self._where(selection)
        if before is not None:
            vhost = wish.vhost or before.vhost
            same_recipe = bool(wish.edit.recipe) and wish.edit.recipe == before.recipe
            program = before.edit if same_recipe else wish.edit.program
        else:
            vhost = vhost_of(wish, await self._store.facets(selection, where=where))
            program, _ = await program_of(self._store, wish.edit, who="")
            if program:
                await self._checked(program)
            if careful:
                await self._nothing_stops(wish)
        return ReplayPlan(
            selection=selection,
            vhost=vhost,
            target=wish.target,
            edit=program,
            recipe=wish.edit.recipe,
            pace=wish.pace,
            outcome_ms=wish.outcome_ms,
            resolves=wish.resolves,
            overrules_guards=wish.overrules_guards,
        )

    async def replays(
        self, states: Sequence[ReplayState] = (), *, after: int | None = None, limit: int = 50
    ) -> ReplayPage:
        bounded(limit)
        found = await self._seen.views(states, after=after, limit=limit + 1)
        more = found[limit - 1].id if len(found) > limit else None
        return ReplayPage(replays=tuple(self._told(view) for view in found[:limit]), more=more)

    async def replay(self, replay: int, *, newcomers: bool = True) -> ReplayDetail:
        view = await self._seen.view(replay)
        came: int | None = None
        if newcomers:
            came = await self._replays.newcomers(replay, where=await self._where(view.selection))
        return ReplayDetail(
            replay=self._told(view),
            origins=tuple(one for one in await self._seen.origins_of(view) if one != UNKNOWN_ORIGIN),
            steps=replay_telling.canary_steps(view),
            newcomers=came,
        )

    async def outcomes(
        self,
        replay: int,
        state: OutcomeState | None = None,
        *,
        doubtful: bool = False,
        after: int | None = None,
        limit: int = 50,
    ) -> OutcomePage:
        bounded(limit)
        await self._seen.view(replay)
        found = await self._replays.outcomes(
            replay,
            None if state is None else replay_telling.sent_state(state),
            after,
            limit + 1,
            doubtful=doubtful,
        )
        more = found[limit - 1].letter if len(found) > limit else None
        found = found[:limit]
        back = tuple({one.returned_letter for one in found if one.returned_letter is not None})
        rows = (
            (await self._store.find(LetterQuery(ids=back, state=None, limit=len(back)))).letters
            if back
            else ()
        )
        known = {row.id: row for row in await masked_rows(self._store, rows, self.scope.masks)}
        told = tuple(replay_telling.outcome(one, known) for one in found)
        if self.scope.masks:  # jq and schemas quote of a letter what they do not like, in part
            told = tuple(replace(one, why=MASKED) if one.why else one for one in told)
        return OutcomePage(outcomes=told, more=more)

    async def pause(self, replay: int, *, who: str) -> ReplayTold:
        return self._told(await self._replays.pause(await self._number(replay), who=who))

    async def resume(self, replay: int, *, who: str) -> ReplayTold:
        return self._told(await self._replays.resume(await self._number(replay), who=who))

    async def cancel(self, replay: int, *, who: str) -> ReplayTold:
        return self._told(await self._replays.cancel(await self._number(replay), who=who))

    async def set_pace(self, replay: int, pace: ReplayPace, *, who: str) -> ReplayTold:
        replay = await self._number(replay)
        return self._told(await self._replays.set_pace(replay, pace_from(pace_json(pace)), who=who))

    # -- edits -------------------------------------------------------------------------------------------
    async def try_edit(
        self, selection: LetterQuery, edit: EditWish, *, after: int | None = None, limit: int = TRIED
    ) -> EditTried:
        if not 0 < limit <= TRIED_MOST:
            raise UsageError(f"limit: expected 1 to {TRIED_MOST:,}, got {limit}")
        program, by = await program_of(self._store, edit, who="")
        if not program:
            raise UsageError("edit: expected a jq program or a recipe, got neither")
        asked = replace(to_be_sent(replace(selection, scope=self.scope)), after=after)
        until = time.monotonic() + TRIED_S
        failures: list[EditFailure] = []
        editor = Editor(program, by=by, schemas=self._schemas())
        try:
            seen = await preview(
                self._store,
                asked,
                editor,
                where=await self._where(asked),
                most=limit,
                at_once=_AT_ONCE,
                enough=lambda: time.monotonic() >= until,
                on_failure=lambda one: failures.append(EditFailure(letter=one.letter, why=one.why)),
            )
        finally:
            await editor.close()
        return EditTried(
            program=program,
            letters=seen.letters,
            changed=seen.changed,
            same=seen.same,
            failed=seen.failed,
            sample=tuple(EditSample(letter=one.letter, differences=one.differences) for one in seen.sample),
            failures=tuple(failures),
            more=seen.more,
        )

    async def recipes(self) -> Recipes:
        return Recipes(recipes=tuple(filter(self._seen.sees_recipe, await self._recipes.all())))

    async def recipe(self, name: str) -> Recipe:
        found = await self._recipes.named(name)
        if not self._seen.sees_recipe(found):
            raise NotStored(f"recipe {name}: no recipe is called so")
        return found

    async def save_recipe(self, recipe: Recipe, *, who: str, replace: bool = False) -> Recipe:
        if not recipe.program.strip():
            raise UsageError("recipe: expected a jq program, got nothing")
        self._seen.must_own(recipe)
        if replace and not self.scope.whole:
            self._seen.must_own(await self.recipe(recipe.name))
        await self._checked(recipe.program)
        return await self._recipes.save(recipe, who=who, replace=replace)

    async def delete_recipe(self, name: str, *, who: str) -> Recipe:
        self._seen.must_own(await self.recipe(name))
        return await self._recipes.delete(name, who=who)

    async def propose(self, letter: str) -> Proposals:
        return await self._drafting.proposed(letter)

    async def draft(self, letter: str) -> DraftTold:
        return await self._drafting.told(letter)

    async def save_draft(
        self, letter: str, wish: DraftWish, *, who: str, note: str = "", keep: bool = True
    ) -> DraftSaved:
        return await self._drafting.save(letter, wish, schemas=self._schemas(), who=who, note=note, keep=keep)

    async def drop_draft(self, letter: str, *, who: str) -> DraftDropped:
        return await self._drafting.drop(letter, who=who)

    # -- deploys -----------------------------------------------------------------------------------------
    async def deployed(self, service: str, release: str, *, who: str) -> DeployTold:
        deploy, news = await self._deploys.tell(service, release, who=who)
        return DeployTold(deploy=deploy, news=news, offered=await offered(self._store, service))

    async def deploys(
        self, service: str | None = None, *, after: int | None = None, limit: int = 50
    ) -> DeployPage:
        bounded(limit)
        found = await self._deploys.all(service=service, after=after, limit=limit + 1)
        more = found[limit - 1].id if len(found) > limit else None
        return DeployPage(deploys=tuple(found[:limit]), more=more)

    # -- within ------------------------------------------------------------------------------------------
    def _told(self, view: ReplayView) -> ReplayTold:
        return replay_telling.told(view, now_ms=self._store.now_ms(), attended=self._attended)

    async def _number(self, replay: int) -> int:
        """NotStored: there is none that may be seen."""
        return replay if self.scope.whole else (await self._seen.view(replay)).id

    async def _where(self, selection: LetterQuery) -> WhereProgram | None:
        if selection.where is None:
            return None
        return await self._programs.question(selection.where, selection.scope.masks)

    async def _checked(self, program: str) -> None:
        await Editor(program, by="").check()

    async def _nothing_stops(self, wish: ReplayWish) -> None:
        said = (await self.preflight(wish)).remarks
        if stops := [one.text for one in said if one.level is RemarkLevel.STOP]:
            raise UsageError(
                f"the look before it says stop: {'; '.join(stops)}. Nothing was begun; it is begun all the "
                "same where `anyway` is said"
            )


class LateReplays:
    """The replays of the service's store, which is opened when it is first asked for."""

    def __init__(
        self, records: LateRecords, *, look_at: BrokerLook | None, schemas: Callable[[], BodySchemas]
    ) -> None:
        self._records = records
        self._look_at = look_at
        self._schemas = schemas
        self._made: StoreReplays | None = None

    async def __call__(self) -> StoreReplays:
        records = await self._records()
        if self._made is None:
            self._made = StoreReplays(
                records.opened,
                records.programs,
                look_at=self._look_at,
                attended=True,
                schemas=self._schemas,
            )
        return self._made


def _is_sound(wish: ReplayWish) -> None:
    """UsageError for what makes no sense, whoever asks."""
    pace_from(pace_json(wish.pace))
    target_from(target_json(wish.target))
    if wish.edit.program and wish.edit.recipe:
        raise UsageError("edit: expected a jq program or a recipe, got both")
    if not 1_000 <= wish.outcome_ms <= OUTCOME_MOST_MS:
        raise UsageError(f"outcome: expected 1 s to 30 days, got {wish.outcome_ms / 1000:g} s")
