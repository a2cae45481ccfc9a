"""The commands beside those of `main`, registered when one of them, or the list of all, is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from deadletter.cli import config_options, queues_options, serve_options, waiting_options
from deadletter.cli.access import token_options
from deadletter.cli.archives import archive_options
from deadletter.cli.letters import group_options, letter_options
from deadletter.cli.policies import policy_options
from deadletter.cli.replays import edit_options, replay_options
from deadletter.cli.running import run_options
from deadletter.cli.terminal.options import Json, PrivateVersion
from deadletter.cli.topologies import topology_options


def add_commands(app: typer.Typer) -> None:
    """All of them, in the order of `dlq --help`."""
    app.command(short_help="The retry service: looks after dead-letter queues, for as long as it runs.")(
        serve_options.serve
    )
    app.command(short_help="Ask the running service to sweep dead-letter queues now.")(serve_options.sweep)
    app.command(short_help="Run the Consumer of a Python module, in one or more processes.")(run_options.run)
    app.command(short_help="Start a private RabbitMQ for trying things.")(broker)
    app.command(short_help="Watch it work, on a private broker.")(demo)
    app.add_typer(group_options.app)
    app.add_typer(letter_options.app)
    app.add_typer(replay_options.app)
    app.add_typer(edit_options.app)
    app.command("queues", short_help="List queues: how full, how old, who watches them.")(
        queues_options.queues
    )
    app.command("export", short_help="Write letters of the store or of a queue into a file.")(
        archive_options.export
    )
    app.command("import", short_help="Put the letters of an archive back.")(archive_options.import_)
    app.add_typer(config_options.app, name="config")
    app.add_typer(token_options.app, name="token")
    app.add_typer(policy_options.app, name="policy")
    app.add_typer(topology_options.app, name="topology")
    app.add_typer(waiting_options.app, name="waiting")


def broker(
    version: PrivateVersion = None,
    as_json: Json = False,
) -> None:
    """Start a private RabbitMQ, for trying things; it is gone without a trace when you end it (Ctrl-C)."""
    from deadletter.cli import broker_command as command

    raise typer.Exit(command.run(version=version, as_json=as_json))


def demo(
    letters: Annotated[
        int, typer.Option(min=10, max=1_000_000, metavar="N", help="How many orders shall fail.")
    ] = 5000,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="How long the page stays: 60s, 5min (until Ctrl-C on a terminal)."
        ),
    ] = None,
    version: PrivateVersion = None,
) -> None:
    """Watch it work: a private broker, orders that fail, dead letters moved back safely, and the page."""
    from deadletter.cli.demo import demo as command

    raise typer.Exit(command.run(letters=letters, version=version, page_s=command.page_seconds(for_)))
