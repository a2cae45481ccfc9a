"""What most scripts do: get a letter, publish it, wait for the confirm, ack it; then the next one."""

from __future__ import annotations

import pika

from bench.job import Job


def move(job: Job) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(job.url))
    channel = connection.channel()
    channel.confirm_delivery()
    moved = 0
    while True:
        method, properties, body = channel.basic_get(job.source)
        if method is None:
            break
        # Raises when the broker returns or refuses it.
        channel.basic_publish("", job.target, body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        moved += 1
    connection.close()
    if moved != job.count:
        raise RuntimeError(f"expected {job.count} letters to move, got {moved}")
