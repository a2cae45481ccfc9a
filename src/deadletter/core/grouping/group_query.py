"""Which groups somebody wants to see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_states import GroupState


class GroupOrder(StrEnum):
    """The groups with which to begin."""

    LAST = "last"
    FIRST = "first"
    LETTERS = "letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuery:
    """Which groups. `states` empty: all of them."""

    states: tuple[GroupState, ...] = (GroupState.OPEN,)
    vhost: str | None = None
    """Those that have letters of it, or had."""
    origin: str | None = None
    category: Category | None = None
    text: str | None = None
    order: GroupOrder = GroupOrder.LAST
    limit: int = 50
    offset: int = 0
    """There are thousands of groups, not millions: pages are counted."""
    scope: Scope = WHOLE
