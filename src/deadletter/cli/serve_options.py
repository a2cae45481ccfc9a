"""Options of `dlq serve`, and of `dlq sweep`, which asks it to sweep now."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from deadletter.cli.terminal.options import ApiOption, ConfigFile, Json, StoreOption, UrlOption


def serve(
    watch: Annotated[
        list[str] | None,
        typer.Option(metavar="DLQ", help="Look after this queue, * for any run; beside those of the file."),
    ] = None,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    store: StoreOption = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where it answers HTTP, or off.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What this instance is called.")] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="text|json", help="How log lines look (they go to stderr).")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="debug|info|warning|error", help="debug: a line per decision.")
    ] = None,
) -> None:
    """Take letters from dead-letter queues, retry them with delays, park what keeps failing.

    SIGTERM ends it in good order, a second one at once; SIGHUP reads the configuration again; SIGUSR1 sweeps
    now. Metrics, health and status: http://127.0.0.1:8025. Any number of instances share the work.
    """
    from deadletter.cli import serve_command as command

    options = {
        "broker.url": url,
        "broker.api": api,
        "store.url": store,
        "serve.listen": listen,
        "serve.name": name,
        "serve.log_format": log_format,
        "serve.log_level": log_level,
    }
    raise typer.Exit(command.run(file=config, options=options, watch=watch or ()))


def sweep(
    dlqs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DLQ]...", help="Watched queues; none: all that are not consumed all the time."
        ),
    ] = None,
    at: Annotated[
        str, typer.Option("--at", metavar="URL", help="Where the service answers.")
    ] = "http://127.0.0.1:8025",
    as_json: Json = False,
) -> None:
    """Ask the running service to sweep dead-letter queues now. A token comes from DLQ_API_TOKEN."""
    from deadletter.cli import sweep_command as command

    token = os.environ.get("DLQ_API_TOKEN")
    raise typer.Exit(command.run(dlqs=dlqs or [], at=at, token=token, as_json=as_json))
