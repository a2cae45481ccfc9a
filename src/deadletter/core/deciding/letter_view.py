"""A letter as a decision sees it: its deaths, where it belongs, why it failed.

Made once from the decoded headers, and then nobody downstream has to touch a raw header again except the
two who match on one by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple, assert_never

from deadletter.core.deciding.deaths import (
    DELIVERY_LIMIT,
    CountBy,
    Death,
    History,
    NamedHeader,
    OriginBy,
    attempts_made,
    read_history,
)
from deadletter.core.deciding.failure import Failure, read_failure
from deadletter.core.deciding.origin import (
    Ambiguous,
    Claimed,
    Copied,
    Fresh,
    Origin,
    Provenance,
    Returned,
    Unknown,
    Unproven,
    read_provenance,
)
from deadletter.core.deciding.place import Place
from deadletter.core.letter import header_values, names

BY_LIMIT: Final = "delivery-limit"
"""The cause of what the broker itself put aside."""
_CAUSE_CHARS: Final = 100
_WHY_CHARS: Final = 500


class PutAside(NamedTuple):
    """Why a letter was put aside: for machines, and for people."""

    cause: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterView:
    """What a letter says of itself, with the deaths of another letter already taken out of `history`."""

    headers: Mapping[str, object]
    history: History
    provenance: Provenance
    origin: Origin | None
    reason: str | None
    """Why it died, by the death that decides: nobody means the expiry of the dead-letter queue after it."""
    failure: Failure | None = None
    content_type: str | None = None

    @property
    def origin_was_full(self) -> bool:
        """Whether it last died in its origin because that was full."""
        queue = self.origin.queue if self.origin else None
        return next((d.reason for d in self.history.recent if d.queue == queue), self.reason) == "maxlen"

    @property
    def put_aside(self) -> PutAside | None:
        """Why it was put aside: as whoever did it wrote; where the broker did, as its last death says."""
        cause = header_values.text(self.headers.get(names.CAUSE), _CAUSE_CHARS)
        if cause:
            return PutAside(cause, header_values.text(self.headers.get(names.WHY), _WHY_CHARS) or "")
        if self.history.recent and self.history.recent[0].reason == DELIVERY_LIMIT:
            queue = self.history.recent[0].queue
            return PutAside(
                BY_LIMIT,
                f"the broker took it out of {queue}, where it had been delivered in vain as often as may be: "
                "each time its consumer died, lost its connection or rejected it; no error was noted",
            )
        return None

    @property
    def first_death_at(self) -> datetime | None:
        return self.history.first_at

    def attempts(self, by: CountBy) -> int:
        """How often it was sent back. Our own count on a copied header is another letter's, so it is 0."""
        match self.provenance:
            case Returned() | Claimed() | Ambiguous() | Unproven() | Unknown():
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
    by: OriginBy = OriginBy.FAILURE,
    place: Place | None = None,
    came_by: tuple[str, str] = ("", ""),
) -> LetterView:
    """Reads a letter, whatever it holds. `broker_keeps_client_deaths` and the rest: see `origin.py`."""
    history = read_history(headers)
    failure = read_failure(headers, body)
    failed_in = None
    if failure is not None and failure.queue is not None and failure.queue_header is not None:
        failed_in = (failure.queue, failure.queue_header)
    provenance, death, deaths = read_provenance(
        headers,
        history,
        broker_keeps_client_deaths=broker_keeps_client_deaths,
        failed_in=failed_in,
        by=by,
        place=place,
        came_by=came_by,
    )
    older = () if isinstance(provenance, Copied | Fresh) else history.older
    history = replace(history, recent=deaths, older=older)
    origin = _origin(provenance)
    return LetterView(
        headers=headers,
        history=history,
        provenance=provenance,
        origin=origin,
        reason=_reason(history, death),
        failure=failure,
        content_type=content_type,
    )


class Gist(NamedTuple):
    """What of a view says where a letter failed, and of what. Empty: nothing says so."""

    queue: str
    reason: str
    cause: str
    failure: Failure | None
    death: Death | None
    """The newest of its own."""


def gist(headers: Mapping[str, object], body: bytes = b"") -> Gist:
    """As a view of a letter at an unknown place tells it. Where the broker wrote no death, as in nearly all
    that are parked, deaths that others noted decide nothing, and are not read."""
    if headers.get(names.X_DEATH) is not None:
        view = view_letter(headers, broker_keeps_client_deaths=False, body=body)
        aside, deaths = view.put_aside, view.history.recent
        return Gist(
            view.origin.queue if view.origin else "",
            view.reason or "",
            aside.cause if aside else "",
            view.failure,
            deaths[0] if deaths else None,
        )
    failure = read_failure(headers, body)
    queue = header_values.name(headers.get(names.ORIGIN_QUEUE))
    if not queue or names.is_ours(queue):
        queue = failure.queue if failure is not None and failure.queue_header is not None else None
    cause = header_values.text(headers.get(names.CAUSE), _CAUSE_CHARS)
    return Gist(queue if queue and not names.is_ours(queue) else "", "", cause or "", failure, None)


def _origin(provenance: Provenance) -> Origin | None:
    match provenance:
        case Fresh() | Returned() | Copied() | Claimed():
            return provenance.origin
        case Ambiguous() | Unproven() | Unknown():
            return None
        case _:
            assert_never(provenance)


def _reason(history: History, death: Death | None) -> str | None:
    if death is not None:
        return death.reason
    return history.recent[0].reason if history.recent else None
