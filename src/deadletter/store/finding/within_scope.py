"""What somebody may see, as conditions of a query: names are few, so patterns are compared here, exactly."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import Scope
from deadletter.store.letters.letter_tables import groups, letters, names, tallies


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNames:
    """Numbers of names. None: all of them."""

    vhosts: tuple[int, ...] | None
    origins: tuple[int, ...] | None


async def seen_of(connection: AsyncConnection, scope: Scope) -> SeenNames:
    vhosts = origins = None
    if not scope.all_vhosts:
        asked = select(names.c.id, names.c.name).where(names.c.id.in_(select(tallies.c.vhost).distinct()))
        vhosts = tuple(int(one) for one, name in await connection.execute(asked) if scope.in_vhost(str(name)))
    if not scope.all_queues:
        asked = select(names.c.id, names.c.name).where(names.c.id.in_(select(groups.c.origin).distinct()))
        origins = tuple(
            int(one) for one, name in await connection.execute(asked) if scope.of_queue(str(name))
        )
    return SeenNames(vhosts=vhosts, origins=origins)


async def letters_within(
    connection: AsyncConnection, scope: Scope, *, narrow: bool = False
) -> list[ColumnElement[bool]]:
    """What must hold of a letter's row. `narrow`: others say already which few letters are meant, and SQLite,
    which does not know how few, must not begin with all letters of these groups."""
    seen = await seen_of(connection, scope)
    conditions: list[ColumnElement[bool]] = []
    if seen.vhosts is not None:
        conditions.append(letters.c.vhost.in_(seen.vhosts))
    if seen.origins is not None:
        mine = select(groups.c.id).where(groups.c.origin.in_(seen.origins))
        conditions.append((letters.c.group_id + 0 if narrow else letters.c.group_id).in_(mine))
    return conditions


def tallies_within(seen: SeenNames) -> list[ColumnElement[bool]]:
    """What must hold of a count, and of the group that it belongs to."""
    conditions: list[ColumnElement[bool]] = []
    if seen.vhosts is not None:
        conditions.append(tallies.c.vhost.in_(seen.vhosts))
    if seen.origins is not None:
        conditions.append(groups.c.origin.in_(seen.origins))
    return conditions


def has_letters_there(group: ColumnElement[int], seen: SeenNames) -> list[ColumnElement[bool]]:
    """That a group has, or had, letters of these vhosts."""
    if seen.vhosts is None:
        return []
    return [exists().where(tallies.c.group_id == group, tallies.c.vhost.in_(seen.vhosts))]
