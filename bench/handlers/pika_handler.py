"""pika's blocking consumer: a callback and an ack per message; confirms on a channel of their own."""

from __future__ import annotations

import json
from typing import Any

import pika

from bench.handlers.task import QUEUE, RETRY, Clock, Task


def consume(task: Task, clock: Clock) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(task.url))
    taking, giving = connection.channel(), connection.channel()
    taking.basic_qos(prefetch_count=task.prefetch)
    giving.confirm_delivery()

    def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        last = clock.tick()
        order = json.loads(body)
        if task.is_bad(order):
            properties.headers = {**(properties.headers or {}), "attempt": 1}
            giving.basic_publish("", RETRY, body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        if last:
            channel.stop_consuming()

    taking.basic_consume(QUEUE, handle)
    taking.start_consuming()
    connection.close()
