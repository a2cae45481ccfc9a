"""`dlq config …` as typer sees it; the work is in `config`."""

from __future__ import annotations

from typing import Final

import typer

from deadletter.cli.terminal.options import ApiOption, ConfigFile, Json, StoreOption, UrlOption

app: Final = typer.Typer(no_args_is_help=True, help="Settings: show what is in force, check, JSON schema.")


@app.command("show")
def config_show(
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Print every setting in force and where it came from; passwords and tokens are hidden."""
    from deadletter.cli import config_command as command

    options = {"broker.url": url, "broker.api": api, "store.url": store}
    raise typer.Exit(command.show(file=config, options=options, as_json=as_json))


@app.command("check")
def config_check(
    config: ConfigFile = None,
    url: UrlOption = None,
    api: ApiOption = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Say everything that is wrong with the settings, all at once; exit code 2 if anything is."""
    from deadletter.cli import config_command as command

    options = {"broker.url": url, "broker.api": api, "store.url": store}
    raise typer.Exit(command.check(file=config, options=options, as_json=as_json))


@app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of the settings file, for editors."""
    from deadletter.cli import config_command as command

    raise typer.Exit(command.schema())
