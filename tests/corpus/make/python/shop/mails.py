"""Mails, and what is rendered into them."""

import asyncio

from jinja2 import Environment, StrictUndefined

from .payments import balance

environment = Environment(undefined=StrictUndefined)


def render(data):
    return environment.from_string(data["template"]).render(**data["values"])


def attach(data):
    raise RuntimeError(f"attachment refused by the scanner:\n{data['report']}")


def archive(data):
    raise ValueError("cannot archive mail: " + data["text"])


async def wait_for_receipt(data):
    async with asyncio.timeout(data["seconds"]):
        await asyncio.sleep(30)


async def wait_for_bounce(data):
    await asyncio.wait_for(asyncio.sleep(30), data["seconds"])


async def send_one(address, port):
    if port:
        await asyncio.to_thread(balance, {"port": port})
    local, domain = address.split("@")
    return local, domain


async def send_all(data):
    async with asyncio.TaskGroup() as group:
        for address in data["addresses"]:
            group.create_task(send_one(address, data.get("port")))
