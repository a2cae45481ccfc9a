"""When a replay gives up: letters that find no queue or are not accepted, counted by the queue they are for.

One queue that is gone is no reason to keep the letters of others home. So it is over when every queue that
the replay has letters for took none of a hundred (ten of a canary), one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

IN_VAIN_MOST: Final = 100
IN_VAIN_OF_CANARY: Final = 10


class VainSends:
    """Of one replay."""

    def __init__(self) -> None:
        self._in_vain: Counter[str] = Counter()

    def arrived(self, queues: Collection[str]) -> None:
        for queue in queues:
            self._in_vain.pop(queue, None)

    def stayed(
        self, queue: str, why: str, others: Collection[str], *, most: int = IN_VAIN_MOST
    ) -> str | None:
        """Why the replay is over; None: it goes on. `others`: the queues that it has letters for."""
        self._in_vain[queue] += 1
        if self._in_vain[queue] < most or any(self._in_vain[other] < most for other in others):
            return None
        return f"{most} letters one after the other could not be sent; the last one: {why}"
