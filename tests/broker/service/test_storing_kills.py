"""kill -9 at each step of bringing letters into the store, again and again: nothing lost, nothing twice.

About `service.storing.storekeeper`, `service.storing.reading_process`, `service.storing.forgetting`,
`store.letters.letter_store`, `store.groups.regroup_run`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.ingest_lives import STEPS
from tests.letters import letters
from tests.paths import ROOT
from tests.postgres import PrivatePostgres
from tests.serving import Application, Served, served
from tests.storekeeping import bodies, dying, listed, settings, until_empty, until_listed

from deadletter.config import load
from deadletter.core.grouping.retention import Retention
from deadletter.core.letter import names
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.letters.letter_views import RegroupStage

KILLS = int(os.environ.get("DLQ_INGEST_KILLS", "5"))
"""At each of the six steps: thirty of each database."""
LETTERS = 120 * max(1, KILLS // 5)
KEPT = 20
"""With retention: so many stay."""
OFF = '[serve]\nlisten = "off"\nsurvey = "1s"\n'


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", STEPS)
async def test_killed(
    vhost: Vhost, tmp_path: Path, url: str, step: str, request: pytest.FixtureRequest
) -> None:
    made = {one.body for one in letters("n", LETTERS)}
    text = settings(url, "batch = 10\n") + OFF
    async with Application(vhost.url) as app:
        await park(app, vhost, tmp_path)
        if step == "in regroup":
            with served(vhost, tmp_path, settings(url)):
                await until_listed(url, lambda rows: len(rows) == LETTERS)
                await until_empty(app, names.PARKED)
            text = settings(url, "batch = 10\n[[desk.groups]]\ngroup = 'one'\n") + OFF
        elif step == "in retention":
            text = settings(url, f"batch = 10\nretention = {{ letters = {KEPT} }}\n") + OFF
        await all_lives(Served(vhost, tmp_path, text, name="killed"), step, app, url, vhost)
        for queue in ("orders", "orders.dlq", names.PARKED):
            assert await app.depth(queue) == 0
    if step == "in retention":
        await forget(url, vhost)
    found = await bodies(url)
    if step == "in retention":
        assert len(found) == KEPT
        assert found.keys() <= made
    else:
        assert found.keys() == made, "nothing is lost"
    assert set(found.values()) == {1}, "nothing is twice"
    assert {row.copies for row in await listed(url)} == {0}
    counts_agree(url, request)


async def park(app: Application, vhost: Vhost, home: Path) -> None:
    """By a service that brings nothing into the store."""
    await dying(app, "orders")
    before = settings(f"sqlite:///{home / 'other.db'}").replace("ingest = true", "ingest = false")
    with served(vhost, home / "before", before) as (one,):
        await app.publish("", "orders", letters("n", LETTERS))
        async with asyncio.timeout(120):
            while await app.depth(names.PARKED) < LETTERS:  # noqa: ASYNC110 -- the broker tells nobody
                await asyncio.sleep(0.05)
        assert one.end() == 0


async def all_lives(one: Served, step: str, app: Application, url: str, vhost: Vhost) -> None:
    """Killed so many times at this step, and once not."""
    with (one.home / "lives").open("wb") as lives, one.log.open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 -- it is only begun here
            [sys.executable, "-m", "tests.ingest_lives", str(one.config), step, str(KILLS)],
            stdout=lives,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "HOME": str(one.home)},
        )
    try:
        async with asyncio.timeout(600):
            while "last" not in (ended := (one.home / "lives").read_text().split("\n")):
                assert process.poll() is None, one.said()
                await asyncio.sleep(0.1)
        assert ended.count(f"life {-signal.SIGKILL}") == KILLS, (ended, one.said())
        await until_empty(app, names.PARKED)
        await until_settled(vhost)
        if step == "in regroup":
            await regrouped(one, url)
        elif step != "in retention":
            await until_listed(url, lambda rows: len(rows) == LETTERS)
        await app.until(lambda: last_is_ready(one), 120, "it is at work")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0, one.said()
    finally:
        process.kill()
        process.wait()


def last_is_ready(one: Served) -> bool:
    *_, last = lives = one.log.read_text().split(" starting")
    return len(lives) == KILLS + 2 and " ready" in last


async def until_settled(vhost: Vhost) -> None:
    """Nothing of it is in anybody's hand, as the management API tells it, some seconds late."""
    async with asyncio.timeout(60):
        while (vhost.get("queues", names.PARKED) or {}).get("messages") != 0:  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.2)


async def forget(url: str, vhost: Vhost) -> None:
    """As the service does it: letters may have come after its last look."""
    async with open_letters(url, prepare=False) as store:
        while await store.forget_some(names.PARKED, Retention(letters=KEPT), vhost=vhost.name):
            pass


async def regrouped(one: Served, url: str) -> None:
    """It goes on where it was, and ends: all letters are in one group."""
    grouping = load(config=one.config, environment={}).desk.grouping
    async with open_letters(url, prepare=False) as store:
        told = await store.regrouping.told(grouping)
        assert (told.stage.value, 0 < told.looked_at < LETTERS) == ("moving", True)
        while told.stage is not RegroupStage.DONE:
            told = await store.regrouping.go_on(grouping, who="ann")
        assert (told.looked_at, told.groups) == (LETTERS, 1)


def counts_agree(url: str, request: pytest.FixtureRequest) -> None:
    """What is counted of letters is what is there."""
    tallied = "SELECT sum(letters), sum(bytes) FROM deadletter_tallies"
    counted = "SELECT count(*), sum(bytes) FROM deadletter_letters WHERE copy_of IS NULL"
    if url.startswith("postgresql"):
        server: PrivatePostgres = request.getfixturevalue("postgres")
        assert server.psql(tallied, url) == server.psql(counted, url)
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        assert file.execute(tallied).fetchone() == file.execute(counted).fetchone()
