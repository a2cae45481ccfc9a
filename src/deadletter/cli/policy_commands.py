"""`dlq policy …` as typer sees it; the work is in `policy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deadletter.cli.options import ConfigFile, Json, UrlOption
from deadletter.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="Policies: list them, explain what they do to a letter.")


@app.command("list")
def policy_list(config: ConfigFile = None, as_json: Json = False) -> None:
    """Print the policies in the order in which they are asked; the default is the last."""
    from deadletter.cli import policy as command

    raise typer.Exit(command.list_policies(file=config, as_json=as_json))


@app.command("explain")
def policy_explain(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="LETTER.json",
            help="A letter as JSON (- for stdin): written by hand, or what the management API or "
            "`rabbitmqadmin get` returned.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="QUEUE", help="Or: the first letter of this queue; it stays there."),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(metavar="DLQ", help="With the mode and policies of the watch that takes this queue."),
    ] = None,
    broker_version: Annotated[
        str,
        typer.Option(
            metavar="3.10|4.3", help="With --file: which RabbitMQ it died on; 3.x trusts copied deaths."
        ),
    ] = "4",
    config: ConfigFile = None,
    url: UrlOption = None,
    as_json: Json = False,
) -> None:
    """Print what would happen to a letter and why, attempt by attempt; nothing is touched."""
    from deadletter.cli import policy as command

    if queue is not None and file is None:
        raise typer.Exit(
            command.explain_queue(queue=queue, watch=watch, file=config, url=url, as_json=as_json)
        )
    if file is None or queue is not None:
        raise UsageError("expected a letter to explain: either --file LETTER.json or --queue QUEUE")
    raise typer.Exit(
        command.explain_file(
            letter=file, watch=watch, broker_version=broker_version, file=config, as_json=as_json
        )
    )
