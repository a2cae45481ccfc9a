"""What the commands that take letters say of those that could not simply be given back."""

from __future__ import annotations

from collections.abc import Mapping

from deadletter.cli.terminal.units import count
from deadletter.core.letter import names


def parked_lines(queue: str, parked: Mapping[str, int], endangered: Mapping[str, int]) -> list[str]:
    """Of letters that were put into a queue of ours, and of those that nothing took."""
    lines = [
        f"{count(number)} could neither be given back to {queue} (that might have destroyed them) nor be "
        f"published there anew ({why}); they are in {names.PARKED} now, whole: "
        f"dlq move {names.PARKED} {queue}"
        for why, number in parked.items()
    ]
    lines += [
        f"IN DANGER: {count(number)} went back to {queue} although that may have destroyed them: neither "
        f"{queue} nor {names.PARKED} took them ({why})"
        for why, number in endangered.items()
    ]
    return lines
