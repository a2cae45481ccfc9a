"""No framework at all: what the broker alone says of a letter that died, for every reason there is."""

import os
import time
import uuid

import pika

URL, RELEASE = os.environ["AMQP_URL"], int(os.environ["RELEASE"])
DEAD = {"x-dead-letter-exchange": "mill.dlx"}


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("mill.dlx", "topic", durable=True)
    channel.queue_declare("mill.dead", durable=True)
    channel.queue_bind("mill.dead", "mill.dlx", "#")

    def queue(name, **arguments):
        spelled = {key.replace("_", "-"): value for key, value in arguments.items()}
        channel.queue_declare(name, durable=True, arguments={**DEAD, **spelled})

    def put(name, case, why, body=None, **properties):
        key = str(uuid.uuid4())
        sent(key, f"{name}/{case}", why)
        channel.basic_publish("", name, body or b'{"grain": "%s"}' % key.encode(), pika.BasicProperties(
            message_id=key, delivery_mode=2, **properties))

    queue("mill.grain")
    queue("mill.flour")
    queue("mill.orders", x_message_ttl=300)
    queue("mill.latest", x_max_length=1)
    queue("mill.heavy", x_queue_type="quorum", x_delivery_limit=2)
    queue("mill.late")
    for number in range(3):
        put("mill.grain", "rejected", "a consumer rejected it and wrote nothing", headers={"tenant": number})
        put("mill.flour", "rejected", "the same of another queue")
        put("mill.orders", "expired", "the queue's TTL struck: nobody consumes")
        put("mill.late", "expired", "the message's own TTL struck", expiration=str(50 + number))
        put("mill.heavy", "delivery-limit", "given back until the broker had enough")
        put("mill.grain", "rejected", "the same, and nobody can read the body", body=bytes([0xFF, number, 0xFE]))
    for number in range(4):
        put("mill.latest", "maxlen", "the queue was full")
    for name, times in ("mill.grain", 6), ("mill.flour", 3):
        while times:
            method, _, _ = channel.basic_get(name)
            if method:
                channel.basic_reject(method.delivery_tag, requeue=False)
                times -= 1
    while channel.queue_declare("mill.heavy", passive=True).method.message_count:
        method, _, _ = channel.basic_get("mill.heavy")
        if method:
            channel.basic_reject(method.delivery_tag, requeue=True)
        time.sleep(0.05)
    # The last of them stays in the queue: it is not dead. Another pushes it out.
    channel.basic_publish("", "mill.latest", b"the last", pika.BasicProperties(delivery_mode=2))
    time.sleep(600)


def sent(key, expect, why):
    import json

    with open(os.environ["SENT"], "a") as file:
        line = {"key": key, "expect": expect, "why": why, "release": RELEASE, "arguable": ""}
        file.write(json.dumps(line) + "\n")


main()
