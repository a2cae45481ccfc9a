"""How far a replay is, as one bar: what became of its letters, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deadletter.operations.replays.replay_told import ReplayTold

WIDTH: Final = 1_000
"""Of the whole bar, in its own units."""
_LEAST: Final = 6
"""One letter is never nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """`kind`: the class that colours it, and its word."""

    kind: str
    word: str
    letters: int
    x: float
    width: float


def replay_bar(replay: ReplayTold) -> tuple[BarPart, ...]:
    """From left to right: known ends first, what waits last. Empty while there are no letters."""
    counts = replay.counts
    told = [
        (kind, word, letters)
        for kind, word, letters in (
            ("done", "done", counts.done),
            ("quiet", "not returned", counts.quiet),
            ("back", "back", counts.returned),
            ("refused", "refused", counts.refused),
            ("sent", "sent", counts.sent + counts.sending),
            ("gone", "let go", counts.let_go),
            ("waits", "waiting", counts.waiting),
        )
        if letters
    ]
    if not told:
        return ()
    total = sum(letters for *_, letters in told)
    broad = [max(_LEAST, WIDTH * letters / total) for *_, letters in told]
    scale = WIDTH / sum(broad)
    parts, x = [], 0.0
    for (kind, word, letters), width in zip(told, broad, strict=True):
        parts.append(
            BarPart(kind=kind, word=word, letters=letters, x=round(x, 1), width=round(width * scale, 1))
        )
        x += width * scale
    return tuple(parts)
