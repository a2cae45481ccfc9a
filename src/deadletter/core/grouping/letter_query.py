"""What somebody looks for among the letters of the store: one question, the same for search, discard, export
and, later, replay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deadletter.core.access.scope import WHOLE, Scope

MAX_LIMIT: Final = 1_000


class LetterOrder(StrEnum):
    """By when they came into the store."""

    NEWEST = "newest"
    OLDEST = "oldest"


class LetterState(StrEnum):
    """What became of a letter that is in the store."""

    OPEN = "open"
    DISCARDED = "discarded"
    CLAIMED = "claimed"
    """A replay is going to send it."""
    REPLAYED = "replayed"
    """A replay sent it, and a queue has it again: what is here is its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """All of it must hold; what is not said does not matter. Times are milliseconds since 1970."""

    ids: tuple[int, ...] = ()
    vhost: str | None = None
    queue: str | None = None
    origin: str | None = None
    group: int | None = None
    state: LetterState | None = LetterState.OPEN
    cause: str | None = None
    error: str | None = None
    """Words in its error, in any case, one after the other."""
    message_id: str | None = None
    letter_id: str | None = None
    discard: int | None = None
    """Thrown away by this discard, and not taken back since."""
    died_from_ms: int | None = None
    died_until_ms: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Names and values; `*` in a value stands for any run."""
    text: str | None = None
    """Words in body, headers, ids or error. In quotes: as they stand, one after the other."""
    where: str | None = None
    """A jq program over `{body, headers, properties}`."""
    order: LetterOrder = LetterOrder.NEWEST
    after: int | None = None
    """Go on after this letter."""
    limit: int = 50
    scope: Scope = WHOLE
    """What whoever asks may see: nothing else is found, and nothing is found by what they do not see."""

    @property
    def looks_inside(self) -> bool:
        """Whether a letter has to be unpacked to know."""
        quotes = bool(self.error and self.scope.masks)
        return bool(self.headers or self.text or self.where or quotes)

    @property
    def asks_for_places(self) -> bool:
        """Whether it asks for nothing but places, a group and a state: how many those are is kept."""
        return self == LetterQuery(
            vhost=self.vhost,
            queue=self.queue,
            origin=self.origin,
            group=self.group,
            state=self.state,
            order=self.order,
            after=self.after,
            limit=self.limit,
            scope=self.scope,
        )
