"""The shop's worker: our own consumer."""

import asyncio
import inspect
import json
import os
import uuid

import pika
from pydantic import BaseModel

from deadletter import Consumer, Message, Park, fixed
from shop.handlers import HANDLERS
from telling import RELEASE, URL, instances, sent

app = Consumer(URL, api=os.environ["AMQP_API"], service="shop", release=f"1.{RELEASE}.0")


class Invoice(BaseModel):
    number: int
    amount: float


# The second release tries once more: what fails then has one attempt behind it.
@app.queue("shop.orders", retries=RELEASE - 1, backoff=fixed(0.3))
@app.queue("shop.imports", retries=RELEASE - 1, backoff=fixed(0.3))
async def handle(message: Message) -> None:
    letter = json.loads(message.body)
    done = HANDLERS[letter["type"]](letter["data"])
    if inspect.isawaitable(done):
        await done


@app.queue("shop.invoices", retries=0)
async def invoice(invoice: Invoice) -> None:
    if invoice.amount < 0:
        raise Park(f"invoice {invoice.number} is negative: {invoice.amount}")


ORDERS = """sku-missing-when-pricing sku-missing-when-reserving currency-missing-when-pricing currency-unknown
limit-exceeded order-total-invalid order-email-missing cancel-without-address greet-without-address
gateway-503-charging gateway-404-charging gateway-503-refunding balance-refused settle-refused
settle-without-token receipt-late bounce-late some-mails-refused some-addresses-wrong category-in-a-circle
weight-not-positive length-not-positive export-refused""".split()


def publish():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()

    def put(queue, key, body):
        channel.basic_publish("", queue, body, pika.BasicProperties(message_id=key, delivery_mode=2))

    for queue, names in ("shop.orders", ORDERS), ("shop.imports", ["sku-missing-when-pricing", "limit-exceeded"]):
        for key, case, data in instances(names, queue):
            put(queue, key, json.dumps({"type": case.type, "data": data}).encode())
    for number in range(3 - RELEASE):
        for name, body, why in (
            ("amount-missing", b'{"number": %d}' % (number + 17 * RELEASE), "a body without the field amount"),
            ("number-wrong", b'{"number": "N%d", "amount": 1}' % number, "a body whose number is none: another field"),
            ("no-json", b"\xff\xfe\x00%d" % number, "a body that is no JSON at all"),
            ("negative", b'{"number": %d, "amount": -%d}' % (number + RELEASE, 5 + number), "the handler says Park"),
        ):
            key = str(uuid.uuid4())
            sent(key, f"shop.invoices/{name}", why)
            put("shop.invoices", key, body)
    connection.close()


async def main():
    serving = asyncio.create_task(app.serve())
    while app.ready is None:
        await asyncio.sleep(0.1)
    await app.ready.wait()
    await asyncio.to_thread(publish)
    await serving


asyncio.run(main())
