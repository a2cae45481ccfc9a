"""Does one match take everything another would? Then the other, standing behind it, is never reached.

Answers yes only where it is certain. A pattern is read as a text in which the other's wildcards are ordinary
signs: whatever a wide pattern's wildcard swallows, it also swallows when the narrow one's wildcard becomes
something else.
"""

from __future__ import annotations

from deadletter.core.deciding.policy import Match
from deadletter.core.text.glob import glob
from deadletter.core.topology.routing_keys import topic_covers


def covers(wide: Match, narrow: Match) -> bool:
    """Whether every letter that `narrow` takes would be taken by `wide`."""
    return (
        _given(wide.queue, narrow.queue)
        and (
            wide.routing_key is None
            or (narrow.routing_key is not None and topic_covers(wide.routing_key, narrow.routing_key))
        )
        and (not wide.reasons or (bool(narrow.reasons) and wide.reasons.issuperset(narrow.reasons)))
        and (not wide.error_types or errors_cover(wide.error_types, narrow.error_types))
        and all(
            any(there.header == wanted.header and glob(wanted.value, there.value) for there in narrow.headers)
            for wanted in wide.headers
        )
        and _given(wide.content_type, narrow.content_type)
        and wide.body in (None, narrow.body)
    )


def errors_cover(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """Whether each of the narrow patterns is covered by one of the wide ones."""
    return bool(narrow) and all(any(glob(w, n) for w in wide) for n in narrow)


def _given(wide: str | None, narrow: str | None) -> bool:
    return wide is None or (narrow is not None and glob(wide, narrow))
