"""Release: a letter whose delay is over goes home, by the exchange that leads to its origin alone."""

from __future__ import annotations

from deadletter.broker.return_exchanges import Home
from deadletter.core.letter.move_kind import Deaths, Leg
from deadletter.move.verdict import Send


def homewards(home: Home, routing_key: str, fate: object) -> Send:
    """Out of a delay, back to the origin."""
    if home.exchange:
        return Send(
            exchange=home.exchange, routing_key=routing_key, deaths=Deaths.FORGET, leg=Leg.HOME, fate=fate
        )
    return Send(routing_key=home.origin, deaths=Deaths.FORGET, leg=Leg.HOME, fate=fate)
