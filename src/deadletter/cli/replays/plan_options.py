"""What is to be replayed, where to and how, as people type it: one value of options, one plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from deadletter.cli.letters import completing
from deadletter.cli.replays import completing_replays
from deadletter.core.replaying.replay_target import HOME, ReplayTarget, ToExchange, ToQueue
from deadletter.core.text.amounts import parse_span
from deadletter.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """As they were typed; None: not said. Each letter to the queue it failed in where nothing says
    otherwise."""

    to_queue: Annotated[
        str | None,
        typer.Option(
            "--to-queue",
            metavar="QUEUE",
            help="All of them to this queue (else each to the one it failed in).",
            autocompletion=completing.broker_queues,
        ),
    ] = None
    to_exchange: Annotated[
        str | None,
        typer.Option("--to-exchange", metavar="EXCHANGE", help="To this exchange, and wherever it leads."),
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="With --to-exchange: by this key (else each by its own)."),
    ] = None

    def chosen(self) -> ReplayTarget:
        if self.to_queue is not None and self.to_exchange is not None:
            raise UsageError("expected --to-queue or --to-exchange, got both")
        if self.key is not None and self.to_exchange is None:
            raise UsageError("--key: expected --to-exchange with it")
        if self.to_exchange is not None:
            return ToExchange(exchange=self.to_exchange, key=self.key)
        if self.to_queue is None:
            return HOME
        if not self.to_queue:
            raise UsageError("--to-queue: expected the name of a queue, got nothing")
        return ToQueue(queue=self.to_queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOptions:
    """How letters are changed on their way; with neither they go as they are."""

    edit: Annotated[
        str | None,
        typer.Option("--edit", metavar="JQ", help="Change each by this jq program; tried first."),
    ] = None
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Change each by this saved recipe; tried first.",
            autocompletion=completing_replays.recipes,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.edit is not None and self.recipe is not None:
            raise UsageError("expected --edit or --recipe, got both")


def outcome_ms(said: str) -> int:
    """How long a letter may take to come back before it is told as not returned."""
    return round(parse_span(said) * 1000)
