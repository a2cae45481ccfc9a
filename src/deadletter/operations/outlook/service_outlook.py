"""What waits at the broker of a running service, asked of that service: whoever reaches it needs no way to
the broker, and what they do is audited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from deadletter.operations.outlook.outlook import LOOKED_AT, WaitingTold
from deadletter.operations.records.service_wire import ServiceWire, service_wire
from deadletter.operations.waiting import LetOut, WaitingChoice

LET_OUT_S: Final = 3_600.0
"""Letting out a million letters takes its time."""


class ServiceOutlook:
    """Over the wire to the service."""

    def __init__(self, wire: ServiceWire) -> None:
        self._wire = wire

    async def waiting(self, choice: WaitingChoice, *, vhost: str, most: int) -> WaitingTold:
        asked = [("vhost", vhost), ("most", str(min(most, LOOKED_AT))), *_chosen(choice).items()]
        return await self._wire.get(WaitingTold, "waiting", asked)

    async def let_out(self, choice: WaitingChoice, *, vhost: str, park: str | None, who: str) -> LetOut:
        wish: dict[str, object] = {"vhost": vhost, "who": who, **_chosen(choice)}
        wish["everything"] = choice == WaitingChoice()
        if park is None:
            return await self._wire.change(LetOut, "POST", "waiting/release", wish)
        return await self._wire.change(LetOut, "POST", "waiting/park", {**wish, "why": park})


def _chosen(choice: WaitingChoice) -> dict[str, str]:
    told = {"origin": choice.origin, "letter_id": choice.letter_id}
    told["waits"] = None if choice.waits is None else choice.waits.value
    return {key: value for key, value in told.items() if value is not None}


@asynccontextmanager
async def service_outlook(at: str, token: str | None) -> AsyncIterator[ServiceOutlook]:
    """Of the service that answers there; nothing is asked yet."""
    async with service_wire(at, token, answer_s=LET_OUT_S) as wire:
        yield ServiceOutlook(wire)
