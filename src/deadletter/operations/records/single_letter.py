"""A letter whose group somebody does not see, because it has letters of others, too: told as if it were a
group of its own, made of nothing but this letter."""

from __future__ import annotations

from deadletter.core.grouping.category import guess
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.letter_query import LetterState
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.store.letters.letter_views import GroupView, LetterDetail


def alone(detail: LetterDetail, grouping: Grouping) -> GroupView:
    """Its number is that of the group it is in, as the letter's row tells it."""
    row = detail.row
    made = stored_letter(detail.letter, now_ms=row.died_ms, vhost=row.vhost, grouping=grouping)
    found = made.fingerprint
    first = guess(found, message=made.error, cause=made.cause, reason=made.reason)
    return GroupView(
        id=row.group,
        key=found.key,
        vhost=row.vhost,
        origin=row.origin,
        title=found.title,
        culprit=found.culprit,
        error_type=found.error_type,
        category=first.category,
        category_by=first.by,
        category_why=first.why,
        state=GroupState.OPEN,
        until_ms=None,
        first_ms=row.died_ms,
        last_ms=row.died_ms,
        total=1,
        open=int(row.state is LetterState.OPEN),
        reopened_ms=None,
        reopened_release="",
    )
