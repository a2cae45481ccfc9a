"""The options of `dlq export` and `dlq import`. The work is in `export_command` and `import_command`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.letter_filters import StateFilters
from deadletter.cli.letters.record_options import ChangeWish, RecordsWish
from deadletter.cli.terminal.option_sets import with_option_sets
from deadletter.cli.terminal.options import ApiOption, LiftLimit, UrlOption


@with_option_sets
def export(
    *,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A name that ends in .dlq: an archive. None: lines to stdout."),
    ] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--lines", help="An exact archive, or lines of JSON for reading.")
    ] = None,
    from_queue: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Export this queue's letters, not the store's.",
            autocompletion=completing.broker_queues,
        ),
    ] = None,
    take: Annotated[
        bool, typer.Option("--take", help="Take each out of the queue once it is safe on the disk.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an archive whose --take did not come to its end.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    filters: StateFilters,
    lift_limit: LiftLimit = False,
    url: UrlOption = None,
    api: ApiOption = None,
    records: RecordsWish,
) -> None:
    """Write letters of the store, or of a queue, into a file.

    An archive (FILE ends in .dlq) restores every letter byte for byte: dlq import. Lines of JSON, one letter
    a line, are for grep, jq and eyes: they cannot be imported. The file is there when it is whole, for its
    owner alone, and replaces no other without --force.

    Letters of a queue stay in it, unless --take is said.

    \b
    dlq export letters.dlq --group 12
    dlq export --where '.body.total > 1000' | jq -r .body.order_id
    dlq export dead.dlq --from-queue orders.dlq

    Exit codes: 0 done, 1 not all of it, 2 usage, 3 the broker, or neither service nor store, can be reached.
    """
    from deadletter.cli.archives import export_command as command

    wish = command.ExportWish(
        path=None if path is None or str(path) == "-" else path,
        archive=archive,
        from_queue=from_queue,
        take=take,
        resume=resume,
        force=force,
        limit=limit,
        filters=filters,
        lift_limit=lift_limit,
        url=url,
        api=api,
        records=records,
    )
    raise typer.Exit(command.run(wish))


@with_option_sets
def import_(
    *,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that dlq export made.")],
    to_queue: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Publish them to this queue alone.",
            autocompletion=completing.broker_queues,
        ),
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
    url: UrlOption = None,
    records: ChangeWish,
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
        url=url,
        records=records,
    )
    raise typer.Exit(command.run(wish))
