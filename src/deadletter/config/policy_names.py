"""Names for policies that nobody named: after what they match, so that a decision can be understood.

Given in the gathered tree, before anything is judged: problems, watches and `dlq config show` then all say
the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_TELLING: Final = ("queue", "routing_key", "error_type", "reason", "content_type")
_RESERVED: Final = "default"


def names_for(policies: object) -> Mapping[int, str]:
    """By place in the list, for those that have none; no name twice."""
    tables = policies if isinstance(policies, list) else []
    taken = {_RESERVED, *(name for one in tables if isinstance(one, dict) and (name := _own(one)))}
    given: dict[int, str] = {}
    for place, one in enumerate(tables):
        if isinstance(one, dict) and "name" not in one:
            given[place] = _free(_proposed(one.get("match")) or f"policy-{place + 1}", taken)
            taken.add(given[place])
    return given


def _own(table: Mapping[str, object]) -> str | None:
    name = table.get("name")
    return name if isinstance(name, str) else None


def _proposed(match: object) -> str | None:
    """What stands in the match, if it is one plain text; a pattern for everything says nothing."""
    if not isinstance(match, dict):
        return None
    texts = [text for key in _TELLING if (text := _one_text(match.get(key))) is not None]
    return texts[0] if texts and texts[0].strip("*#.") else None


def _one_text(value: object) -> str | None:
    match value:
        case str(text) | [str(text)] if text:
            return text
        case _:
            return None


def _free(name: str, taken: Iterable[str]) -> str:
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
