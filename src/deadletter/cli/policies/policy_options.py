"""`dlq policy …` as typer sees it; the work is in `policy_command` and `policy_store`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from deadletter.cli.terminal.options import ConfigFile, Json, StoreOption, UrlOption
from deadletter.errors import UsageError

app: Final = typer.Typer(
    no_args_is_help=True, help="Policies: list, set and remove them, explain what they do to a letter."
)


@app.command("list")
def policy_list(config: ConfigFile = None, store: StoreOption = None, as_json: Json = False) -> None:
    """Print the policies in the order in which they are asked: the store's table, the file, the default.

    Rows of the table that cannot be a policy are listed with the reason. A store that is not there yet is not
    created. Exit codes: 0 done, 2 usage, 3 the store cannot be reached (the file's policies are printed).
    """
    from deadletter.cli.policies import policy_command as command

    raise typer.Exit(command.list_policies(file=config, store=store, as_json=as_json))


_RoutingKey = Annotated[
    str,
    typer.Argument(
        metavar="ROUTING_KEY",
        help="The key letters first came by; * for one word, # for any number of words.",
    ),
]


@app.command("set")
def policy_set(
    routing_key: _RoutingKey,
    max_retries: Annotated[
        int, typer.Argument(metavar="MAX_RETRIES", help="How often they go back; 0: parked at once.")
    ],
    config: ConfigFile = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Write to the store's table how often letters of a routing key go back; it wins over the file.

    In force within 2 s in every `dlq serve` on this store. Without a store in the settings: a file of your
    own, which `dlq serve` then uses too. Exit codes: 0 done, 2 usage, 3 the store cannot be reached.
    """
    from deadletter.cli.policies import policy_store as command

    raise typer.Exit(
        command.set_retries(
            routing_key=routing_key, max_retries=max_retries, file=config, store=store, as_json=as_json
        )
    )


@app.command("remove")
def policy_remove(
    routing_key: _RoutingKey, config: ConfigFile = None, store: StoreOption = None, as_json: Json = False
) -> None:
    """Remove a routing key from the store's table; then the file's policies decide.

    Exit codes: 0 done, 1 there was none, 2 usage, 3 the store cannot be reached.
    """
    from deadletter.cli.policies import policy_store as command

    raise typer.Exit(command.remove(routing_key=routing_key, file=config, store=store, as_json=as_json))


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
    from deadletter.cli.policies import policy_command as command

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
