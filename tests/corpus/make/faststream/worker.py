"""The worker of parcels: FastStream, with the adapter's middleware."""

import asyncio
import inspect
import json
import os
import uuid

import pika
from faststream import AckPolicy, FastStream
from faststream.rabbit import RabbitBroker, RabbitQueue
from pydantic import BaseModel, Field

from deadletter.adapters.faststream import with_retries
from shop.handlers import HANDLERS
from telling import RELEASE, URL, instances, sent

retries = with_retries(URL, retries=0, service="parcels", release=f"2026.{RELEASE}")
broker = RabbitBroker(URL, middlewares=[retries], logger=None)
app = FastStream(broker, logger=None)


class Letter(BaseModel):
    type: str
    data: dict


class Parcel(BaseModel):
    number: int
    weight: float = Field(gt=0)


@broker.subscriber(RabbitQueue("parcels.orders", declare=False), ack_policy=AckPolicy.NACK_ON_ERROR)
async def handle(letter: Letter) -> None:
    done = HANDLERS[letter.type](letter.data)
    if inspect.isawaitable(done):
        await done


@broker.subscriber(RabbitQueue("parcels.imports", declare=False), ack_policy=AckPolicy.REJECT_ON_ERROR)
async def weigh(parcel: Parcel) -> float:
    return HANDLERS["stock.weighed"]({"weight": parcel.weight - 1_000})


NAMES = """sku-missing-when-reserving currency-missing-when-pricing metadata-truncated voucher-no-number
age-no-number warehouse-503 warehouse-404 ping-refused reservation-without-sku reservation-shelf-taken
template-without-name receipt-late some-mails-refused some-addresses-wrong out-of-stock price-no-decimal
address-unknown""".split()


def publish():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()

    def put(queue, key, body):
        properties = pika.BasicProperties(message_id=key, delivery_mode=2, content_type="application/json")
        channel.basic_publish("", queue, body, properties)

    for key, case, data in instances(NAMES, "parcels.orders"):
        put("parcels.orders", key, json.dumps({"type": case.type, "data": data}).encode())
    for number in range(3 - RELEASE):
        for name, body, why in (
            ("weight-missing", b'{"number": %d}' % (number + RELEASE), "pydantic: weight missing"),
            ("weight-not-positive", b'{"number": 1, "weight": -%d}' % (7 + number), "pydantic: weight not above 0"),
            ("weight-refused", b'{"number": 1, "weight": %d}' % (number + RELEASE), "a bare assert in the warehouse"),
            ("no-json", b'{"number": %d, "weight"' % (10 ** (number + RELEASE)), "a body cut off, said to be JSON"),
        ):
            key = str(uuid.uuid4())
            sent(key, f"parcels.imports/{name}", why)
            put("parcels.imports", key, body)
    connection.close()


@app.on_startup
async def declare() -> None:
    await retries.prepare(broker, api=os.environ["AMQP_API"])


@app.after_startup
async def begin() -> None:
    await asyncio.to_thread(publish)


asyncio.run(app.run())
