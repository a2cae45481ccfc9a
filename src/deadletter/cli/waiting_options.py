"""`dlq waiting …` as typer sees it; the work is in `waiting_command`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from deadletter.cli.terminal.options import ApiOption, ConfigFile, Json, UrlOption

app: Final = typer.Typer(invoke_without_command=True, help="What waits in delays, due or held by a guard.")

_Origin = Annotated[
    str | None, typer.Option("--origin", metavar="QUEUE", help="Letters of this queue; * for any run.")
]
_For = Annotated[
    str | None, typer.Option("--for", metavar="delay|due|held", help="Letters that wait for this.")
]
_Id = Annotated[str | None, typer.Option("--id", metavar="ID", help="The letter with this deadletter-id.")]
_All = Annotated[bool, typer.Option("--all", help="All that waits.")]
_At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="URL",
        help="Ask the service that answers there, not the broker. A token comes from DLQ_API_TOKEN.",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many, and change nothing.")]


def _options(url: str | None, api: str | None) -> dict[str, object]:
    return {"broker.url": url, "broker.api": api}


@app.callback()
def waiting(
    context: typer.Context,
    origin: _Origin = None,
    waits: _For = None,
    most: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="N", help="Look at so many letters of each queue.")
    ] = 1000,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    at: _At = None,
    as_json: Json = False,
) -> None:
    """What waits: how many letters, of which origin, for what, until when. They stay where they are.

    dlq waiting release --origin orders sends them home now, past their delay and past any guard; dlq waiting
    park --origin orders puts them aside for a person.
    """
    if context.invoked_subcommand is not None:
        return
    from deadletter.cli import waiting_command as command

    wish = command.choice(origin, waits, None)
    raise typer.Exit(
        command.show(wish=wish, most=most, file=config, options=_options(url, api), at=at, as_json=as_json)
    )


@app.command("release")
def release(
    origin: _Origin = None,
    waits: _For = None,
    letter: _Id = None,
    everything: _All = False,
    dry_run: _DryRun = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    at: _At = None,
    as_json: Json = False,
) -> None:
    """Send waiting letters home now: past their delay, past any guard that holds them.

    Confirmed in their origin, then gone here. What the origin refuses stays. Exit codes: 0 done, 1 some
    stayed, 2 usage, 3 cannot reach.
    """
    _change(origin, waits, letter, None, everything, dry_run, config, _options(url, api), at, as_json)


@app.command("park")
def park(
    origin: _Origin = None,
    waits: _For = None,
    letter: _Id = None,
    everything: _All = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Written on each.")] = "parked by hand",
    dry_run: _DryRun = False,
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    at: _At = None,
    as_json: Json = False,
) -> None:
    """Put waiting letters aside for a person, into deadletter.parked. Exit codes as for release."""
    _change(origin, waits, letter, why, everything, dry_run, config, _options(url, api), at, as_json)


def _change(
    origin: str | None,
    waits: str | None,
    letter: str | None,
    why: str | None,
    everything: bool,
    dry_run: bool,
    config: Path | None,
    options: dict[str, object],
    at: str | None,
    as_json: bool,
) -> None:
    from deadletter.cli import waiting_command as command

    wish = command.choice(origin, waits, letter)
    raise typer.Exit(
        command.change(
            wish=wish,
            why=why,
            everything=everything,
            dry_run=dry_run,
            file=config,
            options=options,
            at=at,
            as_json=as_json,
        )
    )
