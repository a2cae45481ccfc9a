"""A letter as a decision sees it: its deaths, where it belongs, why it failed.

Made once from the decoded headers, and then nobody downstream has to touch a raw header again except the
two who match on one by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from deadletter.core.deaths import CountBy, History, NamedHeader, attempts_made, read_history
from deadletter.core.failure import Failure, read_failure
from deadletter.core.origin import (
    Ambiguous,
    Claimed,
    Copied,
    Fresh,
    Origin,
    Provenance,
    Returned,
    Unknown,
    read_provenance,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterView:
    """What a letter says of itself, with the deaths of another letter already taken out of `history`."""

    headers: Mapping[str, object]
    history: History
    provenance: Provenance
    origin: Origin | None
    reason: str | None
    """Why it last died in its origin: nobody means the expiry of the dead-letter queue after it."""
    failure: Failure | None = None
    content_type: str | None = None

    @property
    def first_death_at(self) -> datetime | None:
        return self.history.first_at

    def attempts(self, by: CountBy) -> int:
        """How often it was sent back. Our own count on a copied header is another letter's, so it is 0."""
        match self.provenance:
            case Returned() | Claimed() | Ambiguous() | Unknown():
                return attempts_made(self.history, self.headers, by)
            case Fresh() | Copied():
                headers = self.headers if isinstance(by, NamedHeader) else {}
                return attempts_made(self.history, headers, by)
            case _:
                assert_never(self.provenance)


def view_letter(
    headers: Mapping[str, object],
    *,
    broker_keeps_client_deaths: bool,
    content_type: str | None = None,
    body: bytes = b"",
) -> LetterView:
    """Reads a letter, whatever it holds. `broker_keeps_client_deaths`: true on 3.x (see `origin.py`)."""
    history = read_history(headers)
    failure = read_failure(headers, body)
    failed_in = None
    if failure is not None and failure.queue is not None and failure.queue_header is not None:
        failed_in = (failure.queue, failure.queue_header)
    provenance = read_provenance(
        headers, history, broker_keeps_client_deaths=broker_keeps_client_deaths, failed_in=failed_in
    )
    if isinstance(provenance, Copied | Fresh):
        history = replace(history, older=())
    origin = _origin(provenance)
    return LetterView(
        headers=headers,
        history=history,
        provenance=provenance,
        origin=origin,
        reason=_reason(history, origin),
        failure=failure,
        content_type=content_type,
    )


def _origin(provenance: Provenance) -> Origin | None:
    match provenance:
        case Fresh() | Returned() | Copied() | Claimed():
            return provenance.origin
        case Ambiguous() | Unknown():
            return None
        case _:
            assert_never(provenance)


def _reason(history: History, origin: Origin | None) -> str | None:
    if origin is not None:
        for death in history.recent:
            if death.queue == origin.queue:
                return death.reason
    return history.recent[0].reason if history.recent else None
