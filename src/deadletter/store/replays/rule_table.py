"""Replay rules as the store knows them: when each ran, what came of it, whether it gave up.

The rules themselves are configured. What is kept here outlives a restart and is shared by all instances: a
rule that ran has run for all of them. One that is configured anew begins anew: so a person who turns a rule
off and on again gives it another chance.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.stored_letter import UNKNOWN_ORIGIN
from deadletter.core.replaying.replay_rules import ReplayRule
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import clean, unless_there
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_tables import groups, names, tags
from deadletter.store.replays.replay_tables import deploys, replay_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """What is known of a rule. Times are milliseconds since 1970."""

    name: str
    failures: int
    """Runs in a row that cured nothing."""
    last_ms: int | None
    last_replay: int | None
    """None: it is known what came of the last one."""
    gave_up: bool
    healthy_since_ms: int | None


@dataclass(frozen=True, slots=True)
class ReleaseSeen:
    release: str
    at_ms: int


class RuleStore:
    """The rules of one store. What changes a rule is right also when two instances do it at once."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    async def row(self, name: str, rule: ReplayRule) -> RuleRow:
        """Of this rule, which is kept under this name. It is written down where it is new or was changed."""
        told = clean(json.dumps(asdict(rule)))
        async with self._reading() as connection:
            found = await _row(connection, name, told)
        return found if found is not None else await self._written(name, told, enabled=rule.enabled)

    @uncut
    async def _written(self, name: str, told: str, *, enabled: bool) -> RuleRow:
        async with self._writing() as connection:
            anew = {"rule": told, "enabled": enabled, "runs": 0, "gave_up": False}
            await connection.execute(
                unless_there(connection, replay_rules, ["name"]), [{"name": clean(name), **anew}]
            )
            changed = update(replay_rules).where(
                replay_rules.c.name == clean(name), replay_rules.c.rule != told
            )
            await connection.execute(changed.values(**anew))
            found = await _row(connection, name, told)
            assert found is not None
            return found

    @uncut
    async def began(self, name: str, replay: int, *, at_ms: int) -> None:
        """It started this replay, then."""
        async with self._writing() as connection:
            mine = update(replay_rules).where(replay_rules.c.name == clean(name))
            await connection.execute(mine.values(last_ms=at_ms, last_replay=replay))

    @uncut
    async def ended(self, name: str, replay: int, *, cured: bool) -> None:
        """What came of its last run. Who comes second changes nothing."""
        async with self._writing() as connection:
            columns = replay_rules.c
            mine = update(replay_rules).where(columns.name == clean(name), columns.last_replay == replay)
            await connection.execute(mine.values(runs=0 if cured else columns.runs + 1, last_replay=None))

    @uncut
    async def gives_up(self, name: str, why: str) -> None:
        """Until it is configured anew."""
        async with self._writing() as connection:
            columns = replay_rules.c
            mine = update(replay_rules).where(columns.name == clean(name), columns.gave_up.is_(False))
            done = await connection.execute(mine.values(gave_up=True))
            if not done.rowcount:
                return  # another instance said so
            detail = json.dumps({"rule": name, "why": why})
            await letter_changes.noted(
                connection, who=who_of(name), action="rule gave up", detail=detail, now_ms=self._now_ms()
            )

    @uncut
    async def healthy(self, name: str, *, healthy: bool) -> None:
        """What its health says now; since when that is so is kept."""
        async with self._writing() as connection:
            since = replay_rules.c.healthy_since_ms
            mine = update(replay_rules).where(replay_rules.c.name == clean(name))
            if healthy:
                await connection.execute(mine.where(since.is_(None)).values(healthy_since_ms=self._now_ms()))
            else:
                await connection.execute(mine.where(since.is_not(None)).values(healthy_since_ms=None))

    async def release(self, service: str, origin: str | None) -> ReleaseSeen | None:
        """The newest release of a service: the one that was told last, or one that letters of this origin
        name since then."""
        async with self._reading() as connection:
            asked = select(deploys.c.release, deploys.c.at_ms).where(deploys.c.service == clean(service))
            told = (await connection.execute(asked.order_by(deploys.c.id.desc()).limit(1))).first()
            seen = None if origin is None else await _seen_release(connection, origin)
        found = [ReleaseSeen(str(one[0]), int(one[1])) for one in (told, seen) if one is not None]
        return max(found, key=lambda one: one.at_ms, default=None)


def who_of(name: str) -> str:
    """Who starts the replays of this rule, for the audit."""
    return f"rule {name}"


async def _row(connection: AsyncConnection, name: str, told: str) -> RuleRow | None:
    columns = replay_rules.c
    asked = select(replay_rules).where(columns.name == clean(name), columns.rule == told)
    row = (await connection.execute(asked)).first()
    if row is None:
        return None
    return RuleRow(
        name=name,
        failures=int(row.runs),
        last_ms=row.last_ms,
        last_replay=row.last_replay,
        gave_up=bool(row.gave_up),
        healthy_since_ms=row.healthy_since_ms,
    )


async def _seen_release(connection: AsyncConnection, origin: str) -> tuple[str, int] | None:
    """The release that letters of an origin began to name last. One alone is no new one."""
    first = func.min(tags.c.first_ms).label("first_ms")
    asked = (
        select(tags.c.value, first)
        .join(groups, groups.c.id == tags.c.group_id)
        .join(names, names.c.id == groups.c.origin)
        .where(tags.c.kind == "release", names.c.name == clean(origin), names.c.name != UNKNOWN_ORIGIN)
        .group_by(tags.c.value)
        .order_by(first.desc())
        .limit(2)
    )
    rows = (await connection.execute(asked)).all()
    return (str(rows[0].value), int(rows[0].first_ms)) if len(rows) > 1 else None
