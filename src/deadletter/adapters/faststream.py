"""FastStream: a middleware of a RabbitBroker or RabbitRouter.

    retries = with_retries(url, retries=5, backoff=exponential(1, cap=60), on={PaymentRefused: park})
    broker = RabbitBroker(url, middlewares=[retries])
    app = FastStream(broker, on_startup=[…await retries.prepare(broker, api=…)…])

    @broker.subscriber(RabbitQueue("orders", declare=False), ack_policy=AckPolicy.NACK_ON_ERROR)
    async def handle(order: Order) -> None: ...

It sees every failure of a message: parser, decoder, handler, and the publishing of a reply. It settles what
failed itself, and FastStream, which settles afterwards, finds it settled. That is safe with the AckPolicy
REJECT_ON_ERROR (the default), NACK_ON_ERROR (the best: what we leave alone is requeued) and MANUAL. It is not
with ACK_FIRST, where the broker has forgotten the message before it is handled, nor with ACK, which also acks
what a StopConsume or SystemExit interrupted; `prepare` refuses these.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Protocol, Unpack

from aio_pika import IncomingMessage
from faststream import AckPolicy, BaseMiddleware, ContextRepo
from faststream.exceptions import AckMessage, IgnoredException, SubscriberNotFound
from faststream.message import StreamMessage
from faststream.rabbit.subscriber import RabbitSubscriber

from deadletter.adapters.aio_pika import Custodian, until_lost, view_of
from deadletter.adapters.outbox import Outbox
from deadletter.adapters.terms import AdapterWishes, agree
from deadletter.consumer.events import Listener
from deadletter.consumer.handlers.callables import refuse_unbegun
from deadletter.consumer.outcomes import Undecodable
from deadletter.consumer.queues.declared_layouts import Laid
from deadletter.core.letter.message import View
from deadletter.errors import UsageError

SAFE: Final = (AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL)
_HANDLER: Final = "handler_"
"""Where FastStream keeps the subscriber of the message at hand."""


class FastStreamHost(Protocol):
    """A broker or a router."""

    @property
    def subscribers(self) -> list[Any]: ...


def with_retries(url: str, *, listener: Listener | None = None, **wishes: Unpack[AdapterWishes]) -> Retries:
    """Retries for all queues of the broker or router that gets this middleware."""
    agree("any", **wishes)  # what makes no sense is said now, not with the first message
    return Retries(url, wishes, listener)


class Retries:
    """What `middlewares=[…]` takes. FastStream makes a `RetryMiddleware` of it for each message."""

    def __init__(self, url: str, wishes: AdapterWishes, listener: Listener | None) -> None:
        self._url = url
        self._wishes = wishes
        self._listener = listener
        self._outbox: Outbox | None = None
        self._custodians: dict[str, Custodian] = {}

    async def prepare(self, broker: FastStreamHost, *, api: str | None = None) -> dict[str, Laid]:
        """Declare the layout of every queue that is subscribed to; refuse what could lose a message."""
        laid: dict[str, Laid] = {}
        for subscriber in broker.subscribers:
            queue = queue_of(subscriber)
            if subscriber.ack_policy not in SAFE:
                raise UsageError(
                    f"queue {queue}: expected AckPolicy {', '.join(policy.name for policy in SAFE)}, got "
                    f"{subscriber.ack_policy.name}; with it a message could be acked that was not handled: "
                    "give the subscriber ack_policy=AckPolicy.NACK_ON_ERROR"
                )
            if queue not in laid:
                laid[queue] = await self.custodian(queue).prepare(api=api)
        return laid

    async def close(self) -> None:
        """Close the connection that publishes. After the broker was stopped."""
        for custodian in self._custodians.values():
            await custodian.close()

    def custodian(self, queue: str) -> Custodian:
        found = self._custodians.get(queue)
        if found is None:
            self._outbox = self._outbox or Outbox(self._url, name=self._wishes.get("service", ""))
            found = Custodian(self._url, agree(queue, **self._wishes), self._listener, self._outbox)
            self._custodians[queue] = found
        return found

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> RetryMiddleware:
        return RetryMiddleware(msg, context=context, retries=self)


class RetryMiddleware(BaseMiddleware[Any, Any]):
    """For one message; also made for publishes and for replies, with which it has nothing to do."""

    def __init__(self, msg: Any, /, *, context: ContextRepo, retries: Retries) -> None:
        super().__init__(msg, context=context)
        self._retries = retries
        self._reached = False
        """Whether the handler's turn came; before it only parsing can fail."""
        self._view = View()

    async def on_receive(self) -> None:
        if isinstance(self.msg, IncomingMessage):
            self._view = view_of(self.msg)

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]) -> Any:
        self._reached = True
        custodian = self._ours()
        if custodian is not None and await custodian.kept_back(self._view, self.msg):
            await self._not_by_policy()
            raise AckMessage  # it is settled; with this FastStream goes on without a word
        try:
            await msg.decode()  # the handler's own decoding takes the same result
        except Exception as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error
        returned = await call_next(msg)
        if inspect.isawaitable(
            returned
        ):  # FastStream calls a plain wrapper and takes its coroutine for a reply
            returned = await returned
        refuse_unbegun("of FastStream", returned)
        return returned

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,  # noqa: ARG002 -- FastStream's signature
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,  # noqa: ARG002
    ) -> bool | None:
        """False: FastStream logs the error, and finds the message settled."""
        if not isinstance(exc_val, Exception) or isinstance(exc_val, IgnoredException):
            return False
        custodian = self._ours()
        if custodian is None:
            return False
        try:
            await custodian.failed(self._view, self.msg, self._meant(exc_val))
        except Exception as error:
            # Not foreseen; FastStream's own policy must not decide over a message whose way we do not know.
            custodian.stuck(f"it stays in hand, unsettled: {type(error).__name__}: {error}")
            await self._not_by_policy()
            raise
        await self._not_by_policy()
        return False

    async def _not_by_policy(self) -> None:
        """What could not be settled FastStream must not settle: the broker has it back with its channel."""
        if not self.msg.locked:
            await until_lost(self.msg)

    def _ours(self) -> Custodian | None:
        """Who takes care of it; None for what was settled, or never was to be acked."""
        if not isinstance(self.msg, IncomingMessage) or self.msg.locked:
            return None
        subscriber = self.context.get_local(_HANDLER)
        if not isinstance(subscriber, RabbitSubscriber):
            return None
        return self._retries.custodian(queue_of(subscriber))

    def _meant(self, error: Exception) -> Exception:
        """What a parser raised says that it cannot be read, whatever the error's class."""
        if self._reached or isinstance(error, SubscriberNotFound):
            return error
        meant = Undecodable(f"{type(error).__name__}: {error}")
        meant.__cause__ = error
        return meant


def queue_of(subscriber: RabbitSubscriber) -> str:
    """Its name on the broker, with the prefix of the router it is in."""
    prefix = subscriber.routing().removesuffix(subscriber.queue.routing())
    return f"{prefix}{subscriber.queue.name}"
