"""How deaths are counted, as a file or an option says it. Apart from the tables, which bring pydantic."""

from __future__ import annotations

from typing import Final

from deadletter.core.deciding.deaths import (
    REASONS,
    ByQueue,
    ByReason,
    CountBy,
    FirstEntry,
    NamedHeader,
    OwnAttempt,
    SumOfAll,
)

COUNT_BY_PATTERN: Final = rf"^(own|first|sum|reason:({'|'.join(REASONS)})|queue:.+|header:.+)$"


def count_by(value: object) -> CountBy:
    """How attempts are counted: `own`, `first`, `sum`, `reason:rejected`, `queue:NAME`, `header:NAME`."""
    match value.partition(":") if isinstance(value, str) else ("", "", ""):
        case ("own", "", ""):
            return OwnAttempt()
        case ("first", "", ""):
            return FirstEntry()
        case ("sum", "", ""):
            return SumOfAll()
        case ("reason", ":", reason) if reason in REASONS:
            return ByReason(reason=reason)
        case ("reason", ":", _):
            raise ValueError(f"reason: with one of {', '.join(REASONS)}")
        case ("queue", ":", queue) if queue:
            return ByQueue(queue=queue)
        case ("header", ":", header) if header:
            return NamedHeader(header=header)
        case _:
            raise ValueError("own, first, sum, reason:REASON, queue:NAME or header:NAME")
