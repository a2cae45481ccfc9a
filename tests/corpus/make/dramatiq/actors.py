"""The actors of media."""

import asyncio
import inspect
import os

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from shop.handlers import HANDLERS

broker = RabbitmqBroker(url=os.environ["AMQP_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="media", max_retries=1, min_backoff=1, max_backoff=2)
def handle(kind, data):
    done = HANDLERS[kind](data)
    if inspect.iscoroutine(done):
        asyncio.run(done)


@dramatiq.actor(queue_name="media.fast", max_retries=1, min_backoff=1, max_backoff=2)
def handle_fast(kind, data):
    return HANDLERS[kind](data)


@dramatiq.actor(queue_name="media", max_retries=0)
def thumbnail(data):
    return 100 / data["width"]


@dramatiq.actor(queue_name="media", throws=(LookupError,))
def subtitle(data):
    return data["language"]


@dramatiq.actor(queue_name="media", max_retries=1, min_backoff=1, max_backoff=2)
def resize(width, height):
    return width * height


@dramatiq.actor(queue_name="media", max_retries=1, min_backoff=1, max_backoff=2, time_limit=1_000)
def transcode(seconds):
    for _ in range(seconds):
        for _ in range(10_000_000):
            pass
