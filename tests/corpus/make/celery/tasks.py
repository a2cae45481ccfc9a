"""The tasks of billing."""

import asyncio
import inspect
import os

from celery import Celery
from celery.exceptions import Reject
from kombu import Queue

from shop.handlers import HANDLERS

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dlq"}
app = Celery("billing", broker=os.environ["AMQP_URL"], backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue="billing",
    task_queues=[
        Queue("billing", queue_arguments=DEAD),
        Queue("billing.nightly", queue_arguments=DEAD),
        # What kills its worker comes to an end too.
        Queue("billing.heavy", queue_arguments={**DEAD, "x-queue-type": "quorum", "x-delivery-limit": 1})],
    # Only failures are published as results, with the names of task and queue.
    task_ignore_result=True,
    task_store_errors_even_if_ignored=True,
    result_extended=True,
    result_persistent=True,
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task(name="billing.tasks.handle")
def handle(kind, data):
    done = HANDLERS[kind](data)
    if inspect.iscoroutine(done):
        asyncio.run(done)


@app.task(name="billing.tasks.invoice", acks_on_failure_or_timeout=False, store_errors_even_if_ignored=False)
def invoice(data):
    HANDLERS["order.saved"](data)


@app.task(name="billing.tasks.remind", acks_on_failure_or_timeout=False, store_errors_even_if_ignored=False)
def remind(data):
    raise Reject(f"no address of customer {data['customer']}", requeue=False)


@app.task(name="billing.tasks.crash", acks_on_failure_or_timeout=False, store_errors_even_if_ignored=False)
def crash(data):
    os._exit(3)  # as the kernel would, for want of memory
