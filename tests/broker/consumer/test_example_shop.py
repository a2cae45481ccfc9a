"""`examples/shop` on a real broker, over HTTP as a customer sees it; its own tests run on the memory broker.

About `consumer.app`, `consumer.publishing.publisher`, `consumer.handlers.dependencies`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests import consuming
from tests.brokers import Vhost
from tests.paths import ROOT

SHOP = ROOT / "examples/shop"


async def test_orders_come_over_http_and_are_paid_or_put_aside(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SHOP))
    monkeypatch.chdir(tmp_path)
    from shop.gateway import THE_GATEWAY
    from shop.orders import SENT, shop
    from shop.web import website

    web = website(shop(vhost.url, api=vhost.api, database=f"sqlite:///{tmp_path}/shop.db"))
    transport = httpx.ASGITransport(app=web)
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as asked,
    ):
        THE_GATEWAY.down = True
        for number, card in ((1, "4242"), (2, "expired"), (3, "4242")):
            answer = await until_taken(asked, {"number": number, "cents": 100, "card": card})
            assert answer == {"message": f"order-{number}"}
        refused = await asked.post("/orders", json={"number": 4, "cents": 0, "card": "x"})
        assert refused.status_code == 422
        await asyncio.sleep(1)
        THE_GATEWAY.down = False
        await consuming.until(
            lambda: sorted(THE_GATEWAY.charged) == [1, 3] and len(SENT) == 2, "paid and told"
        )
        await consuming.until_depth(vhost, "deadletter.parked", 1)


async def until_taken(asked: httpx.AsyncClient, order: dict[str, object]) -> object:
    """The queue is there once the consumer has begun; before that an order is refused, and said to be."""
    async with asyncio.timeout(120):
        while True:
            answer = await asked.post("/orders", json=order)
            if answer.status_code == 202:
                return answer.json()
            assert answer.status_code == 503
            assert "no queue takes it" in answer.text
            await asyncio.sleep(0.1)


def test_its_own_tests_need_no_broker(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "asyncio_mode=auto",
            str(SHOP),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SHOP)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
