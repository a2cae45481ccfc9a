"""`dlq token …` as typer sees it; the work is in `token_command`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from deadletter.cli.terminal.options import ConfigFile, Json
from deadletter.core.access.rights import Role

app: Final = typer.Typer(no_args_is_help=True, help="Who may come in to the page and the API.")


@app.command("new")
def token_new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; it stands in the audit.")],
    role: Annotated[
        Role, typer.Option("--role", help="viewer looks, operator works on letters, admin does everything.")
    ] = Role.VIEWER,
    vhost: Annotated[
        list[str] | None, typer.Option("--vhost", help="Sees letters of this vhost; * for any run.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Sees letters that failed in this queue; * for any run."),
    ] = None,
    sees_masked: Annotated[bool, typer.Option("--sees-masked", help="Sees what [desk] mask hides.")] = False,
    as_json: Json = False,
) -> None:
    """Make a token. It is shown once; what is printed below it goes into deadletter.toml."""
    from deadletter.cli.access import token_command as command

    wish = command.TokenWish(
        name=name, role=role, vhosts=vhost or [], queues=queue or [], sees_masked=sees_masked
    )
    raise typer.Exit(command.new(wish, as_json=as_json))


@app.command("address")
def token_address(
    at: Annotated[
        str | None, typer.Option("--at", metavar="URL", help="Of the service there (without: the settings').")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Print the page's address with the token of this user, who started the service on this machine."""
    from deadletter.cli.access import token_command as command

    raise typer.Exit(command.address(at=at, file=config))
