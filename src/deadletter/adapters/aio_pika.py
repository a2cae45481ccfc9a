"""aio-pika: a decorator around an `on_message` coroutine.

    @retrying(url, queue="orders", retries=5, backoff=exponential(1, cap=60), on={ValidationError: park})
    async def on_message(message: AbstractIncomingMessage) -> None: ...

    await on_message.prepare(api="http://…:15672")
    await queue.consume(on_message)

Returning acks. Raising is judged by the rules: published again or aside, confirmed, then acked. Whoever
settled the message in the handler has decided; then nothing more is done with it. A message that cannot be
placed goes into its own queue anew after a few tries, and stays in hand where that does not take it either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias, Unpack, assert_never

from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

from deadletter.adapters.framework_letters import letter_of, view_from
from deadletter.adapters.outbox import Outbox
from deadletter.adapters.prepare import prepare
from deadletter.adapters.rulings import AdapterJudge, Finish, Parcel, Ruling
from deadletter.adapters.telling import not_taken, stays_in_hand, tell, tell_stuck
from deadletter.adapters.terms import PAUSES_S, AdapterTerms, AdapterWishes, agree, in_hand_pauses_s
from deadletter.consumer.events import Listener
from deadletter.consumer.handlers.callables import name_of, refuse_generators, seen_out
from deadletter.consumer.queues.declared_layouts import Laid
from deadletter.consumer.queues.layout_routes import Reject
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View
from deadletter.errors import DeadletterError, UsageError
from deadletter.move.flights import Landing

AioPikaCallback: TypeAlias = Callable[[AbstractIncomingMessage], Awaitable[object]]


def retrying(
    url: str, *, queue: str, listener: Listener | None = None, **wishes: Unpack[AdapterWishes]
) -> Callable[[AioPikaCallback], AioPikaRetrying]:
    """Give the decorated coroutine retries. `queue` is the one it is consuming; `url` is for publishing."""
    terms = agree(queue, **wishes)
    return lambda on_message: AioPikaRetrying(on_message, Custodian(url, terms, listener))


class AioPikaRetrying:
    """What `Queue.consume` takes."""

    def __init__(self, on_message: AioPikaCallback, custodian: Custodian) -> None:
        refuse_generators("on_message", on_message)
        self._on_message = on_message
        self._custodian = custodian

    async def __call__(self, message: AbstractIncomingMessage) -> None:
        custodian = self._custodian
        if message.locked:
            raise UsageError(
                f"queue {custodian.terms.queue}: expected messages that can still be acked, got one of "
                "consume(…, no_ack=True); without acks the broker forgets it before it was handled"
            )
        view = view_of(message)  # now: a handler may change its headers
        if await custodian.kept_back(view, message):
            return
        try:
            await seen_out(name_of(self._on_message), self._on_message(message))
        except BaseException as error:
            task = asyncio.current_task()
            cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
            # The handler decided, and what it raised is its own affair; or we are to end.
            if message.processed or cancelled:
                raise
            await custodian.failed(view, message, error)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                raise
            return
        if not message.processed:
            await message.ack()

    async def prepare(self, *, api: str | None = None) -> Laid:
        """Declare the layout. Before the first message."""
        return await self._custodian.prepare(api=api)

    async def close(self) -> None:
        """Close the connection that publishes. After the last message.

        What is still in hand because no place takes it is not settled: the broker has it back with its
        channel.
        """
        await self._custodian.close()


class Custodian:
    """Carries out what was ruled, on a message of aio-pika. FastStream hands out the same ones."""

    def __init__(
        self, url: str, terms: AdapterTerms, listener: Listener | None, outbox: Outbox | None = None
    ) -> None:
        self.terms = terms
        self._url = url
        self._judge = AdapterJudge(terms)
        self._outbox = outbox or Outbox(url, name=terms.teller.service)
        self._listener = listener
        self._closed = asyncio.Event()

    async def prepare(self, *, api: str | None) -> Laid:
        return await prepare(self._url, self.terms, api=api)

    async def close(self) -> None:
        self._closed.set()
        await self._outbox.close()

    async def kept_back(self, view: View, message: AbstractIncomingMessage) -> bool:
        """Whether the handler must not see it. Then it is settled, if it could be."""
        if not message.redelivered:
            return False
        ruling = self._judge.before(self._letter(view, message), _now_ms())
        if ruling is None:
            return False
        await self._carry_out(ruling, message)
        return True

    async def failed(self, view: View, message: AbstractIncomingMessage, error: BaseException) -> None:
        """A handler failed with this message, which is not settled yet. Afterwards it is, if it could be."""
        await self._carry_out(self._judge.after(self._letter(view, message), error, _now_ms()), message)

    def _letter(self, view: View, message: AbstractIncomingMessage) -> Letter:
        return letter_of(
            self.terms.queue,
            view,
            message.body,
            exchange=message.exchange or "",
            routing_key=message.routing_key or "",
            redelivered=bool(message.redelivered),
            circling=self._judge.circling,
        )

    async def _carry_out(self, ruling: Ruling, message: AbstractIncomingMessage) -> None:
        try:
            match ruling.step:
                case Parcel():
                    if not await self._sent_on(ruling.step, message):
                        return
                case Reject(requeue=requeue):
                    await message.reject(requeue=requeue)
                case Finish():
                    await message.ack()
                case _:
                    assert_never(ruling.step)
        except (AMQPError, ChannelInvalidStateError, ConnectionError) as error:
            # Its channel is gone, and the broker has put it back: it comes again, and its copy may come too.
            self.stuck(f"it could not be settled, so it comes again: {type(error).__name__}: {error}")
            return
        tell(ruling.fact, self._listener)

    async def _sent_on(self, parcel: Parcel, message: AbstractIncomingMessage) -> bool:
        """Whether it is at its next place, and acked. Else it is in its own queue anew, or not settled."""
        for pause_s in PAUSES_S:
            if await self._placed(parcel, message):
                return True
            if await self._ended(pause_s):
                return False
        renewed = self._judge.renewed(parcel.letter)
        for pause_s in in_hand_pauses_s():
            if renewed is not None and await self._placed(renewed, message):
                return False
            self.stuck(stays_in_hand(pause_s))
            if await self._ended(pause_s):
                return False
            if await self._placed(parcel, message):
                return True
            if self._closed.is_set():
                return False
        raise AssertionError("the pauses do not end")

    async def _ended(self, pause_s: float) -> bool:
        """Wait; whether we were closed meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        return self._closed.is_set()

    async def _placed(self, parcel: Parcel, message: AbstractIncomingMessage) -> bool:
        """Whether it is there, and acked. Raises where its channel is gone: then it is in its queue again."""
        if message.channel.is_closed:  # which also raises by itself
            raise ChannelInvalidStateError
        try:
            outcome = await self._outbox.send(parcel)
        except DeadletterError as error:
            self.stuck(f"it could not be published: {error}")
            return False
        if outcome is Landing.SAFE:
            await message.ack()
            return True
        self.stuck(not_taken(parcel, outcome.value))
        return False

    def stuck(self, why: str) -> None:
        tell_stuck(self.terms.queue, why, self._listener)


async def until_lost(message: AbstractIncomingMessage) -> None:
    """Until the channel of a message is gone, and the broker has put it back."""
    with suppress(ChannelInvalidStateError):
        await asyncio.wait((message.channel.closing,))


def view_of(message: AbstractIncomingMessage) -> View:
    """Its properties, as far as aio-pika tells them: no priority and priority 0 are the same to it."""
    seconds: object = message.expiration
    return replace(
        view_from(message),
        delivery_mode=int(message.delivery_mode) if message.delivery_mode else None,
        priority=message.priority or None,
        expiration=str(round(seconds * 1000)) if isinstance(seconds, int | float) else None,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
