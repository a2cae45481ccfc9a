"""What people typed who see all of a letter, for eyes that do not: programs and searches may hold the very
value that is masked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from deadletter.core.access.field_masks import MASKED
from deadletter.operations.journal.journal import AuditPage
from deadletter.operations.replays.replay_told import EditTried, ReplayTold
from deadletter.store.replays.recipe_table import Recipe

_OF_A_SEARCH: Final = ("text", "where", "error")
_OF_AN_ENTRY: Final = ("program", "before", "headers", "view", "address", *_OF_A_SEARCH)


def replay_without_texts(told: ReplayTold) -> ReplayTold:
    """One of somebody else. Which letters it took is told by their numbers, queue and group."""
    selection = _hidden(told.selection, _OF_A_SEARCH)
    if "headers" in selection:
        selection["headers"] = [[name, MASKED] for name, _ in selection["headers"]]
    return replace(told, selection=selection, edit=MASKED if told.edit else "")


def recipe_without_texts(recipe: Recipe) -> Recipe:
    """It is used by its name."""
    return replace(recipe, program=MASKED)


def trial_without_texts(tried: EditTried) -> EditTried:
    """How many letters a recipe would change, and which it cannot."""
    failures = tuple(replace(one, why=(MASKED,)) for one in tried.failures)
    return replace(tried, program=MASKED, sample=(), failures=failures)


def audit_without_texts(page: AuditPage) -> AuditPage:
    entries = tuple(replace(one, detail=_hidden(one.detail, _OF_AN_ENTRY)) for one in page.entries)
    return replace(page, entries=entries)


def _hidden(told: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: MASKED if name in names and value else value for name, value in told.items()}
