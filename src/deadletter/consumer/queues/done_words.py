"""The word that a letter of a replay is done: a short message to `deadletter.outcomes`.

Who sent the letter waits for what becomes of it, and without a word can only say that it did not come back.
The word is worth no letter's delay: it is not mandatory, nobody waits for a confirm, and where it cannot be
said (the queue is missing, we may not publish by the default exchange, the broker takes nothing now) it is
not. It goes on a channel of its own, opened with the first one: a refusal closes no other.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from deadletter.amqp.channel import Channel
from deadletter.broker.session import Link
from deadletter.core.letter import message, names
from deadletter.core.letter.message import View
from deadletter.errors import DeadletterError

WORDS_MAX: Final = 1_000
"""So many wait for the channel."""
LAST_WORDS_S: Final = 1.0


class DoneWords:
    """Of one queue's consumer; `renew` it with each link."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._channel: Channel | None = None
        self._publishing = b""
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []

    def renew(self, link: Link) -> None:
        """Another connection."""
        self._link, self._channel, self._opening = link, None, None
        self._waiting.clear()

    def done(self, letter_id: str, replay: str) -> None:
        """Say it, soon."""
        word = message.encode(
            View(
                headers={
                    names.ID: letter_id,
                    names.REPLAY: replay,
                    names.DONE_AT: time.time_ns() // 1_000_000,
                },
                delivery_mode=2,
            )
        )
        if self._channel is not None:
            self._say(self._channel, word)
            return
        if len(self._waiting) < WORDS_MAX:
            self._waiting.append(word)
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())

    async def close(self) -> None:
        """The last ones are said before the connection ends."""
        if self._opening is not None:
            await asyncio.wait({self._opening}, timeout=LAST_WORDS_S)
            self._opening.cancel()

    async def _open(self) -> None:
        assert self._link is not None
        try:
            channel = await self._link.channel("publish")
        except DeadletterError:
            return  # the line is lost, and the next one begins anew
        self._publishing = channel.publishing("", names.OUTCOMES, mandatory=False)
        self._channel = channel
        waiting, self._waiting = self._waiting, []
        for word in waiting:
            self._say(channel, word)

    def _say(self, channel: Channel, word: bytes) -> None:
        if channel.error is None and not channel.connection.congested:
            channel.publish(self._publishing, word, b"")
