"""How fast a replay goes, as people type it: the options of `dlq replay` and of `dlq replay pace`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from deadletter.core.replaying.replay_pace import ReplayPace
from deadletter.operations.wording.pace_words import TypedPace


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceOptions:
    """As they were typed; None: not said. A canary where nothing says otherwise."""

    pace: Annotated[
        str | None,
        typer.Option(
            "--pace",
            metavar="canary|auto|all",
            help="1, then 10, then 100 … and only if they do not come back (canary); as fast as the consumer "
            "keeps up (auto); everything (all).",
        ),
    ] = None
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/s", help="No faster than this: 20/s, 30/min. With all or auto."),
    ] = None
    steps: Annotated[
        str | None,
        typer.Option("--canary", metavar="1,10,100", help="The steps of a canary; the last one repeats."),
    ] = None
    share: Annotated[
        str | None,
        typer.Option("--share", metavar="5%", help="Stop when more than this share comes back (5%)."),
    ] = None
    room: Annotated[
        int | None,
        typer.Option("--room", min=1, metavar="N", help="Never let the queue grow beyond so many letters."),
    ] = None
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait", metavar="SPAN", help="How long a canary's step waits for letters to come back (60s)."
        ),
    ] = None

    @property
    def says_nothing(self) -> bool:
        return self == type(self)()

    def chosen(self) -> ReplayPace:
        """UsageError where options are of different paces, or make no sense."""
        return TypedPace(**asdict(self)).chosen(dashes="--")
