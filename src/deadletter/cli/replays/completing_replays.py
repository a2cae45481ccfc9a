"""What a shell offers where a replay or a recipe is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from deadletter.cli.letters.completing import Offer, letters, offered
from deadletter.store.finding import quick_look

if TYPE_CHECKING:
    from deadletter.operations.records.at_hand import Whereabouts

WORDS = (
    ("pause", "send nothing until it is resumed"),
    ("resume", "go on"),
    ("cancel", "send no more; what waits stays here"),
    ("pace", "faster or slower from now on"),
)
"""What else `dlq replay` does, beside starting one."""


def replays(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Replays by their number, the newest first."""

    async def ask(place: Whereabouts) -> list[Offer]:
        from deadletter.operations.replays.at_hand import replays_at_hand  # slow to load

        async with replays_at_hand(place) as desk:
            page = await desk.replays.replays(limit=quick_look.SHOWN)
        return [(str(one.id), f"{one.state.value}, {one.letters} letters") for one in page.replays]

    return offered(ctx, incomplete, quick_look.REPLAYS, ask)


def recipes(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Recipes by their name."""

    async def ask(place: Whereabouts) -> list[Offer]:
        from deadletter.operations.replays.at_hand import replays_at_hand  # slow to load

        async with replays_at_hand(place) as desk:
            found = await desk.replays.recipes()
        return [(one.name, one.program) for one in found.recipes]

    return offered(ctx, incomplete, quick_look.RECIPES, ask)


def letters_or_words(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The first word after `dlq replay` may be one of ours."""
    said = ctx.params.get("named")
    words = [] if said else [one for one in WORDS if one[0].startswith(incomplete)]
    return [*words, *letters(ctx, incomplete)]
