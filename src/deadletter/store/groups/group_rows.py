"""Rows of groups: made for keys that have none yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.category import guess
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE, clean, unless_there
from deadletter.store.letters.letter_tables import groups


class GroupsGone(Exception):
    """Somebody grouped letters anew meanwhile: a group whose number was remembered is no longer there."""


async def ensure_groups(
    connection: AsyncConnection, wanted: Mapping[str, StoredLetter], name_id: Callable[[str], int]
) -> tuple[dict[str, int], int]:
    """The numbers of the groups of these keys, and how many of them are new. Each key with a letter of it."""
    keys = sorted(wanted)
    found = await group_ids(connection, keys)
    new = [key for key in keys if key not in found]
    if new:
        rows = [_row(wanted[key], name_id) for key in new]
        await connection.execute(unless_there(connection, groups, ["key"]), rows)
        found.update(await group_ids(connection, new))
    return found, len(new)


async def group_ids(connection: AsyncConnection, keys: Sequence[str]) -> dict[str, int]:
    """Of those keys that have one."""
    found: dict[str, int] = {}
    asked = select(groups.c.key, groups.c.id).where(groups.c.key.in_(bindparam("some", expanding=True)))
    for start in range(0, len(keys), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(keys[start : start + ASKED_AT_ONCE])})
        found.update((key, number) for key, number in rows)
    return found


def category_values(letter: StoredLetter) -> dict[str, str]:
    """Of which category a letter's group is, as far as one letter tells."""
    first = guess(letter.fingerprint, message=letter.error, cause=letter.cause, reason=letter.reason)
    return {
        "category": first.category.value,
        "category_by": first.by.value,
        "category_why": clean(first.why),
        "guess": first.category.value,
        "guess_why": clean(first.why),
    }


def _row(letter: StoredLetter, name_id: Callable[[str], int]) -> dict[str, Any]:
    found = letter.fingerprint
    return {
        "key": found.key,
        "vhost": name_id(letter.vhost) if letter.vhost else None,
        "origin": name_id(letter.origin),
        "title": clean(found.title),
        "culprit": clean(found.culprit),
        "error_type": clean(found.error_type),
        "parts": clean(json.dumps(found.parts)),
        **category_values(letter),
        "state": GroupState.OPEN.value,
        "first_ms": letter.died_at_ms,
        "last_ms": letter.died_at_ms,
        "total": 0,
    }
