"""Send the tasks, then be Celery's worker."""

import os
import sys
import uuid
from contextlib import closing

import pika

from tasks import app, crash, handle, invoice, remind
from telling import RELEASE, URL, instances, sent

HANDLED = """sku-missing-when-pricing sku-missing-when-reserving currency-unknown order-total-invalid
order-email-missing gateway-503-charging gateway-503-refunding gateway-404-charging settle-refused
settle-without-token reservation-without-sku reservation-shelf-taken ping-refused label-not-there
receipt-late out-of-stock template-without-name template-without-number""".split()

with closing(pika.BlockingConnection(pika.URLParameters(URL))) as connection:
    for queue in ("billing.dlq", "billing.failed"):
        connection.channel().queue_declare(queue, durable=True)
for queue, names in ("billing", HANDLED), ("billing.nightly", ["sku-missing-when-pricing", "label-not-there"]):
    for key, case, data in instances(names, queue):
        handle.apply_async((case.type, data), task_id=key, queue=queue, reply_to="billing.failed")
for task, name, why in (
    (invoice, "invoice-rejected", "a task of its own that fails and is rejected: its error is nowhere on the letter"),
    (remind, "remind-rejected", "another task, which raises Reject: the reason is nowhere on the letter"),
    (crash, "worker-killed", "the task kills its worker's process: given back, then over the delivery limit"),
):
    for number in range(3 - RELEASE):
        key = str(uuid.uuid4())
        queue = "billing.heavy" if task is crash else "billing"
        sent(key, f"{queue}/{name}", why)
        task.apply_async(({"number": 1001, "customer": number},), task_id=key, queue=queue)
os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "warning",
                          "--without-mingle", "--without-gossip"])
