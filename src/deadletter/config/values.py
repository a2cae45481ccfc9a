"""Values as people write them in a file, read into what the code works with: names of counts, places.

Each reader raises ValueError with what it expected; the key, the value and where it stood are added by
whoever asked. Times are read by `core.text.durations`.
"""

from __future__ import annotations

import re
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


LISTEN_PATTERN: Final = r"^(off|(\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+):\d{1,5})$"
_LISTEN: Final = re.compile(LISTEN_PATTERN)


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


def listen(value: object) -> str | None:
    """`host:port`, an IPv6 address in brackets; port 0 is any free one. None for `off`: nowhere."""
    if value == "off" or value is False:  # YAML reads a bare off as false
        return None
    text = value.strip() if isinstance(value, str) else ""
    if _LISTEN.fullmatch(text) and int(text.rpartition(":")[2]) <= 65_535:
        return text
    hint = f"; 0.0.0.0{text} for every address" if re.fullmatch(r":\d{1,5}", text) else ""
    raise ValueError(f"host:port such as 127.0.0.1:8025 or [::1]:8025, or off{hint}")
