"""The replays of one store: the only door.

::

    async with open_letters(url) as letters:
        replays = ReplayStore(letters)
        replay = await replays.begin(plan, who="ann", why="the ledger is back")

Every method is one short transaction, or a row of them. Whatever the database raises becomes a StoreError.
Replays share the connections of the letters, and on SQLite their turn to write.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.replaying.replay_pace import ReplayPace, ReplaySeen, ReplayStage, pace_json
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.errors import UsageError
from deadletter.store.finding.searching import Where
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_contents import KnownDictionaries
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_tables import names
from deadletter.store.replays import (
    claimed_letters,
    freezing,
    release_cures,
    replay_beginning,
    replay_closing,
    replay_list,
    replay_progress,
)
from deadletter.store.replays.replay_rows import (
    all_views,
    is_held_by,
    locked,
    row_of,
    stage_text,
    view_of,
    views_of,
)
from deadletter.store.replays.replay_tables import replays
from deadletter.store.replays.replay_views import ClaimedLetter, ReplayedLetter, ReplayView
from deadletter.store.replays.returned_letters import visits_of
from deadletter.store.replays.under_way import UnderWay

_GOES_ON = (ReplayState.FREEZING, ReplayState.RUNNING, ReplayState.PAUSED)
_GIVEN_UP = (ReplayState.STOPPED, ReplayState.CANCELLED)


class ReplayStore:
    """Replays of these letters."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms
        self._dictionaries = KnownDictionaries()
        self._under_way = UnderWay(self._reading)

    # -- beginning ---------------------------------------------------------------------------------------
    @uncut
    async def begin(self, plan: ReplayPlan, *, who: str, why: str, run: str = "") -> ReplayView:
        """A new replay, which has no letters yet: `freeze_some` brings them. `run`: who began one with it
        before has that one again; UsageError where it was of another plan."""
        async with self._writing() as connection:
            now_ms = self._now_ms()
            number, is_new = await replay_beginning.begin(
                connection, plan, who=who, why=why, run=run, now_ms=now_ms
            )
            if is_new:
                await self._note(connection, who, "replay", number, why=why)
            return await view_of(connection, number)

    @uncut
    async def freeze_some(self, replay: int, *, where: Where | None = None) -> int:
        """The next portion of its letters comes into it. So many were looked at, at least 1 while there may
        be more; 0: it is frozen and runs now, or it was not freezing any more. `where` answers the jq program
        of its selection."""
        async with self._reading() as connection:
            row = await row_of(connection, replay)
            if row.state != ReplayState.FREEZING:
                return 0
            found = await freezing.looked_for(connection, row, where)
        async with self._writing() as connection:
            await freezing.freeze(connection, row, found, now_ms=self._now_ms())
        return max(1, len(found.ids))

    async def newcomers(self, replay: int, *, where: Where | None = None) -> int:
        """Open letters that match the selection and came after the freeze."""
        async with self._reading() as connection:
            return await freezing.newcomers(connection, await row_of(connection, replay), where)

    # -- leases ------------------------------------------------------------------------------------------
    @uncut
    async def leased(
        self, instance: str, *, now_ms: int, lease_ms: int, vhosts: Sequence[str] | None = None
    ) -> list[ReplayView]:
        """The replays that are this instance's now: those it holds, and those that nobody holds any more,
        whose letters that were being sent wait again and are doubtful. Paused, stopped and cancelled ones
        too, as long as an outcome is not known."""
        if vhosts is not None and not await self._under_way.any_of(vhosts):
            return []
        free = or_(replays.c.holder == instance, replays.c.held_until_ms < now_ms)
        asked = select(replays.c.id, replays.c.holder, replays.c.marked_to)
        asked = asked.where(replays.c.ended_ms.is_(None), free)
        if vhosts is not None:
            asked = asked.join(names, names.c.id == replays.c.vhost)
            asked = asked.where(names.c.name.in_([clean(vhost) for vhost in vhosts]))
        async with self._reading() as connection:
            if (await connection.execute(asked.limit(1))).first() is None:
                return []
        async with self._writing() as connection:
            held = asked.order_by(replays.c.id).with_for_update(of=replays, key_share=True)
            rows = (await connection.execute(held)).all()
            for row in rows:
                if row.holder != instance:
                    await replay_progress.take_over(connection, row, now_ms=now_ms)
            ids = [int(row.id) for row in rows]
            until = update(replays).where(replays.c.id.in_(ids))
            await connection.execute(until.values(holder=instance, held_until_ms=now_ms + lease_ms))
            return await views_of(connection, all_views().where(replays.c.id.in_(ids)).order_by(replays.c.id))

    @uncut
    async def give_up(self, instance: str) -> None:
        """This instance ends."""
        async with self._writing() as connection:
            mine = update(replays).where(replays.c.holder == instance, replays.c.ended_ms.is_(None))
            await connection.execute(mine.values(holder="", held_until_ms=0))

    async def holders(self, some: Collection[int]) -> dict[int, str]:
        """Who had the leases of these replays last; empty: nobody."""
        async with self._reading() as connection:
            asked = select(replays.c.id, replays.c.holder).where(replays.c.id.in_(list(some)))
            return {int(number): str(holder) for number, holder in await connection.execute(asked)}

    @uncut
    async def taken_over(self, replay: int, *, holder: str | None = None) -> int:
        """Letters that were being sent, by somebody who cannot tell any more what became of them, wait again
        and are doubtful. How many. `holder`: none unless this instance has the lease."""
        async with self._writing() as connection:
            row = await locked(connection, replay)
            if not is_held_by(row, holder):
                return 0
            return await replay_progress.take_over(connection, row, now_ms=self._now_ms())

    @uncut
    async def handed_back(self, replay: int, some: Sequence[int], *, holder: str | None = None) -> int:
        """Letters that were marked as being sent, and never were, wait again. How many; none where others
        are being sent after the first of them, or `holder` has not the lease."""
        async with self._writing() as connection:
            row = await locked(connection, replay)
            if not is_held_by(row, holder):
                return 0
            return await replay_progress.hand_back(connection, row, some)

    # -- sending -----------------------------------------------------------------------------------------
    @uncut
    async def next_portion(
        self,
        replay: int,
        limit: int,
        *,
        stage: ReplayStage | None = None,
        follows: ReplayView | None = None,
        holder: str | None = None,
    ) -> list[ClaimedLetter]:
        """The next letters, oldest first, written down as being sent; none unless it runs, or where somebody
        else marked some at this moment. `stage`: the one that `next_step` gave with them; `follows`: the view
        that it was asked about, none where somebody chose another pace since; `holder`: none unless this
        instance has the lease. Fewer than `limit` where they are large; one that is no longer
        there as it was is refused and not among them."""
        async with self._reading() as connection:  # what is claimed does not change, so nobody has to wait
            before = await row_of(connection, replay)
            rows = await replay_progress.next_waiting(connection, before, limit)
            found, refused = await claimed_letters.whole(connection, rows, self._dictionaries)
        if not rows:
            return []
        async with self._writing() as connection:
            marked = await replay_progress.mark_sending(
                connection, before, rows, stage, follows=follows, holder=holder, now_ms=self._now_ms()
            )
        if refused := {row: why for row, why in refused.items() if row in marked}:
            await self.settled(replay, [], refused, at_ms=self._now_ms())
        return found if len(marked) == len(rows) else [one for one in found if one.row in marked]

    @uncut
    async def settled(
        self,
        replay: int,
        sent: Sequence[int],
        refused: Mapping[int, str],
        *,
        at_ms: int,
        doubtful: Sequence[int] = (),
        holder: str | None = None,
    ) -> None:
        """What the broker said: confirmed, or refused with a reason, which are open letters again.
        `doubtful`: the line was lost before it said anything, and they are sent again. `holder`: where
        another instance has the lease by now, refused ones are left to that one, which sends them too."""
        async with self._writing() as connection:
            row = await locked(connection, replay)
            refused = refused if is_held_by(row, holder) else {}
            if doubtful:
                await replay_progress.doubt(connection, replay, doubtful)
            await replay_progress.settle(connection, row, sent, refused, at_ms=at_ms)

    # -- outcomes ----------------------------------------------------------------------------------------
    @uncut
    async def done_by_consumer(self, notes: Sequence[tuple[str, int, int]]) -> int:
        """`notes`: the id of a letter, its replay, and when its consumer was done with it. How many of them
        were news."""
        done = 0
        async with self._writing() as connection:
            visits = await visits_of(connection, (letter_id for letter_id, _, _ in notes))
            told: dict[int, list[int]] = {}
            for letter_id, replay, _ in notes:
                mine = [one.letter for one in visits.get(letter_id, []) if one.replay == replay]
                told.setdefault(replay, []).extend(mine)
            for replay, some in sorted(told.items()):
                if some:
                    await locked(connection, replay)
                    done += await replay_progress.mark_done(connection, replay, some, now_ms=self._now_ms())
        return done

    @uncut
    async def quiet(self, replay: int, *, now_ms: int) -> int:
        """The next portion of letters that did not come back in time; 0: there are no more now."""
        async with self._writing() as connection:
            row = await locked(connection, replay)
            return await replay_progress.mark_quiet(connection, row, now_ms=now_ms)

    @uncut
    async def finish(self, replay: int) -> ReplayView:
        """It ends where nothing waits and every outcome is known: then what is returned has `ended_ms`. Of
        one that was stopped or cancelled, what waits is let go first."""
        before = await self._all_let_go(replay)
        async with self._reading() as connection:
            if not replay_closing.is_over(before):
                return before
            cured = await replay_closing.groups_of(connection, replay)
            well = [group for group, went_well in cured.items() if went_well]
            releases = await release_cures.cured_by(connection, await row_of(connection, replay), well)
        async with self._writing() as connection:
            row = await locked(connection, replay)
            now_ms = self._now_ms()
            await replay_progress.settle_returned(connection, replay, now_ms=now_ms)
            if replay_closing.is_over(await view_of(connection, replay)):
                await replay_closing.close(connection, row, cured, releases, now_ms=now_ms)
            return await view_of(connection, replay)

    # -- looking -----------------------------------------------------------------------------------------
    async def view(self, replay: int) -> ReplayView:
        """NotStored: there is none."""
        async with self._reading() as connection:
            return await view_of(connection, replay)

    async def of_run(self, run: str) -> ReplayView | None:
        """The replay that was begun with this run."""
        async with self._reading() as connection:
            found = await views_of(connection, all_views().where(replays.c.run == clean(run)))
            return found[0] if found else None

    async def came_back(self, letter_ids: Collection[str]) -> dict[str, int]:
        """From how many replays letters of these ids came back; those that never did are not among them."""
        async with self._reading() as connection:
            return await replay_list.came_back(connection, letter_ids)

    async def views(
        self, *, states: Sequence[ReplayState] = (), after: int | None = None, limit: int = 50
    ) -> list[ReplayView]:
        """The newest first. `after`: go on after this one."""
        async with self._reading() as connection:
            return await replay_list.listed(connection, states=states, after=after, limit=limit)

    async def outcomes(
        self,
        replay: int,
        state: SentState | None = None,
        after: int | None = None,
        limit: int = 50,
        *,
        doubtful: bool = False,
    ) -> list[ReplayedLetter]:
        """Letters of a replay and what became of them. `after`: go on after this letter; `doubtful`: only
        those that may have gone twice."""
        async with self._reading() as connection:
            return await replay_list.outcomes(
                connection, replay, state=state, doubtful=doubtful, after=after, limit=limit
            )

    async def seen(
        self, replay: int, *, depth: int | None, consumers: int | None, now_ms: int
    ) -> tuple[ReplayView, ReplaySeen]:
        """What `next_step` is asked with; depth and consumers as the caller saw them."""
        async with self._reading() as connection:
            return await replay_list.seen(connection, replay, depth=depth, consumers=consumers, now_ms=now_ms)

    async def origins(self, replay: int) -> tuple[str, ...]:
        """The queues that its letters failed in, where that is known."""
        async with self._reading() as connection:
            return await replay_list.origins(connection, replay)

    # -- what people do, and what it does by itself ------------------------------------------------------
    async def pause(self, replay: int, *, who: str) -> ReplayView:
        """Nothing is sent any more until it is resumed. What is being sent is settled."""
        return await self._turned(replay, who, ReplayState.PAUSED, _GOES_ON)

    async def resume(self, replay: int, *, who: str) -> ReplayView:
        return await self._turned(replay, who, ReplayState.RUNNING, _GOES_ON)

    async def cancel(self, replay: int, *, who: str) -> ReplayView:
        """What waits is let go: open again."""
        await self._turned(replay, who, ReplayState.CANCELLED, (*_GOES_ON, *_GIVEN_UP))
        return await self._all_let_go(replay)

    async def stop(self, replay: int, told: str) -> ReplayView:
        """By itself, and it says why. What waits is let go."""
        await self._turned(replay, "", ReplayState.STOPPED, (*_GOES_ON, *_GIVEN_UP), told=told)
        return await self._all_let_go(replay)

    @uncut
    async def let_go_some(self, replay: int) -> int:
        """The next portion of what waits in a replay that was stopped or cancelled; 0: nothing does. Whoever
        did that may have died in the middle. What was being sent by somebody whose lease is over is let go
        too, as doubtful: nobody may come to settle it."""
        async with self._writing() as connection:
            row = await locked(connection, replay)
            if row.state not in _GIVEN_UP:
                return 0
            now_ms = self._now_ms()
            if row.held_until_ms < now_ms:
                await replay_progress.take_over(connection, row, now_ms=now_ms)
                nobody = {"holder": "", "held_until_ms": 0}
                await connection.execute(update(replays).where(replays.c.id == replay).values(**nobody))
                row = await locked(connection, replay)
            return await replay_progress.let_go(connection, row, now_ms=now_ms)

    @uncut
    async def set_pace(self, replay: int, pace: ReplayPace, *, who: str) -> ReplayView:
        """From now on. A canary begins with its first step; what came back before does not count."""
        async with self._writing() as connection:
            row = await locked(connection, replay)
            if row.state not in _GOES_ON:
                raise UsageError(f"replay {replay} is {row.state}: its pace does not matter any more")
            counts = (await view_of(connection, replay)).counts
            stage = ReplayStage(gone=counts.gone, returned=counts.returned)
            told = json.dumps(pace_json(pace))
            values = {"pace": told, "stage": stage_text(stage)}
            await connection.execute(update(replays).where(replays.c.id == replay).values(**values))
            await self._note(connection, who, "replay pace", replay, pace=told)
            return await view_of(connection, replay)

    @uncut
    async def tell(self, replay: int, told: str) -> None:
        """Why it waits, for people."""
        async with self._writing() as connection:
            said = update(replays).where(replays.c.id == replay, replays.c.told != clean(told))
            await connection.execute(said.values(told=clean(told)))

    @uncut
    async def _turned(
        self, replay: int, who: str, to: ReplayState, allowed: Sequence[ReplayState], *, told: str = ""
    ) -> ReplayView:
        async with self._writing() as connection:
            row = await locked(connection, replay)
            if row.state not in allowed or row.ended_ms is not None:
                raise UsageError(f"replay {replay} is {row.state}: it cannot be {to.value}")
            if row.state in _GIVEN_UP or row.state == to:
                return await view_of(connection, replay)
            if to is ReplayState.RUNNING and row.frozen_ms is None:
                to = ReplayState.FREEZING
            changed = update(replays).where(replays.c.id == replay)
            await connection.execute(changed.values(state=to.value, told=clean(told)))
            await self._note(connection, who, f"replay {to.value}", replay, **({"why": told} if told else {}))
            return await view_of(connection, replay)

    async def _all_let_go(self, replay: int) -> ReplayView:
        while await self.let_go_some(replay):
            pass
        return await self.view(replay)

    async def _note(
        self, connection: AsyncConnection, who: str, action: str, replay: int, **detail: object
    ) -> None:
        said = json.dumps({"replay": replay, **detail})
        await letter_changes.noted(connection, who=who, action=action, detail=said, now_ms=self._now_ms())
