"""What consumers say of letters of replays: the queue `deadletter.outcomes`, into the store.

A word is acked when the store has it. One that cannot be read, or that speaks of a replay nobody knows, is
dropped: it is worth no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from deadletter.amqp.channel import Channel, Delivery
from deadletter.broker.session import Link
from deadletter.core.letter import header_values, message, names
from deadletter.core.topology.queue_arguments import X_MAX_LENGTH, X_QUEUE_TYPE
from deadletter.errors import ChannelClosed, MessageError
from deadletter.service.replaying.store_access import StoreAccess
from deadletter.service.telling.service_events import Recovered, ReplayCounted, ServiceEvent, Trouble

PREFETCH: Final = 1_000
GATHER_S: Final = 0.1
AGAIN_S: Final = 30.0
MOST: Final = 1_000_000
"""Words that wait while no service runs; then the oldest go."""


class OutcomeWords:
    """On one link."""

    def __init__(self, access: StoreAccess, emit: Callable[[ServiceEvent], None]) -> None:
        self._access = access
        self._emit = emit
        self._came: list[Delivery] = []
        self._something = asyncio.Event()
        self._failing = False

    async def on(self, link: Link) -> None:
        """Until it is cancelled. That words cannot be heard is said, and harms nothing else."""
        while True:
            try:
                await self._hear(await link.channel("consume"))
            except ChannelClosed as error:
                self._failing = True
                why = f"what consumers say of replays cannot be heard: {error}"
                self._emit(Trouble(what=f"queue:{names.OUTCOMES}", why=why, seconds=AGAIN_S))
            await asyncio.sleep(AGAIN_S)

    async def _hear(self, channel: Channel) -> None:
        self._came.clear()
        self._something.clear()
        await channel.declare_queue(names.OUTCOMES, arguments={X_QUEUE_TYPE: "quorum", X_MAX_LENGTH: MOST})
        await channel.qos(PREFETCH)
        channel.on_closed = lambda _error: self._something.set()
        gone = asyncio.Event()

        def cancelled() -> None:
            gone.set()
            self._something.set()

        await channel.consume(names.OUTCOMES, self._on_delivery, cancelled)
        if self._failing:
            self._failing = False
            self._emit(Recovered(what=f"queue:{names.OUTCOMES}"))
        while channel.error is None and not gone.is_set():
            await self._something.wait()
            await asyncio.sleep(GATHER_S)
            self._something.clear()
            came, self._came = self._came, []
            if came:
                await self._note(channel, came)
        if channel.error is not None:
            raise channel.error
        await channel.close()  # somebody deleted the queue: it is declared and heard anew

    def _on_delivery(self, delivery: Delivery) -> None:
        self._came.append(delivery)
        self._something.set()

    async def _note(self, channel: Channel, came: list[Delivery]) -> None:
        notes = [note for one in came if (note := _read(one)) is not None]
        if notes:
            done = await self._access.ask(lambda store: store.done_by_consumer(notes))
            if done:
                self._emit(ReplayCounted(what="done", letters=done))
        if channel.error is None:
            channel.ack(came[-1].tag, multiple=True)


def _read(word: Delivery) -> tuple[str, int, int] | None:
    try:
        headers = message.view(word.message.properties).headers or {}
    except MessageError:
        return None
    letter_id = header_values.name(headers.get(names.ID))
    replay = header_values.count(headers.get(names.REPLAY))
    at_ms = header_values.count(headers.get(names.DONE_AT))
    return None if not letter_id or replay is None else (letter_id, replay, at_ms or 0)
