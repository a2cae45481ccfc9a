"""One parking: the publish that puts a letter aside for a person, whoever does it and in whatever layout.

Its deaths stay on: whoever looks wants to see them. Why and since when stand in its headers
(`core.letter.parking`). A letter that cannot carry them travels whole inside another message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from deadletter.core.letter import names, parking
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.move_kind import Deaths
from deadletter.core.letter.parking import Cause
from deadletter.move.verdict import Send, Stamped, Wrap


class ParkingPlace(NamedTuple):
    """Where a layout parks: an exchange and a routing key."""

    exchange: str
    routing_key: str


PARKED: Final = ParkingPlace("", names.PARKED)
"""`deadletter.parked`, by the default exchange."""


def park(
    place: ParkingPlace,
    *,
    cause: Cause,
    why: str,
    headers: Mapping[str, Value] = {},
    at_ms: int | None = None,
    deaths: Deaths = Deaths.KEEP,
    anew: bool = False,
    circling: bool = False,
    fate: object = None,
) -> Send:
    """`headers`: what it carries besides. Without `at_ms` it is for many letters, and each is `stamped`."""
    said = parking.reasons(cause, why) if at_ms is None else parking.parked_headers(cause, why, at_ms)
    return Send(
        exchange=place.exchange,
        routing_key=place.routing_key,
        deaths=deaths,
        headers={**headers, **said},
        anew=anew,
        circling=circling,
        fate=fate,
    )


def stamped(send: Send, now_ms: int) -> Stamped:
    """The same for one letter that is parked now."""
    return Stamped(send, parking.at(parking.PARKED_AT, now_ms))


def park_wrapped(place: ParkingPlace, *, cause: Cause, why: str, at_ms: int, fate: object = None) -> Wrap:
    """For a letter that cannot travel as it is."""
    return Wrap(
        exchange=place.exchange, routing_key=place.routing_key, cause=cause, why=why, at_ms=at_ms, fate=fate
    )
