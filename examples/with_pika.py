"""Retries with pika's BlockingConnection: your loop, your callback, and a decorator.

    python examples/with_pika.py --url amqp://guest:guest@localhost/ --api http://localhost:15672

Four orders are published. One succeeds at once, one at the third try, one can never succeed and says so, one
fails until its retries are used up. The last two end in `shop.orders__dlq`, with the reason on them.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import Counter
from contextlib import closing
from typing import Any

import pika

from deadletter.adapters.pika import retrying
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event, Fate, Handled
from deadletter.consumer.outcomes import park

QUEUE = "shop.orders"
tries: Counter[str] = Counter()
done: dict[str, str] = {}


class PaymentRefused(Exception):
    """Tomorrow it will be the same."""


def listen(event: Event) -> None:  # for the end of this example; the log has a line of its own
    if isinstance(event, Handled) and event.fate is Fate.PARKED and event.letter is not None:
        done[json.loads(event.letter.body)["order"]] = event.cause


@retrying(
    queue=QUEUE,
    retries=3,
    backoff=fixed(0.2, 0.4, 0.6),
    on={PaymentRefused: park},
    service="shop",
    listener=listen,
)
def on_message(_channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
    order = json.loads(body)["order"]
    tries[order] += 1
    if order == "refused":
        raise PaymentRefused("the card is not valid")
    if order == "hopeless" or (order == "flaky" and tries[order] < 3):
        raise TimeoutError("the warehouse did not answer")
    done[order] = "handled"


def main(url: str, api: str | None) -> None:
    on_message.prepare(url, api=api)
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        for order in ("good", "flaky", "refused", "hopeless"):
            properties = pika.BasicProperties(
                delivery_mode=2, message_id="m-1", priority=3, headers={"tenant": 7}
            )
            channel.basic_publish("", QUEUE, json.dumps({"order": order}).encode(), properties)
        channel.basic_consume(QUEUE, on_message)
        until = time.monotonic() + 60
        while len(done) < 4 and time.monotonic() < until:
            connection.process_data_events(time_limit=0.2)  # in an application: channel.start_consuming()
    print(json.dumps({"tries": tries, "ends": done}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="amqp://guest:guest@localhost/")
    parser.add_argument("--api", default=None)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    logging.getLogger("pika").setLevel(logging.WARNING)
    main(arguments.url, arguments.api)
