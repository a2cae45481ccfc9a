"""The web part: takes orders over HTTP and publishes them; the consumer runs in its lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from deadletter import Consumer
from deadletter.errors import PublishError
from shop import orders
from shop.orders import Order


def website(consumer: Consumer) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with consumer.publishing():  # a broker that is away must not keep the web from starting
            serving = asyncio.create_task(consumer.serve())
            yield
            consumer.stop()
            await serving

    web = FastAPI(lifespan=lifespan)

    @web.post("/orders", status_code=202)
    async def order(order: Order) -> dict[str, str]:
        try:
            message = await consumer.publish(order, key="orders", message_id=f"order-{order.number}")
        except PublishError as error:
            raise HTTPException(503, f"the order was not taken: {error}") from error
        return {"message": message}

    return web


web = website(orders.app)
