"""Retries with FastStream: your broker and your subscribers, and a middleware.

    python examples/with_faststream.py --url amqp://guest:guest@localhost/ --api http://localhost:15672

Five orders are published. One succeeds at once, one at the third try, one can never succeed and says so, one
fails until its retries are used up, one is not an order at all. The last three end in `shop.orders__dlq`,
with the reason on them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections import Counter

from faststream import AckPolicy, FastStream
from faststream.rabbit import RabbitBroker, RabbitQueue
from pydantic import BaseModel, ValidationError

from deadletter.adapters.faststream import with_retries
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event, Fate, Handled
from deadletter.consumer.outcomes import park

QUEUE = "shop.orders"
POLICIES = {policy.name: policy for policy in (AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR)}


class Order(BaseModel):
    order: str


class PaymentRefused(Exception):
    """Tomorrow it will be the same."""


async def main(url: str, api: str | None, ack_policy: AckPolicy) -> None:
    tries: Counter[str] = Counter()
    done: dict[str, str] = {}

    def end(order: str, how: str) -> None:
        done[order] = how
        if len(done) == 5:
            app.exit()

    def listen(event: Event) -> None:  # for the end of this example; the log has a line of its own
        if isinstance(event, Handled) and event.fate is Fate.PARKED and event.letter is not None:
            end(json.loads(event.letter.body).get("order", "not an order"), event.cause)

    retries = with_retries(
        url,
        retries=3,
        backoff=fixed(0.2, 0.4, 0.6),
        on={PaymentRefused: park, ValidationError: park},  # FastStream says ValidationError of a body
        service="shop",
        listener=listen,
    )
    broker = RabbitBroker(url, middlewares=[retries], logger=None)
    app = FastStream(broker)

    @broker.subscriber(RabbitQueue(QUEUE, declare=False), ack_policy=ack_policy)
    async def handle(order: Order) -> None:
        tries[order.order] += 1
        if order.order == "refused":
            raise PaymentRefused("the card is not valid")
        if order.order == "hopeless" or (order.order == "flaky" and tries[order.order] < 3):
            raise TimeoutError("the warehouse did not answer")
        end(order.order, "handled")

    @app.on_startup
    async def declare() -> None:
        await retries.prepare(broker, api=api)

    @app.after_startup
    async def publish() -> None:
        for order in ("good", "flaky", "refused", "hopeless"):
            await broker.publish(
                {"order": order}, QUEUE, persist=True, message_id="m-1", priority=3, headers={"tenant": 7}
            )
        await broker.publish({"something": "else"}, QUEUE, persist=True, message_id="m-1")

    @app.after_shutdown
    async def close() -> None:
        await retries.close()

    async with asyncio.timeout(60):
        await app.run()
    print(json.dumps({"tries": tries, "ends": done}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="amqp://guest:guest@localhost/")
    parser.add_argument("--api", default=None)
    parser.add_argument("--ack-policy", default="NACK_ON_ERROR", choices=sorted(POLICIES))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    for noisy in ("faststream", "aio_pika", "aiormq"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    asyncio.run(main(arguments.url, arguments.api, POLICIES[arguments.ack_policy]))
