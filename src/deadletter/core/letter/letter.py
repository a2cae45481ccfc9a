"""A letter as the safe move shows it to whoever decides: where it was, how it came, what is in it.

Nothing is decoded until somebody asks, and then once. A function that looks at the routing key alone pays
for the routing key alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deadletter.core.letter import envelope, field_table, message, names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.envelope_parts import checked_headers
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_text
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.letter.property_build import PropertyBuild

_DIGITS: Final = "0123456789abcdef"
"""Of an id of ours, which has 32 of them."""


class Letter:
    """One message taken from `source`; raises MessageError when asked for what its bytes do not hold."""

    __slots__ = ("_view", "build", "came_by", "circling", "message", "redelivered", "source")

    def __init__(
        self,
        *,
        source: str,
        message: RawMessage,
        came_by: ExchangeKey,
        redelivered: bool,
        circling: bool = False,
    ) -> None:
        self.source: str = source
        self.message: RawMessage = message
        self.came_by: ExchangeKey = came_by
        self.redelivered: bool = redelivered
        self.circling: bool = circling
        self.build: PropertyBuild | None = None
        """How its properties are built, where whoever decided found that out: who publishes it need not."""
        self._view: View | None = None

    def with_message(self, message: RawMessage) -> Letter:
        """The same letter, with other content."""
        return Letter(source=self.source, message=message, came_by=self.came_by, redelivered=self.redelivered)

    @property
    def view(self) -> View:
        """The properties as Python values."""
        if self._view is None:
            self._view = message.view(self.message.properties)
        return self._view

    @property
    def headers(self) -> Mapping[str, Value]:
        """The headers as Python values; empty when there are none."""
        return self.view.headers or {}

    def select(self, wanted: frozenset[bytes]) -> dict[str, Value]:
        """Only these headers as Python values: for whoever decides about many letters by few of them."""
        if self._view is not None:
            return {n: v for n, v in self.headers.items() if n.encode("utf-8", "replace") in wanted}
        headers = checked_headers(self.message.properties)
        return {
            name.decode("utf-8", "backslashreplace"): field_table.decode_value(headers[value:end])
            for name, _, value, end in field_table.find(headers, wanted)
        }

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def exchange(self) -> str:
        return as_text(self.came_by.exchange)

    @property
    def routing_key(self) -> str:
        return as_text(self.came_by.routing_key)

    @property
    def id(self) -> str:
        """The id it carries, or the one derived from it; from what outlives its deaths where it circles."""
        if self._view is not None:
            carried = self.headers.get(names.ID)
            if isinstance(carried, str) and len(carried) == 32 and not carried.strip(_DIGITS):
                return carried
        return envelope.letter_id(self.message, source=self.source, circling=self.circling)

    @property
    def delivery_count(self) -> int:
        """How often the broker counts that it was delivered in vain; 0 on queues that do not count."""
        return envelope.delivery_count(self.message.properties)

    def __repr__(self) -> str:
        return f"Letter(source={self.source!r}, routing_key={self.routing_key!r}, {len(self.body)} bytes)"
