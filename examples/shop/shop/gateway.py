"""The payment gateway: outside, slow, and down now and then."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field


class GatewayDown(Exception):
    """It will be back."""


class CardRefused(Exception):
    """No later try will change that."""


@dataclass
class Gateway:
    """One that remembers what it charged. A real one would have a connection here."""

    down: bool = False
    charged: list[int] = field(default_factory=list)
    cents: int = 0

    async def charge(self, order: int, cents: int, card: str) -> None:
        if self.down:
            raise GatewayDown("502 from the gateway")
        if card == "expired":
            raise CardRefused(f"card of order {order}")
        if order not in self.charged:  # by the order's number, so that a second try charges nothing
            self.charged.append(order)
            self.cents += cents


THE_GATEWAY = Gateway()


async def open_gateway() -> AsyncGenerator[Gateway]:
    """For one message: what comes after the yield runs when its handler has ended."""
    yield THE_GATEWAY
