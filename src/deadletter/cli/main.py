"""The command `dlq`: its commands, its errors, its exit codes.

Commands import what they need when they run, so that `dlq --help` is there at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from deadletter import __version__
from deadletter.cli.exits import Exit, exit_for
from deadletter.errors import DeadletterError

app = typer.Typer(
    name="dlq",
    help="Makes failed RabbitMQ messages come back, without losing or multiplying one.",
    epilog="Exit codes: 0 done, 1 something was left or refused, 2 usage, 3 cannot reach the broker.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: half the time, and it pipes
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Url = Annotated[
    str,
    typer.Option(
        envvar="DLQ_URL",
        metavar="URL",
        help="Broker: amqp://user:password@host:5672/vhost (amqps:// for TLS, %2F for a slash in the vhost); "
        "several hosts of one cluster separated by commas.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dlq {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What all commands share."""


@app.command(short_help="Move letters from one queue to another, safely.")
def move(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The queue to take letters from.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The queue to put them into; it must exist.")
    ],
    url: Url = DEFAULT_URL,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Move at most this many letters.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="Move no faster than this: 500/s, 30/min, 10/h.")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop after this time: 90s, 15min, 2h.")
    ] = None,
    keep_deaths: Annotated[
        bool,
        typer.Option(
            "--keep-deaths",
            help="Leave x-death headers on the letters. Right for a parking queue; on RabbitMQ 3.x a queue "
            "that dead-letters may drop such a letter as a cycle. By default they are set aside under "
            "deadletter-deaths.",
        ),
    ] = False,
    prefetch: Annotated[
        int, typer.Option(min=1, max=65535, metavar="N", help="How many letters to hold at once, at most.")
    ] = 1000,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be moved; touch nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move letters from one queue to another: confirmed there before they leave here.

    Takes what is in SOURCE at the start (later arrivals stay), publishes each letter persistent, mandatory
    and confirmed, and only then removes it from SOURCE. A letter the target does not take stays where it
    is. Ctrl-C ends it in good order.
    """
    from deadletter.cli import move as command

    raise typer.Exit(
        command.run(
            command.Wish(
                source=source,
                target=target,
                url=url,
                limit=limit,
                rate=rate,
                for_=for_,
                keep_deaths=keep_deaths,
                prefetch=prefetch,
                dry_run=dry_run,
                as_json=as_json,
            )
        )
    )


@app.command(short_help="Start a private RabbitMQ for trying things.")
def broker(
    version: Annotated[
        str | None,
        typer.Option(metavar="3.10|4.0|4.3", help="Which version, of those fetched with `make brokers`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a private RabbitMQ, for trying things; it is gone without a trace when you end it (Ctrl-C)."""
    from deadletter.cli import broker as command

    raise typer.Exit(command.run(version=version, as_json=as_json))


@app.command(short_help="Watch it work, on a private broker.")
def demo(
    letters: Annotated[
        int, typer.Option(min=10, max=1_000_000, metavar="N", help="How many orders shall fail.")
    ] = 5000,
    version: Annotated[
        str | None,
        typer.Option(metavar="3.10|4.0|4.3", help="Which version, of those fetched with `make brokers`."),
    ] = None,
) -> None:
    """Watch it work: a private broker, orders that fail, and dead letters moved back safely."""
    from deadletter.cli import demo as command

    raise typer.Exit(command.run(letters=letters, version=version))


def main() -> None:
    """The entry point: any error of ours is one line on stderr and an exit code, never a traceback."""
    try:
        app()
    except DeadletterError as error:
        sys.stderr.write(f"dlq: {error}\n")
        sys.exit(exit_for(error))
    except BrokenPipeError:
        sys.exit(Exit.LEFT)


if __name__ == "__main__":
    main()
