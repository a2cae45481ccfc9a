"""Retries for Dramatiq: its own dead-letter queue, and `dlq serve` watching it.

    python examples/with_dramatiq.py --url amqp://guest:guest@localhost/ --api http://localhost:15672

No code of ours runs in the worker. Dramatiq's own retries are switched off; a message whose actor failed dies
into `orders.XQ`, and `dlq serve` (started here beside it) sends it back after a delay, or parks it when its
retries are used up.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from contextlib import closing

import dramatiq
import pika
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from served import dlq_serve, until

QUEUE = "orders"


def main(url: str, api: str | None) -> None:
    tries: Counter[str] = Counter()
    # Confirmed: without it a message that the broker did not take is lost in silence.
    broker = RabbitmqBroker(url=url, confirm_delivery=True)
    dramatiq.set_broker(broker)

    @dramatiq.actor(
        queue_name=QUEUE, max_retries=0
    )  # 0: nothing waits in a worker's memory, all in the broker
    def handle(order: str) -> None:
        tries[order] += 1
        if order == "hopeless" or (order == "flaky" and tries[order] < 3):
            raise TimeoutError("the warehouse did not answer")

    broker.declare_queue(QUEUE, ensure=True)
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    try:
        with dlq_serve(url, api, f"{QUEUE}.XQ"):
            for order in ("good", "flaky", "hopeless"):
                handle.send(order)
            until(lambda: tries == {"good": 1, "flaky": 3, "hopeless": 4})
            until(lambda: parked(url) == 1)
    finally:
        worker.stop()
        broker.close()
    print(json.dumps({"tries": tries, "parked": parked(url)}))


def parked(url: str) -> int:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        return int(connection.channel().queue_declare("deadletter.parked", passive=True).method.message_count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="amqp://guest:guest@localhost/")
    parser.add_argument("--api", default=None)
    arguments = parser.parse_args()
    main(arguments.url, arguments.api)
