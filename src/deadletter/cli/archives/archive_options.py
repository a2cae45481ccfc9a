"""The options of `dlq export` and `dlq import`. The work is in `export_command` and `import_command`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deadletter.cli.terminal.options import ApiOption, ConfigFile, Json, LiftLimit, StoreOption, UrlOption


def export(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A name that ends in .dlq: an archive. None: lines to stdout."),
    ] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--lines", help="An exact archive, or lines of JSON for reading.")
    ] = None,
    from_queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Export this queue's letters, not the store's.")
    ] = None,
    take: Annotated[
        bool, typer.Option("--take", help="Take each out of the queue once it is safe on the disk.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an archive whose --take did not come to its end.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Stored from this queue.")] = None,
    origin: Annotated[str | None, typer.Option(metavar="QUEUE", help="That failed in this queue.")] = None,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Of this group.")] = None,
    state: Annotated[
        str | None, typer.Option(metavar="open|discarded|any", help="In this state (open).")
    ] = None,
    cause: Annotated[str | None, typer.Option(metavar="CAUSE", help="Parked for this cause.")] = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="With this in their error.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Died since: 2h, 3d, 2025-06-01T12:00.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Died before: the same.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="With this header; * for any run.")
    ] = None,
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="With this message id.")] = None,
    text: Annotated[
        str | None, typer.Option(metavar="WORDS", help="With these words in body, headers or error.")
    ] = None,
    lift_limit: LiftLimit = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Write letters of the store, or of a queue, into a file.

    An archive (FILE ends in .dlq) restores every letter byte for byte: dlq import. Lines of JSON, one letter
    a line, are for grep, jq and eyes: they cannot be imported. The file is there when it is whole, for its
    owner alone, and replaces no other without --force.

    Letters of a queue stay in it, unless --take is said.
    """
    from deadletter.cli.archives import export_command as command
    from deadletter.cli.archives.store_at_hand import Selection

    wish = command.ExportWish(
        path=None if path is None or str(path) == "-" else path,
        archive=archive,
        from_queue=from_queue,
        take=take,
        resume=resume,
        force=force,
        limit=limit,
        selection=Selection(
            queue=queue,
            origin=origin,
            group=group,
            state=state,
            cause=cause,
            error=error,
            since=since,
            until=until,
            headers=tuple(header or ()),
            message_id=message_id,
            text=text,
        ),
        lift_limit=lift_limit,
        file=config,
        url=url,
        api=api,
        store=store,
        as_json=as_json,
    )
    raise typer.Exit(command.run(wish))


def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that dlq export made.")],
    to_queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Publish them to this queue alone.")
    ] = None,
    to_exchange: Annotated[
        str | None, typer.Option(metavar="NAME", help="Publish them to this exchange.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --to-exchange: this routing key (each its own).")
    ] = None,
    to_store: Annotated[bool, typer.Option("--to-store", help="Put them into the store.")] = False,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Go on after letter N of the archive.")
    ] = None,
    letters: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Only these letters of it: 3,7,100-200,1000-.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read it to its end, say what is whole; import nothing.")
    ] = False,
    who: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who does it, for the store's audit.")
    ] = None,
    config: ConfigFile = None,
    url: UrlOption = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Put the letters of an archive into a queue, through an exchange, or into the store.

    Each is published as it was, property by property, mandatory and confirmed; the archive stays. What did
    not arrive is named at the end, with the option that goes on there. Into the store nothing goes twice. Of
    a damaged archive, what is whole is imported and the damage is told.
    """
    from deadletter.cli.archives import import_command as command

    wish = command.ImportWish(
        path=path,
        to_queue=to_queue,
        to_exchange=to_exchange,
        key=key,
        to_store=to_store,
        after=after,
        letters=letters,
        dry_run=dry_run,
        who=who,
        file=config,
        url=url,
        store=store,
        as_json=as_json,
    )
    raise typer.Exit(command.run(wish))
