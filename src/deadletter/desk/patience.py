"""How long, and with how many, the HTTP server waits for requests to be finished.

A client that opens connections and never ends a request costs us nothing but places, so places are what is
bounded. Each connection has a few seconds from its first byte to the end of its request, dribbling or not;
and of all that wait, the one that waits longest goes when there are too many. So whoever asks in earnest
(an orchestrator for `/health/live`) finds a place, however many others hold one.
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S: Final = 10.0
"""What a request may take to come, from the connection or the answer before it to its last byte."""
WAITING_MAX: Final = 100
"""The most connections that may be there without a whole request."""


class PatientProtocol(H11Protocol):
    """uvicorn's own, which waits for a first request without end."""

    waiting_since: float | None = None
    """The loop's time since when a request is awaited; None while one is answered."""
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._look()
        waiting = [
            (one.waiting_since, number, one)
            for number, one in enumerate(self.connections)
            if isinstance(one, PatientProtocol) and one.waiting_since is not None
        ]
        if len(waiting) > WAITING_MAX:
            min(waiting)[2].give_up()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._rest()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Is a request on its way? The clock starts once for each, not with every byte of it."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._rest()
        elif self.waiting_since is None and not self.transport.is_closing():
            self.waiting_since = self.loop.time()
            self._patience = self.loop.call_later(REQUEST_S, self.give_up)

    def _rest(self) -> None:
        self.waiting_since = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def give_up(self) -> None:
        """The client took too long, or too many do."""
        self._rest()
        self.transport.abort()
