"""Retries with aio-pika: your consumer, your connection, and a decorator.

    python examples/with_aio_pika.py --url amqp://guest:guest@localhost/ --api http://localhost:15672

Four orders are published. One succeeds at once, one at the third try, one can never succeed and says so, one
fails until its retries are used up. The last two end in `shop.orders__dlq`, with the reason on them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections import Counter

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from deadletter.adapters.aio_pika import retrying
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event, Fate, Handled
from deadletter.consumer.outcomes import park

QUEUE = "shop.orders"


class PaymentRefused(Exception):
    """Tomorrow it will be the same."""


async def main(url: str, api: str | None) -> None:
    tries: Counter[str] = Counter()
    done: dict[str, str] = {}
    finished = asyncio.Event()

    def end(order: str, how: str) -> None:
        done[order] = how
        if len(done) == 4:
            finished.set()

    def listen(event: Event) -> None:  # for the end of this example; the log has a line of its own
        if isinstance(event, Handled) and event.fate is Fate.PARKED and event.letter is not None:
            end(json.loads(event.letter.body)["order"], event.cause)

    @retrying(
        url,
        queue=QUEUE,
        retries=3,
        backoff=fixed(0.2, 0.4, 0.6),
        on={PaymentRefused: park},
        service="shop",
        listener=listen,
    )
    async def on_message(message: AbstractIncomingMessage) -> None:
        order = json.loads(message.body)["order"]
        tries[order] += 1
        if order == "refused":
            raise PaymentRefused("the card is not valid")
        if order == "hopeless" or (order == "flaky" and tries[order] < 3):
            raise TimeoutError("the warehouse did not answer")
        end(order, "handled")

    await on_message.prepare(api=api)
    connection = await aio_pika.connect_robust(url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=20)
        queue = await channel.get_queue(QUEUE)
        tag = await queue.consume(on_message)
        for order in ("good", "flaky", "refused", "hopeless"):
            body = json.dumps({"order": order}).encode()
            # All with one message id: where retries are, ids repeat.
            message = aio_pika.Message(
                body, delivery_mode=2, message_id="m-1", priority=3, headers={"tenant": 7}
            )
            await channel.default_exchange.publish(message, routing_key=QUEUE)
        async with asyncio.timeout(60):
            await finished.wait()
        await queue.cancel(tag)
    await on_message.close()
    print(json.dumps({"tries": tries, "ends": done}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="amqp://guest:guest@localhost/")
    parser.add_argument("--api", default=None)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    logging.getLogger("aio_pika").setLevel(logging.WARNING)
    asyncio.run(main(arguments.url, arguments.api))
