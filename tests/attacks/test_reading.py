"""The second process that reads letters for the store is killed, again and again, or its service is.

The claim: nothing is lost, nothing is stored twice, it is told, and no process stays behind.

About `service.storing.reading_process`, `service.storing.reading_worker`, `service.storing.storekeeper`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.letters import letters
from tests.serving import Application, Served, served
from tests.storekeeping import bodies, settings, stored, until_empty

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.store.letters.letter_store import open_letters

DESK = 'batch = 100\n[[desk.queues]]\nname = "errors"\n'
KILLS = 3


def reading_process(one: Served) -> int | None:
    """Its id, by what `ps` shows of it."""
    parent = one.process.pid
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if "deadletter.service.storing.reading_worker" in shown(int(child)):
            return int(child)
    return None


def shown(pid: int) -> str:
    """Its command line; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def begun(one: Served, *, other_than: int | None = None) -> int:
    async with asyncio.timeout(120):
        while (pid := reading_process(one)) is None or pid == other_than:  # noqa: ASYNC110 -- the kernel tells nobody
            await asyncio.sleep(0.01)
    return pid


async def test_killed_again_and_again(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    async with Application(vhost.url) as app:
        await app.declare("errors")
        made: set[bytes] = set()
        with served(vhost, tmp_path, settings(url, DESK)) as (one,):
            pid: int | None = None
            for kill in range(KILLS):
                some = letters(f"k{kill}", 1500)
                made |= {each.body for each in some}
                publishing = asyncio.create_task(app.publish("", "errors", some))
                pid = await begun(one, other_than=pid)
                os.kill(pid, signal.SIGKILL)
                await publishing
            await until_empty(app, "errors")
            await app.until(lambda: stored(one, "new") == len(made), 120, "all are stored")
            await app.until(lambda: "store:reading" in one.said(), 120, "it is told")
            assert one.end() == 0
        assert await app.depth("errors") == 0
        found = await bodies(url)
        assert set(found) == made, "nothing lost"
        assert set(found.values()) == {1}, "nothing twice"


@pytest.mark.parametrize("kill", [False, True])
async def test_it_goes_with_its_service(vhost: Vhost, tmp_path: Path, kill: bool) -> None:
    """Ended in order, or with kill -9; and it is not there before there are many letters."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    async with Application(vhost.url) as app:
        await app.declare("errors")
        with served(vhost, tmp_path, settings(url, DESK)) as (one,):
            await app.publish("", "errors", letters("few", 5))
            await app.until(lambda: stored(one, "new") == 5, 120, "a few")
            assert reading_process(one) is None
            await app.publish("", "errors", letters("many", 1500))
            pid = await begun(one)
            if kill:
                one.kill()
            else:
                assert one.end() == 0
            async with asyncio.timeout(60):
                while shown(pid):  # noqa: ASYNC110 -- the kernel tells nobody
                    await asyncio.sleep(0.01)


async def test_other_rules_hold_after_a_reload(vhost: Vhost, tmp_path: Path) -> None:
    """The process that knows the old ones is gone."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    async with Application(vhost.url) as app:
        await app.declare("errors")
        with served(vhost, tmp_path, settings(url, DESK)) as (one,):
            await app.publish("", "errors", letters("old", 500))
            old = await begun(one)
            await app.until(lambda: stored(one, "new") == 500, 120, "by the old rules")
            one.write(settings(url, f'{DESK}[[desk.groups]]\ngroup = "all of them"\norigin = "*"\n'))
            one.process.send_signal(signal.SIGHUP)
            await app.until(lambda: "reloaded" in one.said(), 120, "the new rules")
            await app.publish("", "errors", letters("new", 500))
            await begun(one, other_than=old)
            await app.until(lambda: stored(one, "new") == 1000, 120, "by the new rules")
            assert not shown(old)
        async with open_letters(url, prepare=False) as store:
            assert sorted(group.open for group in await store.groups(GroupQuery())) == [500, 500]
