"""Letters that look alike: what intake decided for one of them holds for the next (`sorting`)."""

from __future__ import annotations

from deadletter.core.deciding.decision import Decision, Retry
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.deciding.origin import Returned
from deadletter.core.letter import header_values, names
from deadletter.move.verdict import Drop, Leave, Send
from deadletter.service.intake.copying import Copy


class DecidedKind:
    """What was decided for one kind of letter, and what is the same for each of them."""

    __slots__ = (
        "attempt", "choices", "copy", "dropped", "group", "home", "origin", "returned", "verdict", "view",
        "why",
    )  # fmt: skip

    def __init__(self, decision: Decision, view: LetterView, group: str) -> None:
        self.choices: tuple[tuple[int, Send], ...] = ()
        """Delays to choose from by chance, each with its way."""
        self.verdict: Send | Drop | Leave | Retry | None = None
        self.origin: str = view.origin.queue if view.origin else ""
        self.group: str = group
        self.view: LetterView = view
        """Of the first of them."""
        self.returned: bool = isinstance(view.provenance, Returned)
        self.attempt: int = header_values.count(view.headers.get(names.ATTEMPT)) or 0
        """As which it went home last."""
        self.why: str = decision.why
        self.home: str | None = None
        """Of a letter that several queues got: the one it goes on from."""
        self.copy: Copy | None = None
        self.dropped: LetterFate | None = None
        """Of a copy: what becomes of one that need not be kept."""
