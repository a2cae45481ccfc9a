"""The options of `dlq queues`. The work is in `queues_command`."""

from __future__ import annotations

from typing import Annotated

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.terminal.option_sets import with_option_sets
from deadletter.cli.terminal.options import ApiOption, UrlOption


@with_option_sets
def queues(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUEUE]...",
            help="These alone; * for any run of characters.",
            autocompletion=completing.broker_queues,
        ),
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only those that dead letters come into.")] = False,
    sort: Annotated[
        str, typer.Option(metavar="name|depth|age|in|out|growth", help="In this order.")
    ] = "name",
    watch: Annotated[
        str | None, typer.Option(metavar="TIME", help="Look twice, so far apart, and say what changed: 10s.")
    ] = None,
    url: UrlOption = None,
    api: ApiOption = None,
    records: RecordsWish,
) -> None:
    """List queues: how full, how old, how busy, whose dead letters, who watches them, since when they grow,
    which of them [desk] takes into the store and how many letters of them are there.

    Reads the management API; without it, queues that are named or configured are asked over AMQP for what
    that tells. What is not known is a question mark. No letter is touched.
    """
    from deadletter.cli import queues_command as command

    raise typer.Exit(
        command.run(
            command.QueuesWish(
                names=names or (),
                dead=dead,
                sort=sort,
                watch=watch,
                url=url,
                api=api,
                records=records,
            )
        )
    )
