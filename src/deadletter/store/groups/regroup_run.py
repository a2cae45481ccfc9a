"""Groups stored letters anew, a portion after the other: each is a transaction, and between two is a pause at
least as long as its write took, so that whoever brings letters waits for one portion at most."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final, assert_never

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.store.groups import regroup_ending, regrouping
from deadletter.store.groups.regrouping import GroupingNow
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_connections import LetterConnections, uncut
from deadletter.store.letters.letter_tables import groups, tallies
from deadletter.store.letters.letter_views import GroupingTold, RegroupStage

AT_ONCE_S: Final = 1.0
"""So long it works before it says how far it came."""
PAUSE_S: Final = 0.005


class Regrouping:
    """Of one store."""

    def __init__(self, connections: LetterConnections, now_ms: Callable[[], int]) -> None:
        self._connections = connections
        self._now_ms = now_ms

    @uncut
    async def put_in_force(self, grouping: Grouping) -> GroupingTold:
        """Letters that come are grouped so from now on; whether those that are stored are, is told."""
        async with self._connections.writing() as connection:
            now = await regrouping.put_in_force(connection, grouping.digest, now_ms=self._now_ms())
            return await _told(connection, now, grouping)

    async def told(self, grouping: Grouping) -> GroupingTold:
        """How far stored letters follow this grouping. Nothing is changed."""
        async with self._connections.reading() as connection:
            return await _told(connection, await regrouping.in_force(connection), grouping)

    async def go_on(self, grouping: Grouping, *, who: str, for_s: float = AT_ONCE_S) -> GroupingTold:
        """Begin, or go on where it was stopped, for a while. Done when its stage says so."""
        until = time.monotonic() + for_s
        while True:
            now, wrote_s = await self._portion(grouping, who)
            if now.stage is RegroupStage.DONE or time.monotonic() >= until:
                return await self.told(grouping)
            await asyncio.sleep(max(PAUSE_S, wrote_s))

    @uncut
    async def _portion(self, grouping: Grouping, who: str) -> tuple[GroupingNow, float]:
        """How far it is now, and how long nobody else could write."""
        async with self._connections.reading() as connection:
            now = await regrouping.in_force(connection)
            mine = now is not None and now.digest == grouping.digest
            some: list[regrouping.LookedAt] = []
            late: regroup_ending.LateTags = {}
            if mine and now is not None and now.stage is RegroupStage.MOVING:
                some = await regrouping.look(connection, grouping, now)
            elif mine and now is not None and now.stage is RegroupStage.MENDING:
                late = await regroup_ending.look(connection, now.reached, now.last_letter)
        async with self._connections.writing() as connection:
            started = time.monotonic()
            await regrouping.alone(connection)
            again = await regrouping.put_in_force(connection, grouping.digest, now_ms=self._now_ms())
            if again.stage is RegroupStage.BEHIND:
                await regrouping.begin(connection, again)
                await self._note(connection, who, "regroup", {"digest": grouping.digest})
            elif again == now:  # else somebody else does the same
                await self._work(connection, grouping, again, some, late, who)
            done = await regrouping.in_force(connection)
            assert done is not None
        return done, time.monotonic() - started

    async def _work(
        self,
        connection: AsyncConnection,
        grouping: Grouping,
        now: GroupingNow,
        some: list[regrouping.LookedAt],
        late: regroup_ending.LateTags,
        who: str,
    ) -> None:
        match now.stage:
            case RegroupStage.MOVING:
                if some:
                    await regrouping.move(connection, grouping, now, some)
                else:
                    await regrouping.reach(connection, now, RegroupStage.MENDING)
            case RegroupStage.MENDING:
                reached = await regroup_ending.mend(connection, now.reached, now.last_letter, late)
                stage = RegroupStage.SETTLING if reached is None else now.stage
                await regrouping.reach(connection, now, stage, reached or 0)
            case RegroupStage.SETTLING:
                await regroup_ending.settle(connection)
                await regrouping.reach(connection, now, RegroupStage.RETIRING)
            case RegroupStage.RETIRING:
                gone = await regroup_ending.retire(connection)
                for group, key, heir in gone:
                    if group:
                        await self._note(
                            connection, who, "regrouped", {"group": group, "key": key, "into": heir}
                        )
                if not gone:
                    await regroup_ending.clear(connection)
                    await regrouping.reach(connection, now, RegroupStage.DONE)
                    told: dict[str, object] = {
                        "letters": now.looked_at,
                        "moved": now.moved,
                        "before": now.groups_before,
                    }
                    await self._note(connection, who, "regroup done", told)
            case RegroupStage.BEHIND | RegroupStage.DONE:
                return
            case _:
                assert_never(now.stage)

    async def _note(
        self, connection: AsyncConnection, who: str, action: str, detail: dict[str, object]
    ) -> None:
        await letter_changes.noted(
            connection, who=who, action=action, detail=json.dumps(detail), now_ms=self._now_ms()
        )


async def _told(connection: AsyncConnection, now: GroupingNow | None, grouping: Grouping) -> GroupingTold:
    shown = await connection.scalar(
        select(func.count()).select_from(groups).where(groups.c.merged_into.is_(None))
    )
    held = await connection.scalar(select(func.coalesce(func.sum(tallies.c.letters), 0)))
    mine = now is not None and now.digest == grouping.digest
    return GroupingTold(
        digest=grouping.digest,
        since_ms=now.since_ms if now is not None and mine else None,
        stage=now.stage if now is not None and mine else RegroupStage.BEHIND,
        letters=int(held or 0),
        looked_at=now.looked_at if now is not None and mine else 0,
        moved=now.moved if now is not None and mine else 0,
        groups_before=now.groups_before if now is not None and mine else int(shown or 0),
        groups=int(shown or 0),
    )
