"""The worker of bakery: aio-pika, with the adapter's decorator. Its second release runs on another Python."""

import asyncio
import inspect
import json
import os

import aio_pika

from deadletter.adapters.aio_pika import retrying
from shop.handlers import HANDLERS
from telling import RELEASE, URL, instances

NAMES = """sku-missing-when-pricing sku-missing-when-reserving currency-missing-when-pricing currency-unknown
limit-exceeded voucher-no-number age-no-number gateway-503-charging gateway-503-refunding settle-refused
settle-without-token fallback-missing category-in-a-circle receipt-late bounce-late some-mails-refused
some-addresses-wrong weight-not-positive length-not-positive cancel-without-address greet-without-address
metadata-empty price-no-decimal""".split()


@retrying(URL, queue="bakery.orders", retries=0, service="bakery", release=f"{RELEASE}.0")
async def on_message(message) -> None:
    letter = json.loads(message.body)
    done = HANDLERS[letter["type"]](letter["data"])
    if inspect.isawaitable(done):
        await done


async def main():
    await on_message.prepare(api=os.environ["AMQP_API"])
    connection = await aio_pika.connect_robust(URL)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=20)
    queue = await channel.get_queue("bakery.orders")
    await queue.consume(on_message)
    for key, case, data in instances(NAMES, "bakery.orders"):
        body = json.dumps({"type": case.type, "data": data}).encode()
        await channel.default_exchange.publish(
            aio_pika.Message(body, delivery_mode=2, message_id=key), routing_key="bakery.orders"
        )
    await asyncio.Future()


asyncio.run(main())
