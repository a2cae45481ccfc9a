"""Which letters: the options that `dlq letters` and `dlq discard` share, as one question to the records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from deadletter.cli.letters.asking import now_ms, past_ms
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.errors import UsageError
from deadletter.operations.records.records import LettersFound, Records

PATIENCE_S: Final = 10.0
"""So long a search that has to look inside letters goes on before it says how far it came."""
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilters:
    """As they were typed; None or empty: not said."""

    ids: Sequence[str] = ()
    queue: str | None = None
    origin: str | None = None
    group: str | None = None
    state: str | None = None
    cause: str | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    older_than: str | None = None
    headers: Sequence[str] = ()
    message_id: str | None = None
    text: str | None = None
    where: str | None = None

    @property
    def says_nothing(self) -> bool:
        return replace(self, state=None) == LetterFilters()

    async def query(self, records: Records, *, state: LetterState | None = LetterState.OPEN) -> LetterQuery:
        """`state`: where none was typed. Names of groups and letters are looked up."""
        now = now_ms()
        if self.until is not None and self.older_than is not None:
            raise UsageError("expected --until or --older-than, got both")
        until = None
        if self.until is not None:
            until = past_ms("--until", self.until, now)
        elif self.older_than is not None:
            until = past_ms("--older-than", self.older_than, now)
        if self.state is not None:
            state = None if self.state == "any" else word(LetterState, "--state", self.state, also="any")
        return LetterQuery(
            ids=tuple(dict.fromkeys([await letter_number(records, name) for name in self.ids])),
            queue=self.queue,
            origin=self.origin,
            group=None if self.group is None else await group_number(records, self.group),
            state=state,
            cause=self.cause,
            error=self.error,
            message_id=self.message_id,
            died_from_ms=None if self.since is None else past_ms("--since", self.since, now),
            died_until_ms=until,
            headers=tuple(_header(one) for one in self.headers),
            text=self.text,
            where=self.where,
        )


def word(kind: type[_Word], option: str, said: str, *, also: str = "") -> _Word:
    """A word of a closed set."""
    try:
        return kind(said)
    except ValueError:
        words = ", ".join([*(str(one) for one in kind), *([also] if also else [])])
        raise UsageError(f"{option}: expected one of {words}, got {said!r}") from None


async def group_number(records: Records, name: str) -> int:
    return int(name) if is_number(name) else (await records.group(name)).group.id


async def letter_number(records: Records, name: str) -> int:
    return int(name) if is_number(name) else (await records.letter(name)).letter.id


def is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 16


def order_of(said: str) -> LetterOrder:
    return word(LetterOrder, "--sort", said)


def _header(said: str) -> tuple[str, str]:
    name, equals, value = said.partition("=")
    if not name or not equals:
        raise UsageError(f"--header: expected name=value, with * for any run in the value, got {said!r}")
    return name, value


async def pages(records: Records, query: LetterQuery) -> AsyncIterator[LettersFound]:
    """Page after page, each going on where the last one ended, to the end."""
    while True:
        page = await records.letters(query)
        yield page
        if page.more is None:
            return
        query = replace(query, after=page.more)
