"""The tasks of notify. Taskiq's broker has a dead-letter queue but puts nothing there itself when a task fails:
a middleware of the application's does, with the error in the labels."""

import inspect
import os
import traceback

from aio_pika import Message
from taskiq import TaskiqMiddleware
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

from shop.handlers import HANDLERS


class PutAside(TaskiqMiddleware):
    async def on_error(self, message, result, exception):
        message.labels.update(
            error_type=f"{type(exception).__module__}.{type(exception).__qualname__}",
            error=str(exception),
            traceback="".join(traceback.format_exception(exception)),
            execution_time=result.execution_time,
        )
        told = self.broker.formatter.dumps(message)
        await self.broker.write_channel.default_exchange.publish(
            Message(told.message, headers={"task_id": told.task_id, "task_name": told.task_name, **told.labels}),
            routing_key="notify.dead_letter",
        )


broker = AioPikaBroker(
    os.environ["AMQP_URL"],
    exchange=Exchange(name="notify"),
    task_queues=[Queue(name="notify")],
    dead_letter_queue=Queue(name="notify.dead_letter"),
).with_middlewares(PutAside())


@broker.task(task_name="notify.handle")
async def handle(kind: str, data: dict) -> None:
    done = HANDLERS[kind](data)
    if inspect.isawaitable(done):
        await done

