"""Whoever freezes, sends and settles is killed at any moment; the next one goes on, and every letter is told.

A ledger outside of the store notes each letter before it is published, so what was sent twice is known. About
`store.replays.returned_letters`, `store.replays.replay_store`, `store.replays.replay_progress`,
`store.engine`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.paths import ROOT
from tests.store.grounds import Ground, PostgresGround
from tests.store.parked import letters_at, parked, stored
from tests.store.replayed import EVERYTHING, books_agree

from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.store.replays.replay_store import ReplayStore

LETTERS = 4_000
KILLS = 5
WORKER = """
import asyncio, os, sys, time
from pathlib import Path
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.replays.replay_store import ReplayStore

async def main(url, ledger, instance, lease_ms):
    out = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with open_letters(url) as letters:
        store = ReplayStore(letters)
        while True:
            now_ms = int(time.time() * 1000)
            mine = await store.leased(instance, now_ms=now_ms, lease_ms=lease_ms)
            print("looked", flush=True)
            for view in mine:
                if await store.freeze_some(view.id):
                    continue
                found = await store.next_portion(view.id, 150)
                os.write(out, "".join(one.letter_id + "\\n" for one in found).encode())
                refused = {one.row: "too large" for one in found if int(one.letter_id, 16) % 100 == 7}
                sent = [one.row for one in found if one.row not in refused]
                await store.settled(view.id, sent, refused, at_ms=now_ms)
                await store.quiet(view.id, now_ms=int(time.time() * 1000))
                if (await store.finish(view.id)).ended_ms:
                    return
            if not mine:
                await asyncio.sleep(0.02)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


def _worker(ground: Ground, ledger: Path, name: str, lease_ms: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, ground.url, str(ledger), name, str(lease_ms)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def _killed_soon(worker: subprocess.Popen[str], dice: random.Random) -> None:
    assert worker.stdout is not None
    assert worker.stdout.readline()
    time.sleep(dice.uniform(0, 0.25))
    worker.kill()
    worker.wait(120)
    worker.stdout.close()


def _ended(worker: subprocess.Popen[str]) -> int:
    worker.communicate(timeout=120)
    return worker.returncode


@pytest.mark.slow
@pytest.mark.kills
async def test_kill_9_again_and_again(ground: Ground, tmp_path: Path) -> None:
    ledger, dice = tmp_path / "ledger", random.Random(14)
    async with letters_at(ground) as letters:
        for start in range(0, LETTERS, 500):
            await letters.ingest(stored(*(parked(n) for n in range(start, start + 500))))
        begun = await ReplayStore(letters).begin(EVERYTHING, who="ann", why="")
    ground.sql("UPDATE deadletter_replays SET outcome_ms = 1")
    for kill in range(KILLS):
        worker = await asyncio.to_thread(_worker, ground, ledger, f"worker-{kill}", 1)
        await asyncio.to_thread(_killed_soon, worker, dice)
        books_agree(ground)
    last = await asyncio.to_thread(_worker, ground, ledger, "last", 60_000)
    assert await asyncio.to_thread(_ended, last) == 0
    books_agree(ground)
    times = Counter(ledger.read_text().split())
    async with letters_at(ground) as letters:
        store = ReplayStore(letters)
        view = await store.view(begun.id)
        assert (view.state, view.letters) == (ReplayState.DONE, LETTERS)
        refused = LETTERS // 100
        assert (view.counts.quiet, view.counts.refused) == (LETTERS - refused, refused)
        doubtful = {one.letter_id for one in await store.outcomes(view.id, limit=LETTERS, doubtful=True)}
        kept = {one.letter_id for one in await store.outcomes(view.id, SentState.REFUSED, limit=LETTERS)}
    assert times.keys() == {f"{n:032x}" for n in range(LETTERS)}
    assert {one for one, often in times.items() if often > 1} <= doubtful
    assert kept == {f"{n:032x}" for n in range(LETTERS) if n % 100 == 7}
    assert len(doubtful) <= KILLS * 150


@pytest.mark.kills
async def test_killed_while_it_lets_go(ground: Ground) -> None:
    """Whoever cancels dies in the middle: the service lets go of the rest."""
    async with letters_at(ground) as letters:
        for start in range(0, 3_000, 500):
            await letters.ingest(stored(*(parked(n) for n in range(start, start + 500))))
        store = ReplayStore(letters)
        begun = await store.begin(EVERYTHING, who="ann", why="")
        while await store.freeze_some(begun.id):
            pass
        code = (
            "import asyncio, os, sys\n"
            "from deadletter.store.letters.letter_store import open_letters\n"
            "from deadletter.store.replays.replay_store import ReplayStore\n"
            "async def main():\n"
            "    async with open_letters(sys.argv[1]) as letters:\n"
            "        store, gone = ReplayStore(letters), ReplayStore.let_go_some\n"
            "        async def one(self, replay):\n"
            "            await gone(self, replay)\n"
            "            os.kill(os.getpid(), 9)\n"
            "        ReplayStore.let_go_some = one\n"
            f"        await store.cancel({begun.id}, who='bob')\n"
            "asyncio.run(main())\n"
        )
        died = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", code, ground.url],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            check=False,
        )
        assert died.returncode == -9
        view = await store.view(begun.id)
        assert (view.state, view.counts.let_go, view.counts.waiting) == (ReplayState.CANCELLED, 1_000, 2_000)
        (mine,) = await store.leased("a", now_ms=1, lease_ms=5)
        assert (await store.finish(mine.id)).counts.let_go == 3_000
        books_agree(ground)


HOLDER = """
import asyncio, sys
from sqlalchemy import text
from deadletter.store import engine
from deadletter.store.letters.letter_store import open_letters

async def main(url):
    engine.IDLE_LIMIT_S = 1.0
    async with open_letters(url) as letters, letters.connections.writing() as connection:
        await connection.execute(text("LOCK TABLE deadletter_replays"))
        print("held", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main(sys.argv[1]))
"""


def _holder(ground: Ground) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, ground.url],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@pytest.mark.postgresql
async def test_one_that_is_stopped_in_a_transaction_keeps_nobody_waiting(
    postgres_ground: PostgresGround,
) -> None:
    """SIGSTOP: its line is open and its locks are held, until PostgreSQL ends what asks nothing."""
    async with letters_at(postgres_ground) as letters:
        holder = await asyncio.to_thread(_holder, postgres_ground)
        try:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
            holder.send_signal(signal.SIGSTOP)
            view = await ReplayStore(letters).begin(EVERYTHING, who="ann", why="")
            assert view.state is ReplayState.FREEZING
        finally:
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()
