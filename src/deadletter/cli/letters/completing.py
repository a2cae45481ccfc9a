"""What a shell offers when a person presses TAB: numbers of groups and letters, names of queues.

Asked of the service or the store, as the command itself would ask, but with little time; whatever goes wrong
offers nothing and says nothing: a shell has no place for an error there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from deadletter.core.letter.parking import Cause
from deadletter.core.text.safe_text import line

if TYPE_CHECKING:
    from deadletter.operations.records.records import Records

TIME_S: Final = 1.5
_OFFERED: Final = 50
_HELP_CHARS: Final = 60

Offer = tuple[str, str]


def groups(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Open groups by their number."""

    async def ask(records: Records) -> list[Offer]:
        from deadletter.core.grouping.group_query import GroupQuery

        page = await records.groups(GroupQuery(states=(), limit=200))
        return [(str(group.id), group.title) for group in page.groups]

    return _offered(ctx, incomplete, ask)


def letters(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The newest letters by their number; by their id when that is what was begun."""

    async def ask(records: Records) -> list[Offer]:
        from deadletter.core.grouping.letter_query import LetterQuery

        page = await records.letters(LetterQuery(state=None, limit=200))
        by_number = [(str(row.id), row.error or row.cause) for row in page.letters]
        by_id = [(row.letter_id, row.error or row.cause) for row in page.letters] if incomplete else []
        return by_number + by_id

    return _offered(ctx, incomplete, ask)


def queues(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Queues that letters were taken from."""
    return _offered(ctx, incomplete, lambda records: _facet(records, "queue"))


def origins(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Queues that letters failed in."""
    return _offered(ctx, incomplete, lambda records: _facet(records, "origin"))


def causes(incomplete: str) -> list[str]:
    return [cause.value for cause in Cause if cause.value.startswith(incomplete)]


async def _facet(records: Records, name: str) -> list[Offer]:
    from deadletter.core.grouping.letter_query import LetterQuery

    facets = await records.facets(LetterQuery(state=None))
    return [(facet.value, f"{facet.letters:,} letters") for facet in facets.by.get(name, ())]


def _offered(
    ctx: typer.Context, incomplete: str, ask: Callable[[Records], Awaitable[list[Offer]]]
) -> list[Offer]:
    try:
        with redirect_stderr(StringIO()):
            found = _asked(ctx, ask)
    except Exception:  # noqa: BLE001 -- a shell has no place for an error here
        return []
    # What a terminal would act on is offered to nobody: it could not be typed either.
    return [
        (value, line(said, _HELP_CHARS))
        for value, said in found
        if value.startswith(incomplete) and value == line(value)
    ][:_OFFERED]


def _asked(ctx: typer.Context, ask: Callable[[Records], Awaitable[list[Offer]]]) -> list[Offer]:
    import asyncio  # slow to load, as what follows

    from deadletter.cli.letters.record_options import RecordsWish
    from deadletter.operations.records.at_hand import records_at_hand

    said = ctx.params
    file = said.get("config")
    wish = RecordsWish(
        config=Path(file) if file is not None else None, store=said.get("store"), at=said.get("at")
    )

    async def main() -> list[Offer]:
        async with asyncio.timeout(TIME_S), records_at_hand(wish.whereabouts(prepare=False)) as records:
            return await ask(records)

    return asyncio.run(main())
