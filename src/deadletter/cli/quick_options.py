"""Options of `dlq move, check, peek, doctor`: typed by somebody who was woken.

Commands import what they need when they run, so that `dlq --help` is there at once. Those here do not wait
for the options of all the others either (`more_commands`), and where they are typed plainly not even for
these (`plain_words`, which has to know the same options).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from deadletter import __version__
from deadletter.cli.plain_words import WINDOW
from deadletter.cli.terminal.options import ApiOption, ConfigFile, Json, LiftLimit, Prefetch, UrlOption

app: Final = typer.Typer(
    name="dlq",
    help="Makes failed RabbitMQ messages come back, without losing or multiplying one.",
    epilog="Exit codes: 0 done, 1 something was left or refused, 2 usage, 3 cannot reach broker or store.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: half the time, and it pipes
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def broker_queues(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """For completion alone, so imported then."""
    from deadletter.cli.letters import completing

    return completing.broker_queues(ctx, incomplete)


@app.command(short_help="Move letters from one queue to another, safely.")
def move(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Where to take letters from.", autocompletion=broker_queues),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A queue that exists.", autocompletion=broker_queues)
    ],
    config: ConfigFile = None,
    url: UrlOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Move at most this many letters.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="Move no faster than this: 500/s, 30/min, 10/h.")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop after this time: 90, 15min, 1h30m.")
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
    prefetch: Prefetch = WINDOW,
    lift_limit: LiftLimit = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be moved; touch nothing.")
    ] = False,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Move letters from one queue to another: confirmed there before they leave here.

    Takes what is in SOURCE at the start (later arrivals stay), publishes each letter persistent, mandatory
    and confirmed, and only then removes it from SOURCE. A letter the target does not take stays where it
    is. Ctrl-C ends it in good order. A letter whose next return would destroy it is never given back.
    """
    from deadletter.cli import move_command as command

    raise typer.Exit(
        command.run(
            command.MoveWish(
                source=source,
                target=target,
                file=config,
                url=url,
                limit=limit,
                rate=rate,
                for_=for_,
                keep_deaths=keep_deaths,
                prefetch=prefetch,
                api=api,
                lift_limit=lift_limit,
                dry_run=dry_run,
                as_json=as_json,
            )
        )
    )


@app.command(short_help="Move what died too often to a queue for permanent failures.")
def check(
    dlq: Annotated[
        str | None,
        typer.Option(
            "--dlq", metavar="PATTERN", help="Dead letter queues: a name, or a pattern such as 'dlq.*'."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Where they go: 'dead.*' puts what the star stood for in its place."
        ),
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Move letters with a count above this.")
    ] = None,
    count_by: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="What is counted: first (the newest x-death entry), sum, reason:rejected, queue:NAME, "
            "own (deadletter-attempt), header:x-retry-count.",
        ),
    ] = None,
    create: Annotated[
        bool | None, typer.Option("--create/--no-create", help="Create targets that are missing.")
    ] = None,
    target_type: Annotated[
        str | None, typer.Option(metavar="quorum|classic", help="The type of targets that are created.")
    ] = None,
    prefetch: Prefetch = WINDOW,
    lift_limit: LiftLimit = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be moved; create and move nothing.")
    ] = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Look at every letter in dead letter queues once, and move what died too often. Made for cron.

    A letter whose count is above --max-retries goes to its target, confirmed there before it leaves; the
    others stay. The management API is needed only when --dlq has a star; else it is asked for the delivery
    limit, where it answers. Whatever is in doubt about names is refused before anything moves.
    """
    from deadletter.cli import check_command as command

    raise typer.Exit(
        command.run(
            dlq=dlq,
            target=target,
            max_retries=max_retries,
            count_by=count_by,
            create=create,
            target_type=target_type,
            prefetch=prefetch,
            lift_limit=lift_limit,
            dry_run=dry_run,
            file=config,
            url=url,
            api=api,
            as_json=as_json,
        )
    )


@app.command(short_help="Look at letters without keeping one.")
def peek(
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue to look into.", autocompletion=broker_queues)
    ],
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many letters to show.")] = 5,
    body_bytes: Annotated[
        int, typer.Option(min=0, max=16_000_000, metavar="N", help="How much of each body to show.")
    ] = 2000,
    lift_limit: LiftLimit = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Show the first letters of a queue: deaths, origin, error, body, deliveries left. They stay there.

    Where a look costs a letter one of its deliveries (quorum queues on RabbitMQ 4.0 to 4.2) that is said,
    and no letter's last ones are spent. The limit is asked of the management API, where it answers.
    """
    from deadletter.cli import peek_command as command

    raise typer.Exit(
        command.run(
            queue=queue,
            limit=limit,
            body_bytes=body_bytes,
            lift_limit=lift_limit,
            file=config,
            url=url,
            api=api,
            as_json=as_json,
        )
    )


@app.command(short_help="Find where letters can be lost, multiplied or stuck here.")
def doctor(
    definitions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Examine exported definitions (rabbitmqctl export_definitions), offline."
        ),
    ] = None,
    vhost: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --definitions: this vhost only (all).")
    ] = None,
    broker_version: Annotated[
        str | None,
        typer.Option(metavar="4.3.6", help="With --definitions: as it would be on this RabbitMQ."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Leave this rule out; may be repeated, or several with commas."),
    ] = None,
    at_least: Annotated[
        str, typer.Option(metavar="error|warning|note", help="Show findings of this severity or worse.")
    ] = "note",
    form: Annotated[
        str, typer.Option("--format", metavar="text|json|sarif", help="How to print the findings.")
    ] = "text",
    rules: Annotated[bool, typer.Option("--rules", help="Explain every rule, and examine nothing.")] = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Examine exchanges, queues, bindings and policies: where can a letter be lost, multiplied, stuck, spun?

    Each finding shows the path as a witness, why it hurts, and the fix. Reads the management API (changes
    nothing) or a definitions file. Exit codes: 0 clean, 1 findings, 2 usage, 3 cannot reach.
    """
    from deadletter.cli import doctor_command as command

    raise typer.Exit(
        command.run(
            command.DoctorWish(
                definitions=definitions,
                vhost=vhost,
                broker_version=broker_version,
                ignore=ignore or (),
                at_least=at_least,
                format=form,
                rules=rules,
                file=config,
                url=url,
                api=api,
                as_json=as_json,
            )
        )
    )
