"""`dlq letters, show, discard` as typer sees them; the work is in the modules beside it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.record_options import (
    AsOption,
    AtOption,
    CauseFilter,
    ErrorFilter,
    GroupFilter,
    HeaderFilter,
    MessageIdFilter,
    OlderFilter,
    OriginFilter,
    QueueFilter,
    SinceFilter,
    TextFilter,
    UntilFilter,
    WhereFilter,
)
from deadletter.cli.terminal.options import ConfigFile, Json, StoreOption
from deadletter.errors import UsageError

app: Final = typer.Typer()


@app.command(short_help="Find stored letters.")
def letters(
    queue: QueueFilter = None,
    origin: OriginFilter = None,
    group: GroupFilter = None,
    state: Annotated[
        str | None, typer.Option(metavar="open|discarded|any", help="Which ones (open).")
    ] = None,
    error: ErrorFilter = None,
    cause: CauseFilter = None,
    since: SinceFilter = None,
    until: UntilFilter = None,
    older_than: OlderFilter = None,
    header: HeaderFilter = None,
    message_id: MessageIdFilter = None,
    id_: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Number, or the beginning of an id; may be repeated.",
            autocompletion=completing.letters,
        ),
    ] = None,
    text: TextFilter = None,
    where: WhereFilter = None,
    sort: Annotated[str, typer.Option(metavar="newest|oldest", help="By when they were stored.")] = "newest",
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many to list.")] = 25,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Go on after this letter: the last page said so.")
    ] = None,
    facets: Annotated[
        bool, typer.Option("--facets", help="How many, by queue, origin, cause and group; lists none.")
    ] = False,
    config: ConfigFile = None,
    store: StoreOption = None,
    at: AtOption = None,
    as_json: Json = False,
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
    from deadletter.cli.letters.asking import RecordsWish
    from deadletter.cli.letters.letter_filters import LetterFilters

    wish = RecordsWish(file=config, store=store, at=at, as_json=as_json)
    filters = LetterFilters(
        ids=id_ or (),
        queue=queue,
        origin=origin,
        group=group,
        state=state,
        cause=cause,
        error=error,
        since=since,
        until=until,
        older_than=older_than,
        headers=header or (),
        message_id=message_id,
        text=text,
        where=where,
    )
    if facets:
        raise typer.Exit(command.count_letters(wish, filters))
    raise typer.Exit(command.list_letters(wish, filters, sort=sort, limit=limit, after=after))


@app.command(short_help="Everything about one stored letter.")
def show(
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
    config: ConfigFile = None,
    store: StoreOption = None,
    at: AtOption = None,
    as_json: Json = False,
) -> None:
    """Show one letter: what happened to it and when, why it is here, its error, headers, properties, body.

    \b
    dlq show 812
    dlq show 3f2a9c
    dlq show 812 --raw > body.bin

    Exit codes: 0 done, 2 usage or no such letter, 3 neither service nor store can be reached.
    """
    from deadletter.cli.letters import show_command as command
    from deadletter.cli.letters.asking import RecordsWish

    wish = RecordsWish(file=config, store=store, at=at, as_json=as_json)
    if raw and as_json:
        raise UsageError("expected --raw or --json, got both")
    if raw:
        raise typer.Exit(command.raw_body(wish, letter))
    raise typer.Exit(command.show(wish, letter, body_bytes=body_bytes))


@app.command(short_help="Throw stored letters away; --undo takes them back.")
def discard(
    ids: Annotated[
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
    undo: Annotated[bool, typer.Option("--undo", help="Take discarded letters back.")] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the audit.")] = "",
    queue: QueueFilter = None,
    origin: OriginFilter = None,
    group: GroupFilter = None,
    error: ErrorFilter = None,
    cause: CauseFilter = None,
    since: SinceFilter = None,
    until: UntilFilter = None,
    older_than: OlderFilter = None,
    header: HeaderFilter = None,
    message_id: MessageIdFilter = None,
    text: TextFilter = None,
    where: WhereFilter = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most this many.")] = None,
    as_: AsOption = None,
    config: ConfigFile = None,
    store: StoreOption = None,
    at: AtOption = None,
    as_json: Json = False,
) -> None:
    """Throw stored letters away: those named, or all that the filters find (as of dlq letters).

    Without --yes nothing is changed: it says how many they are and shows some. What is discarded is exactly
    what was found at the start; it is audited with your name, and can be taken back until its retention is
    over.

    \b
    dlq discard --group 12 --older-than 30d
    dlq discard --group 12 --older-than 30d --yes --why 'customers were called'
    dlq discard 812 813 --yes
    dlq discard --undo 812 --yes

    Exit codes: 0 done, 1 some were not changed, 2 usage, 3 neither service nor store can be reached.
    """
    from deadletter.cli.letters import discard_command as command
    from deadletter.cli.letters.asking import RecordsWish
    from deadletter.cli.letters.letter_filters import LetterFilters

    wish = RecordsWish(file=config, store=store, at=at, as_json=as_json, who=as_)
    filters = LetterFilters(
        ids=ids or (),
        queue=queue,
        origin=origin,
        group=group,
        cause=cause,
        error=error,
        since=since,
        until=until,
        older_than=older_than,
        headers=header or (),
        message_id=message_id,
        text=text,
        where=where,
    )
    wanted = command.DiscardWish(filters=filters, undo=undo, yes=yes, why=why, limit=limit)
    raise typer.Exit(command.run(wish, wanted))
