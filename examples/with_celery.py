"""Retries for Celery: a dead-letter exchange, four settings, and `dlq serve`.

    python examples/with_celery.py --url amqp://guest:guest@localhost/ --api http://localhost:15672

No code of ours runs in the worker. A task that fails is rejected, its message dies into `celery.dlq`, and
`dlq serve` (started here beside it) sends it back after a delay, or parks it when its retries are used up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import pika
from celery import Celery
from kombu import Queue
from served import dlq_serve, running, until

DLQ = "celery.dlq"


def application(url: str, log: str) -> Celery:
    app = Celery("shop", broker=url)
    app.conf.update(
        # What matters: ack when the task ended, reject when it failed, give back when the worker died.
        task_acks_late=True,
        task_acks_on_failure_or_timeout=False,
        task_reject_on_worker_lost=True,
        task_queues=[
            Queue(
                "celery",
                queue_arguments={
                    "x-queue-type": "quorum",
                    "x-delivery-limit": 5,  # a task that kills its worker comes to an end too
                    "x-dead-letter-strategy": "at-least-once",  # with the next line; else at most once
                    "x-overflow": "reject-publish",
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": DLQ,
                },
            )
        ],
        # Publishing: confirmed, or a lost connection is a lost task.
        broker_transport_options={"confirm_publish": True},
        # RabbitMQ 4.3 has no transient queues for the worker's chatter any more.
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        task_ignore_result=True,
    )

    @app.task(name="handle")
    def handle(order: str) -> None:
        with Path(log).open("a") as file:
            file.write(order + "\n")
        tries = Path(log).read_text().split().count(order)
        if order == "hopeless" or (order == "flaky" and tries < 3):
            raise TimeoutError("the warehouse did not answer")

    return app


def main(url: str, api: str | None) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        # The application declares it, as it declares its own queues.
        channel.queue_declare(DLQ, durable=True, arguments={"x-queue-type": "quorum"})
    with tempfile.TemporaryDirectory() as directory:
        log = str(Path(directory, "log"))
        Path(log).touch()
        worker = [sys.executable, __file__, "--url", url, "--worker", log]
        with running(worker), dlq_serve(url, api, DLQ):
            app = application(url, log)
            for order in ("good", "flaky", "hopeless"):
                app.send_task("handle", [order])
            until(lambda: tries(log) == {"good": 1, "flaky": 3, "hopeless": 4})
            until(lambda: parked(url) == 1)
        print(json.dumps({"tries": tries(log), "parked": parked(url)}))


def tries(log: str) -> Counter[str]:
    return Counter(Path(log).read_text().split())


def parked(url: str) -> int:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        return int(connection.channel().queue_declare("deadletter.parked", passive=True).method.message_count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="amqp://guest:guest@localhost/")
    parser.add_argument("--api", default=None)
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        options = ["--concurrency=1", "--without-mingle", "--without-gossip", "--loglevel=warning"]
        application(arguments.url, arguments.worker).worker_main(["worker", *options])
    else:
        main(arguments.url, arguments.api)
