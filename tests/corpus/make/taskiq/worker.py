"""Kick the tasks of notify, then be Taskiq's worker."""

import asyncio
import os
import sys

from tasks import broker, handle
from telling import instances

NAMES = """greet-without-address cancel-without-address customer-missing merged-into-missing template-without-name
template-without-number gateway-503-charging gateway-slow-charging receipt-late bounce-late some-mails-refused
some-addresses-wrong no-first-shelf no-last-shelf order-email-missing order-total-invalid""".split()


async def main():
    await broker.startup()
    for key, case, data in instances(NAMES, "notify"):
        await handle.kicker().with_task_id(key).kiq(case.type, data)
    await broker.shutdown()


asyncio.run(main())
os.execv(sys.executable, [sys.executable, "-m", "taskiq", "worker", "tasks:broker", "-w", "1"])
