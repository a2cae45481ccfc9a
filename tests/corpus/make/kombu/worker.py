"""The worker of the ledger: Kombu alone, and an error queue made by hand, as many have one.

A message that failed is published once more, with the error in headers of its own making.
"""

import asyncio
import inspect
import socket
import time
import traceback
import uuid

from kombu import Connection, Exchange, Producer, Queue
from kombu.mixins import ConsumerMixin

from shop.handlers import HANDLERS
from telling import RELEASE, URL, instances, sent

EXCHANGE = Exchange("ledger", type="topic", durable=True)
QUEUES = [
    Queue("ledger.entries", EXCHANGE, routing_key="entry.#"),
    Queue("ledger.audit", EXCHANGE, routing_key="audit.#"),
]
ERRORS = Queue("ledger.errors", Exchange("ledger.errors", type="fanout"))
NAMES = """sku-missing-when-pricing currency-unknown limit-exceeded order-saved-twice order-saved-for-nobody
gateway-503-charging gateway-503-refunding gateway-404-charging balance-refused settle-refused settle-without-token
fallback-missing export-refused manifest-not-utf8 attachment-refused mail-not-archived some-mails-refused
discount-of-nothing label-not-there""".split()


class Worker(ConsumerMixin):
    def __init__(self, connection):
        self.connection = connection

    def get_consumers(self, consumer, channel):
        return [consumer(QUEUES, callbacks=[self.on_message], accept=["json"], on_decode_error=self.on_decode_error)]

    def on_message(self, body, message):
        try:
            done = HANDLERS[body["type"]](body["data"])
            if inspect.iscoroutine(done):
                asyncio.run(done)
        except Exception as error:
            self.put_aside(message, error)
        message.ack()

    def on_decode_error(self, message, error):
        self.put_aside(message, error)
        message.ack()

    def put_aside(self, message, error):
        queue = "ledger.audit" if message.delivery_info["routing_key"].startswith("audit.") else "ledger.entries"
        with self.connection.clone() as connection:
            Producer(connection).publish(
                message.body,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                exchange=ERRORS.exchange,
                declare=[ERRORS],
                headers={
                    **message.headers,
                    "x-original-queue": queue,
                    "x-original-routing-key": message.delivery_info["routing_key"],
                    "x-error-class": type(error).__name__,
                    "x-error": str(error),
                    "x-traceback": "".join(traceback.format_exception(error)),
                    "x-failed-at": time.time(),
                    "x-failed-on": f"{socket.gethostname()}-{RELEASE}",
                },
                message_id=message.properties.get("message_id"),
            )


with Connection(URL) as connection:
    producer = Producer(connection)
    for queue, key_prefix, names in (
        ("ledger.entries", "entry", NAMES), ("ledger.audit", "audit", ["limit-exceeded", "order-saved-twice"]),
    ):
        for key, case, data in instances(names, queue):
            producer.publish(
                {"type": case.type, "data": data}, exchange=EXCHANGE, routing_key=f"{key_prefix}.{case.type}",
                declare=QUEUES, message_id=key, serializer="json",
            )
    for number in range(3 - RELEASE):
        for name, why, content_type, body in (
            ("not-json", "a body that is no JSON: Kombu's DecodeError around it", "application/json", b"\x00\x9f%d" % number),
            ("content-refused", "a content type that is not accepted", "application/x-python-serialize", b"x"),
        ):
            key = str(uuid.uuid4())
            sent(key, f"ledger.entries/{name}", why)
            producer.publish(
                body, exchange=EXCHANGE, routing_key="entry.raw", message_id=key, content_type=content_type,
                content_encoding="binary" if name == "content-refused" else "utf-8",
            )
    Worker(connection).run()
