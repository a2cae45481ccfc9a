"""What somebody may see, as conditions of a query: names are few, so patterns are compared here, exactly.

Of letters those of their vhosts and origins. Of groups, whatever is told of them, those members that are
theirs whole: a group that others were merged into is several, and each of them keeps its own letters, counts
and notes. The group's number and its state are the same for everybody; all else is lent by the first member
they see, where the group that the others were merged into is none of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Subquery, case, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import Scope
from deadletter.store.letters.letter_tables import groups, letters, names, tallies


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNames:
    """Numbers of names. None: all of them."""

    vhosts: tuple[int, ...] | None
    origins: tuple[int, ...] | None

    @property
    def all(self) -> bool:
        return self.vhosts is None and self.origins is None


EVERYTHING: Final = SeenNames(vhosts=None, origins=None)
_foreign = tallies.alias("foreign")


async def seen_of(connection: AsyncConnection, scope: Scope) -> SeenNames:
    if scope.whole:
        return EVERYTHING
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


# -- letters ---------------------------------------------------------------------------------------------
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


# -- groups ----------------------------------------------------------------------------------------------
def members_within(member: FromClause, seen: SeenNames) -> list[ColumnElement[bool]]:
    """What must hold of a group by itself, without those that were merged into it: all that it tells is of
    these vhosts and origins."""
    conditions: list[ColumnElement[bool]] = []
    if seen.vhosts is not None:
        conditions.append(member.c.vhost.in_(seen.vhosts))
        # an older instance beside ours knows no vhosts of groups, and may have put others' letters there
        strange = exists().where(_foreign.c.group_id == member.c.id, _foreign.c.vhost.not_in(seen.vhosts))
        conditions.append(~strange)
    if seen.origins is not None:
        conditions.append(member.c.origin.in_(seen.origins))
    return conditions


def root_column(member: FromClause) -> ColumnElement[int]:
    """The group as which a member is shown: the one it was merged into, or itself."""
    return func.coalesce(member.c.merged_into, member.c.id)


def face_column(member: FromClause) -> ColumnElement[int]:
    """Of members of one group: the one that lends it what is told. The group itself, or the first."""
    itself = case((member.c.merged_into.is_(None), member.c.id))
    return func.coalesce(func.max(itself), func.min(member.c.id))


def faces_within(seen: SeenNames, *more: ColumnElement[Any]) -> Subquery:
    """Of each group that is seen `root`, `face`, and what else is asked of its seen members, as `member`."""
    asked = select(root_column(MEMBER).label("root"), face_column(MEMBER).label("face"), *more)
    return asked.where(*members_within(MEMBER, seen)).group_by(root_column(MEMBER)).subquery("members")


MEMBER: Final = groups.alias("member")
