"""Which stored letters: the options of every command that selects some, as one question to the records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.record_options import OriginFilter
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.letter.moments import past_ms
from deadletter.errors import UsageError

if TYPE_CHECKING:
    from deadletter.operations.records.records import LettersFound, Records

PATIENCE_S: Final = 10.0
"""So long a search that has to look inside letters goes on before it says how far it came."""
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilters:
    """As they were typed; None: not said. All that is said must hold."""

    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="QUEUE", help="Taken from this queue.", autocompletion=completing.queues
        ),
    ] = None
    origin: OriginFilter = None
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Of this group.", autocompletion=completing.groups),
    ] = None
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="With this text in the error, in any case.")
    ] = None
    cause: Annotated[
        str | None,
        typer.Option(
            "--cause", metavar="CAUSE", help="Put aside for this.", autocompletion=completing.causes
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Died since: 2h (ago), or 2025-06-01T12:00 UTC."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Died before: 2h (ago), or a time.")
    ] = None
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="SPAN", help="Died longer ago than this: 30d.")
    ] = None
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="NAME=VALUE", help="With this header; * for any run. May be repeated."
        ),
    ] = None
    message_id: Annotated[
        str | None, typer.Option("--message-id", metavar="ID", help="With this message-id property.")
    ] = None
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Number, or the beginning of an id; may be repeated.",
            autocompletion=completing.letters,
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="WORDS",
            help="With these words in body, headers, ids or error; quoted: as it is.",
        ),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="JQ",
            help="For which this jq program over {body, headers, properties} is true.",
        ),
    ] = None

    @property
    def says_nothing(self) -> bool:
        return self == type(self)()

    async def query(self, records: Records, *, state: LetterState | None = LetterState.OPEN) -> LetterQuery:
        """Names of groups and letters are looked up."""
        from deadletter.cli.letters.asking import now_ms  # slow to load

        now = now_ms()
        for option, said in (("--error", self.error), ("--text", self.text)):
            if said is not None and not said.strip():  # a script's empty variable: it would mean all letters
                raise UsageError(f"{option}: expected some text, got nothing")
        if self.until is not None and self.older_than is not None:
            raise UsageError("expected --until or --older-than, got both")
        until = None
        if self.until is not None:
            until = past_ms("--until", self.until, now)
        elif self.older_than is not None:
            until = past_ms("--older-than", self.older_than, now)
        return LetterQuery(
            ids=tuple(dict.fromkeys([await letter_number(records, name) for name in self.ids or ()])),
            queue=self.queue,
            origin=self.origin,
            group=None if self.group is None else await group_number(records, self.group),
            state=state,
            cause=self.cause,
            error=self.error,
            message_id=self.message_id,
            died_from_ms=None if self.since is None else past_ms("--since", self.since, now),
            died_until_ms=until,
            headers=tuple(_header(one) for one in self.headers or ()),
            text=self.text,
            where=self.where,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFilters(LetterFilters):
    """The same, of letters in a state; where none was said, of open ones."""

    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="open|discarded|claimed|replayed|any",
            help="In this state (open). claimed: in a replay; replayed: sent by one.",
        ),
    ] = None

    async def of_state(self, records: Records) -> LetterQuery:
        said = LetterState.OPEN.value if self.state is None else self.state
        state = None if said == "any" else word(LetterState, "--state", said, also="any")
        return await self.query(records, state=state)


def word(kind: type[_Word], option: str, said: str, *, also: str = "") -> _Word:
    """A word of a closed set."""
    try:
        return kind(said)
    except ValueError:
        words = ", ".join([*(str(one) for one in kind), *([also] if also else [])])
        raise UsageError(f"{option}: expected one of {words}, got {said!r}") from None


async def group_number(records: Records, name: str) -> int:
    """Of the group that is called so; of one that was merged into another, that one's. NotStored: none is."""
    return (await records.group(name)).group.id


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
