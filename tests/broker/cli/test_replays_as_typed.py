"""From letters that failed to a closed group, as an operator types it: a real service, a real broker.

About `cli.replays.replay_command`, `cli.replays.replays_command`, `cli.replays.watching`,
`operations.replays.before_replay`, `service.replaying.replayer`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import Vhost
from tests.replaying import Ledger, parked_letter, stock
from tests.serving import Application, Served, served
from tests.storekeeping import settings

from deadletter.amqp.channel import Delivery

LETTERS = 30


class Cured(Ledger):
    """Takes nothing until it is cured."""

    cured = False

    def take(self, delivery: Delivery, times: int) -> bool:
        return super().take(delivery, times) and self.cured


async def dlq(one: Served, home: Path, *arguments: str) -> tuple[int, str, str]:
    """The command, and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deadletter.cli.main", *arguments, "--config", str(one.config),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(home), "DLQ_API_TOKEN": one.token},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def data(one: Served, home: Path, *arguments: str) -> Any:
    code, out, err = await dlq(one, home, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
@pytest.mark.kills
async def test_a_canary_finds_it_failing_and_later_cured(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(number) for number in range(LETTERS)])
    async with Application(vhost.url) as app:
        consumer = Cured()
        await app.with_dlq("orders")
        await app.consume("orders", consumer.take)
        with served(vhost, tmp_path, settings(url)) as (one,):
            code, said, err = await dlq(one, tmp_path, "replay", "--origin", "orders")
            assert code == 0, err
            assert said.startswith(f"would replay {LETTERS} letters to the queues they failed in\n")
            assert "queue orders is there" in said
            assert "queue orders has 1 consumer" in said
            assert "STOP" not in said
            code, said, err = await dlq(
                one, tmp_path, "replay", "--origin", "orders", "--to-queue", "nowhere", "--yes"
            )
            assert (code, "--anyway" in said, consumer.got.total()) == (1, True, 0), "nothing began"

            asked = ("replay", "--origin", "orders", "--yes", "--watch", "--outcome", "2s")
            code, said, err = await dlq(one, tmp_path, *asked, "--wait", "60s")
            assert code == 1, err
            assert said.startswith("replay 1: stopped"), said
            assert "1 of 1 came back" in said
            assert "dlq replays 1 --outcomes back" in said
            assert consumer.got.total() == 1, "the rest has never left"
            _, said, _ = await dlq(one, tmp_path, "replays", "1", "--outcomes", "back")
            assert " as letter " in said

            consumer.cured = True
            code, said, err = await dlq(one, tmp_path, *asked, "--pace", "auto", "--resolve")
            assert code == 0, (said, err)
            assert said.startswith("replay 2: done"), said
            assert f"{LETTERS}  not returned  not returned in 2 s" in said
            assert len(consumer.got) == LETTERS
            assert (await data(one, tmp_path, "letters", "--origin", "orders"))["letters"] == []
            assert (await data(one, tmp_path, "groups"))["groups"] == [], "and they are resolved"
            assert one.end() == 0
