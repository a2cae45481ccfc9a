"""The commands of `dlq topology`, with their options and help. What they do: `topology_command`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from deadletter.cli.terminal.options import ApiOption, ConfigFile, Json, UrlOption

app: Final = typer.Typer(
    no_args_is_help=True, help="Exchanges, queues, bindings and policies: plan, compare, declare, draw them."
)

LayoutOption = Annotated[
    str,
    typer.Option(
        metavar="return|levels|sweep|ladder|loop|native|auto",
        help="The shape; return (ours: shared delays, a way back per queue) is right unless you know better.",
    ),
]
QueueOption = Annotated[
    str, typer.Option("--queue", metavar="QUEUE", help="The application's queue whose letters die.")
]
RetriesOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="How many retries (5, or as many as --backoff lists)."),
]
BackoffOption = Annotated[
    str | None,
    typer.Option(
        metavar="DELAYS",
        help="1s,5s,30s or linear:10s..5min or exponential:1s..10min (the default policy's back-off).",
    ),
]
AlsoOption = Annotated[
    str | None,
    typer.Option(
        "--also",
        metavar="DELAYS",
        help="Further delays that must be there, of jitter or error rules: 90s,2min.",
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="NAME", help="Retries and back-off of this policy of the settings file."
    ),
]
DeclareOption = Annotated[
    bool,
    typer.Option("--declare-queue", help="The application's queue belongs to the plan, too."),
]
QueueTypeOption = Annotated[
    str,
    typer.Option(
        metavar="quorum|classic", help="The type of the application's queue, where it is not there yet."
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there and not to stdout.")
]


@app.command(short_help="Print what a layout would declare.")
def plan(
    queue: QueueOption,
    layout: LayoutOption = "auto",
    retries: RetriesOption = None,
    backoff: BackoffOption = None,
    also: AlsoOption = None,
    policy: PolicyOption = None,
    declare_queue: DeclareOption = False,
    queue_type: QueueTypeOption = "quorum",
    broker_version: Annotated[
        str | None,
        typer.Option(metavar="4.3.6", help="For this RabbitMQ, and ask none (the one at --url is asked)."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="table|json|definitions|mermaid|svg", help="How to print it.")
    ] = "table",
    output: OutputOption = None,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Print what a layout would declare for a queue; nothing is touched.

    As a table, as JSON, as definitions for `rabbitmqctl import_definitions`, or as a picture: Mermaid text
    or an SVG file. With --broker-version no broker is asked; without it the plan takes care of what is there.
    """
    from deadletter.cli.topologies import topology_command as command

    wish = command.PlanWish(
        layout=layout,
        queue=queue,
        retries=retries,
        backoff=backoff,
        also=also,
        policy=policy,
        declare_queue=declare_queue,
        queue_type=queue_type,
        file=config,
        options={"broker.url": url, "broker.api": api},
    )
    raise typer.Exit(
        command.print_plan(
            wish, broker_version=broker_version, form="json" if as_json else form, output=output
        )
    )


@app.command(short_help="Compare a plan with the broker.")
def diff(
    queue: QueueOption,
    layout: LayoutOption = "auto",
    retries: RetriesOption = None,
    backoff: BackoffOption = None,
    also: AlsoOption = None,
    policy: PolicyOption = None,
    declare_queue: DeclareOption = False,
    queue_type: QueueTypeOption = "quorum",
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """List what is missing or different on the broker, each with the exact steps to put it right.

    Only what the plan names is compared; nothing is touched. Exit codes: 0 all is as planned, 1 something
    differs.
    """
    from deadletter.cli.topologies import topology_command as command

    wish = command.PlanWish(
        layout=layout,
        queue=queue,
        retries=retries,
        backoff=backoff,
        also=also,
        policy=policy,
        declare_queue=declare_queue,
        queue_type=queue_type,
        file=config,
        options={"broker.url": url, "broker.api": api},
    )
    raise typer.Exit(command.print_diff(wish, as_json=as_json))


@app.command(short_help="Declare what is missing; migrate only if asked.")
def apply(
    queue: QueueOption,
    layout: LayoutOption = "auto",
    retries: RetriesOption = None,
    backoff: BackoffOption = None,
    also: AlsoOption = None,
    policy: PolicyOption = None,
    declare_queue: DeclareOption = False,
    queue_type: QueueTypeOption = "quorum",
    migrate: Annotated[
        bool,
        typer.Option(
            "--migrate",
            help="Replace queues whose frozen arguments differ, with their letters, and set policies that "
            "differ. Whoever publishes to such a queue by its name finds none for a moment.",
        ),
    ] = False,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="With --migrate: move no faster than this.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; touch nothing.")
    ] = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Declare what is missing. Deletes nothing, changes nothing that is there; twice is as good as once.

    What differs is reported with the steps, and the rest is declared all the same. With --migrate the steps
    are performed: a new queue, the safe move, the swap. An interrupted migration goes on when this is run
    again. Exit codes: 0 all is as planned, 1 something differs or was refused.
    """
    from deadletter.cli.topologies import topology_command as command

    wish = command.PlanWish(
        layout=layout,
        queue=queue,
        retries=retries,
        backoff=backoff,
        also=also,
        policy=policy,
        declare_queue=declare_queue,
        queue_type=queue_type,
        file=config,
        options={"broker.url": url, "broker.api": api},
    )
    raise typer.Exit(command.run_apply(wish, migrating=migrate, rate=rate, dry_run=dry_run, as_json=as_json))


@app.command(short_help="Draw a vhost as SVG or Mermaid.")
def draw(
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="QUEUE", help="Only what this queue is connected with; repeatable."),
    ] = None,
    definitions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw exported definitions (rabbitmqctl export_definitions)."),
    ] = None,
    vhost: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --definitions: which vhost (the only one).")
    ] = None,
    form: Annotated[str, typer.Option("--format", metavar="svg|mermaid", help="What to draw.")] = "svg",
    output: OutputOption = None,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    as_json: Json = False,
) -> None:
    """Draw exchanges, queues, bindings and the ways of dead letters, of a live vhost or a definitions file.

    A plan is drawn with `dlq topology plan --format svg`. The SVG loads nothing from elsewhere and is
    readable on light and on dark. With --json: the nodes and arrows, for drawing it yourself.
    """
    from deadletter.cli.topologies import topology_command as command

    raise typer.Exit(
        command.run_draw(
            queues=queue or (),
            definitions=definitions,
            vhost=vhost,
            form="json" if as_json else form,
            output=output,
            file=config,
            options={"broker.url": url, "broker.api": api},
        )
    )
