"""`dlq letters, show, discard` as typer sees them; the work is in the modules beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.letter_filters import LetterFilters, StateFilters
from deadletter.cli.letters.record_options import NUMBER_MAX, ChangeWish, RecordsWish
from deadletter.cli.terminal.option_sets import with_option_sets
from deadletter.errors import UsageError

app: Final = typer.Typer()


@app.command(short_help="Find stored letters.")
@with_option_sets
def letters(
    *,
    filters: StateFilters,
    sort: Annotated[str, typer.Option(metavar="newest|oldest", help="By when they were stored.")] = "newest",
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many to list.")] = 25,
    after: Annotated[
        int | None,
        typer.Option(
            min=0, max=NUMBER_MAX, metavar="N", help="Go on after this letter: the last page said so."
        ),
    ] = None,
    facets: Annotated[
        bool, typer.Option("--facets", help="How many, by queue, origin, cause and group; lists none.")
    ] = False,
    wish: RecordsWish,
) -> None:
    """Find stored letters: all that is said must hold.

    A search that has to look inside letters (--header, --text, --where) takes at most some seconds; what is
    cut short says so, and where to go on.

    \b
    dlq letters --group 12
    dlq letters --origin orders --since 2h --text '"card declined"'
    dlq letters --header tenant=acme --header 'x-trace=*'
    dlq letters --where '.body.total > 1000 and .headers.tenant == "acme"'
    dlq letters --queue deadletter.parked --facets

    Exit codes: 0 done, 2 usage, 3 neither service nor store can be reached.
    """
    from deadletter.cli.letters import letters_command as command

    if facets:
        raise typer.Exit(command.count_letters(wish, filters))
    raise typer.Exit(command.list_letters(wish, filters, sort=sort, limit=limit, after=after))


@app.command(short_help="Everything about one stored letter.")
@with_option_sets
def show(
    *,
    letter: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Its number, or its id or the beginning of it.",
            autocompletion=completing.letters,
        ),
    ],
    body_bytes: Annotated[
        int, typer.Option(min=0, max=65_536, metavar="N", help="How much of the body to show.")
    ] = 4000,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the body alone to stdout, byte for byte.")
    ] = False,
    wish: RecordsWish,
) -> None:
    """Show one letter: what happened to it and when, why it is here, its error, headers, properties, body.

    \b
    dlq show 812
    dlq show 3f2a9c
    dlq show 812 --raw > body.bin

    Exit codes: 0 done, 2 usage or no such letter, 3 neither service nor store can be reached.
    """
    from deadletter.cli.letters import show_command as command

    if raw and wish.as_json:
        raise UsageError("expected --raw or --json, got both")
    if raw:
        raise typer.Exit(command.raw_body(wish, letter))
    raise typer.Exit(command.show(wish, letter, body_bytes=body_bytes))


@app.command(short_help="Throw stored letters away; --undo takes them back.")
@with_option_sets
def discard(
    *,
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID...",
            help="Numbers, or beginnings of ids; none: whatever the filters find.",
            autocompletion=completing.letters,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without, it only says what it would do.")
    ] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo", help="Take discarded letters back; where none are named, those of your last discard."
        ),
    ] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the audit.")] = "",
    filters: LetterFilters,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most this many.")] = None,
    wish: ChangeWish,
) -> None:
    """Throw stored letters away: those named, or all that the filters find (as of dlq letters).

    Without --yes nothing is changed: it says how many they are and shows some. What is discarded is exactly
    what was found at the start; it is audited with your name, and can be taken back until its retention is
    over.

    \b
    dlq discard --group 12 --older-than 30d
    dlq discard --group 12 --older-than 30d --yes --why 'customers were called'
    dlq discard 812 813 --yes
    dlq discard --undo                 what you discarded last
    dlq discard --undo 812 --yes

    Exit codes: 0 done, 1 some were not changed, 2 usage, 3 neither service nor store can be reached.
    """
    from deadletter.cli.letters import discard_command as command

    filters = replace(filters, ids=[*(filters.ids or ()), *(named or ())] or None)
    wanted = command.DiscardWish(filters=filters, undo=undo, yes=yes, why=why, limit=limit)
    raise typer.Exit(command.run(wish, wanted))
