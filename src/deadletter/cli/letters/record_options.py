"""Options and arguments that the commands about stored letters share."""

from __future__ import annotations

from typing import Annotated

import typer

from deadletter.cli.letters import completing

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="URL",
        help="Ask the service that answers there (without: the one of the settings, else the store itself). "
        "A token comes from DLQ_API_TOKEN.",
    ),
]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Who does it, for the audit (user@host).")
]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Its number, or the beginning of its key.",
        autocompletion=completing.groups,
    ),
]
GroupArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP...",
        help="Their numbers, or the beginnings of their keys.",
        autocompletion=completing.groups,
    ),
]
QueueFilter = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="QUEUE",
        help="Taken from this queue.",
        autocompletion=completing.queues,
    ),
]
OriginFilter = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="QUEUE", help="Failed in this queue.", autocompletion=completing.origins
    ),
]
GroupFilter = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Of this group.", autocompletion=completing.groups),
]
CauseFilter = Annotated[
    str | None,
    typer.Option("--cause", metavar="CAUSE", help="Put aside for this.", autocompletion=completing.causes),
]
ErrorFilter = Annotated[
    str | None, typer.Option("--error", metavar="WORDS", help="With these words in the error.")
]
SinceFilter = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Died since: 2h (ago), or 2025-06-01T12:00 UTC.")
]
UntilFilter = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Died before: 2h (ago), or a time.")
]
OlderFilter = Annotated[
    str | None, typer.Option("--older-than", metavar="SPAN", help="Died longer ago than this: 30d.")
]
HeaderFilter = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="With this header; * for any run. May be repeated."),
]
MessageIdFilter = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="With this message-id property.")
]
TextFilter = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="WORDS", help="With these words in body, headers, ids or error; quoted: as it is."
    ),
]
WhereFilter = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="JQ", help="For which this jq program over {body, headers, properties} is true."
    ),
]
