"""Recipes: edits that somebody gave a name, to be used again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Row, delete, insert, select

from deadletter.errors import NotStored, UsageError
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.replay_tables import recipes

NAME_CHARS: Final = 100
LISTED: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A jq program by its name. `origin`, `group_key`: whose letters it was made for; may be empty."""

    name: str
    program: str
    note: str = ""
    origin: str = ""
    group_key: str = ""
    who: str = ""
    made_ms: int = 0


class RecipeStore:
    """The recipes of one store; each change is audited."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    @uncut
    async def save(self, recipe: Recipe, *, who: str, replace: bool = False) -> Recipe:
        """UsageError: there is one of this name, and it is not to be replaced."""
        name = recipe.name
        if not name or len(name) > NAME_CHARS or not name.isprintable() or name != clean(name).strip():
            raise UsageError(f"recipe: expected a name of 1 to {NAME_CHARS} characters, got {name!r}")
        async with self._writing() as connection:
            now_ms = self._now_ms()
            gone = await connection.execute(
                delete(recipes).where(recipes.c.name == name).returning(recipes.c.program)
            )
            before = gone.scalar()
            if before is not None and not replace:
                raise UsageError(
                    f"recipe {name}: expected a name of its own, there is one of this name already"
                )
            saved = Recipe(
                name=name,
                program=clean(recipe.program),
                note=clean(recipe.note),
                origin=clean(recipe.origin),
                group_key=clean(recipe.group_key),
                who=clean(who),
                made_ms=now_ms,
            )
            await connection.execute(insert(recipes).values(asdict(saved)))
            detail = {"recipe": name, "program": recipe.program, "before": before}
            await letter_changes.noted(
                connection, who=who, action="recipe saved", detail=json.dumps(detail), now_ms=now_ms
            )
        return saved

    async def all(self) -> tuple[Recipe, ...]:
        """By name."""
        async with self._reading() as connection:
            rows = await connection.execute(select(recipes).order_by(recipes.c.name).limit(LISTED))
            return tuple(_recipe(row) for row in rows)

    async def named(self, name: str) -> Recipe:
        """NotStored: there is none."""
        async with self._reading() as connection:
            row = (await connection.execute(select(recipes).where(recipes.c.name == clean(name)))).first()
        if row is None:
            raise NotStored(f"recipe {name}: no recipe is called so (dlq recipes list tells them)")
        return _recipe(row)

    @uncut
    async def delete(self, name: str, *, who: str) -> Recipe:
        """NotStored: there is none."""
        async with self._writing() as connection:
            asked = delete(recipes).where(recipes.c.name == clean(name)).returning(*recipes.c)
            row = (await connection.execute(asked)).first()
            if row is None:
                raise NotStored(f"recipe {name}: no recipe is called so (dlq recipes list tells them)")
            kept = {
                "program": row.program,
                "note": row.note,
                "origin": row.origin,
                "group_key": row.group_key,
            }
            detail = json.dumps({"recipe": name, **kept})
            await letter_changes.noted(
                connection, who=who, action="recipe deleted", detail=detail, now_ms=self._now_ms()
            )
            return _recipe(row)


def _recipe(row: Row[Any]) -> Recipe:
    return Recipe(
        name=row.name,
        program=row.program,
        note=row.note,
        origin=row.origin,
        group_key=row.group_key,
        who=row.who,
        made_ms=row.made_ms,
    )
