"""Options of `dlq run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the Consumer is: shop.worker:app.")],
    workers: Annotated[int, typer.Option(min=1, max=256, help="How many processes.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Begin anew when a .py file below --dir changes; for developing.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where health and metrics are answered, or off (127.0.0.1:8026)."
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where modules are looked for first.")
    ] = Path(),
    grace: Annotated[
        str, typer.Option(metavar="SPAN", help="How long processes may take to end in good order.")
    ] = "60s",
) -> None:
    """Run the Consumer of a Python module in one or more processes.

    SIGTERM or Ctrl-C: each process takes no more messages, ends what it has in hand, and goes; a second one
    ends them at once. A process that dies is started again, with growing pauses. http://127.0.0.1:8026
    answers /health/live, /health/ready (every process takes messages) and /metrics (of all processes).

    Exit codes: 0 ended as asked, 1 it cannot go on, 2 usage.

    dlq run shop.worker:app --workers 4
    """
    from deadletter.cli.running import run_command as command

    wish = command.RunWish(
        app=app, workers=workers, reload=reload, listen=listen, directory=directory, grace=grace
    )
    raise typer.Exit(command.run(wish))
