"""What a shell offers when a person presses TAB: numbers of groups and letters, names of queues.

A store that is a file is looked at itself, which takes no time. Any other, or a service that is named, is
asked as the command itself would ask, but not for long. Whatever goes wrong offers nothing and says nothing:
a shell has no place for an error there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from deadletter.core.letter.parking import Cause
from deadletter.core.text.safe_text import line
from deadletter.store.finding import quick_look

if TYPE_CHECKING:
    from deadletter.operations.records.at_hand import Whereabouts
    from deadletter.operations.records.records import Records

TIME_S: Final = 1.5
_OFFERED: Final = 100
_HELP_CHARS: Final = 60
_HARMLESS: Final = re.compile(r"[\w.@%+=,/][\w.@%+=,/:-]*")
"""A name that a shell takes for itself wherever it stands: bash puts it into the line as it is, and whoever
named a queue `x;reboot` would have it run. Others can be typed, in quotes."""
_ACTED_ON: Final = re.compile(r"[^\w .,/@=+%-]")
"""What a shell might act on in what is said of a name: zsh evaluates it."""

Offer = tuple[str, str]


def groups(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Groups by their number, the last to fail first."""

    async def ask(records: Records) -> list[Offer]:
        from deadletter.core.grouping.group_query import GroupQuery

        page = await records.groups(GroupQuery(states=(), limit=quick_look.SHOWN))
        return [(str(group.id), group.title) for group in page.groups]

    return _offered(ctx, incomplete, quick_look.GROUPS, ask)


def letters(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The newest letters by their number; by their id when that is what was begun."""

    async def ask(records: Records) -> list[Offer]:
        from deadletter.core.grouping.letter_query import LetterQuery

        page = await records.letters(LetterQuery(state=None, limit=quick_look.SHOWN))
        return [(name, row.error) for row in page.letters for name in (str(row.id), row.letter_id)]

    found = _offered(ctx, incomplete, quick_look.LETTERS, ask)
    return found if incomplete else [one for one in found if one[0].isdigit()]


def queues(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Queues that letters were taken from."""
    return _offered(ctx, incomplete, quick_look.QUEUES, lambda records: _facet(records, "queue"))


def origins(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Queues that letters failed in."""
    return _offered(ctx, incomplete, quick_look.ORIGINS, lambda records: _facet(records, "origin"))


def causes(incomplete: str) -> list[str]:
    return [cause.value for cause in Cause if cause.value.startswith(incomplete)]


def broker_queues(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Queues of the broker, as its management API knows them."""

    def ask() -> list[Offer]:
        import asyncio  # slow to load, as what follows

        from deadletter import config
        from deadletter.broker.management import list_queues

        said = ctx.params
        options = {"broker.url": said.get("url"), "broker.api": said.get("api")}
        broker = config.load(config=_file(ctx), options=options).broker

        async def main() -> list[Offer]:
            async with asyncio.timeout(TIME_S):
                found = await list_queues(broker.addresses[0], broker.api)
            return [(queue.name, queue.type) for queue in found if not queue.exclusive]

        return asyncio.run(main())

    return _quietly(ask, incomplete)


async def _facet(records: Records, name: str) -> list[Offer]:
    from deadletter.core.grouping.letter_query import LetterQuery

    facets = await records.facets(LetterQuery(state=None))
    return [(facet.value, f"{facet.letters:,} letters") for facet in facets.by.get(name, ())]


def _offered(
    ctx: typer.Context,
    incomplete: str,
    look: quick_look.NamesLook,
    ask: Callable[[Records], Awaitable[list[Offer]]],
) -> list[Offer]:
    async def ask_records(place: Whereabouts) -> list[Offer]:
        from deadletter.operations.records.at_hand import records_at_hand  # slow to load

        async with records_at_hand(place) as records:
            return await ask(records)

    return offered(ctx, incomplete, look, ask_records)


def offered(
    ctx: typer.Context,
    incomplete: str,
    look: quick_look.NamesLook,
    ask: Callable[[Whereabouts], Awaitable[list[Offer]]],
) -> list[Offer]:
    """What a store that is a file says itself; else what is answered there in time."""

    def find() -> list[Offer]:
        found = _looked(ctx, look)
        return _asked(ctx, ask) if found is None else found

    return _quietly(find, incomplete)


def _quietly(find: Callable[[], list[Offer]], incomplete: str) -> list[Offer]:
    try:
        with redirect_stderr(StringIO()):
            found = find()
    except Exception:  # noqa: BLE001 -- a shell has no place for an error here
        return []
    return [
        (value, _ACTED_ON.sub(" ", line(said, _HELP_CHARS)))
        for value, said in found
        if value.startswith(incomplete) and _HARMLESS.fullmatch(value)
    ][:_OFFERED]


def _looked(ctx: typer.Context, look: quick_look.NamesLook) -> list[Offer] | None:
    """What a store that is a file says itself; None: it is none, or a service was named."""
    if ctx.params.get("at") is not None:
        return None
    from deadletter import config  # slow to load, as what follows
    from deadletter.store.store_address import SqliteAddress, parse

    said = ctx.params
    settings = config.load(config=_file(ctx), options={"store.url": said.get("store")})
    url = settings.store.in_force(os.environ, Path.home())
    if url is None:
        return []
    address = parse(url)
    return quick_look.names_in(address, look) if isinstance(address, SqliteAddress) else None


def _file(ctx: typer.Context) -> Path | None:
    said = ctx.params.get("config")
    return None if said is None else Path(said)


def _asked(ctx: typer.Context, ask: Callable[[Whereabouts], Awaitable[list[Offer]]]) -> list[Offer]:
    import asyncio  # slow to load, as what follows

    from deadletter.cli.letters.record_options import RecordsWish

    said = ctx.params
    place = RecordsWish(config=_file(ctx), store=said.get("store"), at=said.get("at")).whereabouts(
        prepare=False
    )

    async def main() -> list[Offer]:
        async with asyncio.timeout(TIME_S):
            return await ask(place)

    return asyncio.run(main())
