"""Which store a command about files of letters means, and which of its letters."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deadletter.config.settings import Settings
from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.core.letter.header_values import moment
from deadletter.core.text.durations import duration_ms
from deadletter.errors import StoreUnreachable, UsageError
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.store_address import SqliteAddress, parse


def store_url(settings: Settings, *, must_exist: bool) -> str:
    """UsageError: there shall be none. `must_exist`: nobody is to make an empty one to read from it."""
    url = settings.store.in_force(os.environ, Path.home())
    if url is None:
        raise UsageError("expected a store with letters, got store.url = none; name one with --store")
    address = parse(url)
    if must_exist and isinstance(address, SqliteAddress) and not address.path.exists():
        raise StoreUnreachable(
            f"no letters are stored yet: {address} is not there; name another store with --store, or a queue "
            "with --from-queue"
        )
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters of the store, as it was typed; None or empty: not said."""

    queue: str | None = None
    origin: str | None = None
    group: str | None = None
    state: str | None = None
    cause: str | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    headers: Sequence[str] = ()
    message_id: str | None = None
    text: str | None = None

    async def query(self, store: LetterStore) -> LetterQuery:
        """UsageError where something makes no sense. A group's name is looked up."""
        now = int(time.time() * 1000)
        state: LetterState | None = LetterState.OPEN
        if self.state is not None:
            known = [*map(str, LetterState), "any"]
            if self.state not in known:
                raise UsageError(f"--state: expected one of {', '.join(known)}, got {self.state!r}")
            state = None if self.state == "any" else LetterState(self.state)
        return LetterQuery(
            queue=self.queue,
            origin=self.origin,
            group=None if self.group is None else (await store.group(self.group)).group.id,
            state=state,
            cause=self.cause,
            error=self.error,
            message_id=self.message_id,
            died_from_ms=None if self.since is None else _past_ms("--since", self.since, now),
            died_until_ms=None if self.until is None else _past_ms("--until", self.until, now),
            headers=tuple(map(_header, self.headers)),
            text=self.text,
        )


def _past_ms(option: str, said: str, now_ms: int) -> int:
    try:
        return now_ms - int(duration_ms(said))
    except ValueError:
        at = moment(said)
    if at is None:
        raise UsageError(
            f"{option}: expected a span such as 2h or 3d, or a time such as 2025-06-01T12:00 (UTC), "
            f"got {said!r}"
        )
    return int(at.timestamp() * 1000)


def _header(said: str) -> tuple[str, str]:
    name, equals, value = said.partition("=")
    if not name or not equals:
        raise UsageError(f"--header: expected name=value, with * for any run in the value, got {said!r}")
    return name, value
