"""Options and arguments that the commands about stored letters share: where the records are, and who asks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deadletter.cli.letters import completing
from deadletter.cli.terminal.options import ConfigFile, Json, StoreOption
from deadletter.cli.terminal.users import user_name
from deadletter.errors import UsageError

if TYPE_CHECKING:
    from deadletter.operations.records.at_hand import Whereabouts

NUMBER_MAX: Final = 10**15
"""No letter, group or replay has a higher number."""
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
OriginFilter = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="QUEUE", help="Failed in this queue.", autocompletion=completing.origins
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsWish:
    """Where the records are, and how they are told."""

    config: ConfigFile = None
    store: StoreOption = None
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="URL",
            help="Ask the service that answers there (without: the one of the settings, else the store "
            "itself). A token comes from DLQ_API_TOKEN.",
        ),
    ] = None
    as_json: Json = False

    def whereabouts(self, *, prepare: bool = True) -> Whereabouts:
        from deadletter import config  # slow to load, as what follows
        from deadletter.operations.records.at_hand import Whereabouts

        return Whereabouts(
            settings=config.load(config=self.config, options={"store.url": self.store}),
            at=self.at,
            token=os.environ.get("DLQ_API_TOKEN") or None,
            store_said=self.store is not None,
            prepare=prepare,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeWish(RecordsWish):
    """The same, of who changes something."""

    who: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who does it, for the audit (user@host).")
    ] = None

    @property
    def named(self) -> str:
        """Who does it, for the audit: as said, else the user of this machine."""
        from deadletter.operations.records.records import WHO_CHARS  # slow to load

        if self.who is not None and not self.who.strip():
            raise UsageError("--as: expected a name, got nothing")
        return (self.who or user_name())[:WHO_CHARS]
