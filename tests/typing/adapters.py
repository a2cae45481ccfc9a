"""Retries for those who stay with their framework."""

from __future__ import annotations

import aio_pika
import pika
from aio_pika.abc import AbstractIncomingMessage
from faststream import AckPolicy, FastStream
from faststream.rabbit import RabbitBroker, RabbitQueue
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from deadletter import Event, exponential, fixed, park
from deadletter.adapters import aio_pika as on_aio_pika
from deadletter.adapters import pika as on_pika
from deadletter.adapters.faststream import with_retries

URL = "amqp://host"


def listen(event: Event) -> None: ...


@on_aio_pika.retrying(
    URL,
    queue="orders",
    layout="ladder",
    retries=5,
    backoff=exponential(1),
    on={ValueError: park},
    listener=listen,
)
async def on_message(message: AbstractIncomingMessage) -> None:
    message.body.decode()


async def with_aio_pika() -> None:
    connection = await aio_pika.connect(URL)
    queue = await (await connection.channel()).get_queue("orders")
    await on_message.prepare(api="http://host:15672")
    await queue.consume(on_message)
    await on_message.close()


@on_pika.retrying(
    queue="orders", retries=3, on={KeyError: fixed(60)}, deliveries=5, service="shop", release="1"
)
def callback(
    channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
) -> None: ...


def with_pika() -> None:
    callback.prepare(URL, api="http://host:15672")
    channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
    channel.basic_consume("orders", callback)


retries = with_retries(URL, retries=5, on={ValueError: park}, redact=lambda text: text, listener=listen)
broker = RabbitBroker(URL, middlewares=[retries])
app = FastStream(broker)


@broker.subscriber(RabbitQueue("orders", declare=False), ack_policy=AckPolicy.NACK_ON_ERROR)
async def handle(order: str) -> None: ...


@app.on_startup
async def declare() -> None:
    await retries.prepare(broker, api="http://host:15672")
