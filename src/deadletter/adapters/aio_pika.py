"""aio-pika: a decorator around an `on_message` coroutine.

    @retrying(url, queue="orders", retries=5, backoff=exponential(1, cap=60), on={ValidationError: park})
    async def on_message(message: AbstractIncomingMessage) -> None: ...

    await on_message.prepare(api="http://…:15672")
    await queue.consume(on_message)

Returning acks. Raising is judged by the rules: published again or aside, confirmed, then acked. Whoever
settled the message in the handler has decided; then nothing more is done with it. A message that cannot be
placed is given back to its queue after a few tries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, Unpack, assert_never

from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

from deadletter.adapters.framework_letters import letter_of, view_from
from deadletter.adapters.outbox import Outbox
from deadletter.adapters.prepare import prepare
from deadletter.adapters.rulings import AdapterJudge, Finish, Parcel, Ruling
from deadletter.adapters.telling import not_taken, tell, tell_stuck
from deadletter.adapters.terms import PAUSES_S, AdapterTerms, AdapterWishes, agree
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
        """Close the connection that publishes. After the last message."""
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

    async def prepare(self, *, api: str | None) -> Laid:
        return await prepare(self._url, self.terms, api=api)

    async def close(self) -> None:
        await self._outbox.close()

    async def kept_back(self, view: View, message: AbstractIncomingMessage) -> bool:
        """Whether the handler must not see it, and it is dealt with."""
        if not message.redelivered:
            return False
        ruling = self._judge.before(self._letter(view, message), _now_ms())
        if ruling is None:
            return False
        await self._carry_out(ruling, message)
        return True

    async def failed(self, view: View, message: AbstractIncomingMessage, error: BaseException) -> None:
        """A handler failed with this message, which is not settled yet."""
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
                    if not await self._placed(ruling.step):
                        await self._give_back(ruling.step, message)
                        return
                    await message.ack()
                case Reject(requeue=requeue):
                    await message.reject(requeue=requeue)
                case Finish():
                    await message.ack()
                case _:
                    assert_never(ruling.step)
        except (AMQPError, ChannelInvalidStateError, ConnectionError) as error:
            # Its channel is gone, and the broker has put it back: it comes again, and its copy may come too.
            self._stuck(f"it could not be settled, so it comes again: {type(error).__name__}: {error}")
            return
        tell(ruling.fact, self._listener)

    async def _give_back(self, parcel: Parcel, message: AbstractIncomingMessage) -> None:
        """To be tried again later, without spending its deliveries."""
        renewed = self._judge.renewed(parcel.letter)
        if renewed is not None and await self._placed(renewed, pauses_s=(0.0,)):
            await message.ack()
        else:
            await message.nack(requeue=True)

    async def _placed(self, parcel: Parcel, pauses_s: Sequence[float] | None = None) -> bool:
        for pause_s in PAUSES_S if pauses_s is None else pauses_s:
            try:
                outcome = await self._outbox.send(parcel)
            except DeadletterError as error:
                self._stuck(f"it could not be published: {error}")
            else:
                if outcome is Landing.SAFE:
                    return True
                self._stuck(not_taken(parcel, outcome.value))
            await asyncio.sleep(pause_s)
        return False

    def _stuck(self, why: str) -> None:
        tell_stuck(self.terms.queue, why, self._listener)


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
