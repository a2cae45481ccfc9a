"""The movers that `bench` compares: each moves every letter, or says that it did not.

About `move.courier`, `cli.move_command`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from bench.ground import SOURCE, Ground
from bench.job import Job
from bench.listening import Ears
from bench.management import Vhost as BenchVhost
from bench.race import Course, race
from bench.racers import COMMAND, ready
from tests.brokers import Vhost

BIG = 300_000
"""Bytes of a body that comes in more than one frame."""


@asynccontextmanager
async def ground_in(vhost: Vhost) -> AsyncIterator[Ground]:
    async with Ground.open(BenchVhost(name=vhost.name, url=vhost.url, api=vhost.api)) as ground:
        yield ground


@pytest.mark.parametrize("mover", ["courier", "spliced", "shovel", COMMAND])
async def test_a_mover_moves_all(vhost: Vhost, mover: str) -> None:
    course = Course(queue_type="quorum", body_bytes=100, prefetch=1000)
    async with ground_in(vhost) as ground:
        run = await race(ground, course, mover=mover, count=1500, broker="?", round_number=1)
    assert run.complaint is None
    assert (run.cpu_us is None) == (mover == "shovel")


async def test_large_letters_are_spliced_and_somebody_listens(vhost: Vhost) -> None:
    course = Course(queue_type="classic", body_bytes=BIG, prefetch=1000)
    async with ground_in(vhost) as ground:
        run = await race(
            ground, course, mover="spliced", count=5, broker="?", round_number=1, ears=Ears(None)
        )
    assert run.complaint is None
    assert run.quiet is not None
    assert 0 <= run.quiet.idle <= 1


async def test_a_bare_look_sees_all_and_leaves_all(vhost: Vhost) -> None:
    async with ground_in(vhost) as ground:
        await ground.lay("quorum", 1500, body_bytes=100)
        async with ready("look", ground.vhost) as racer:
            await racer.go(Job(url=vhost.url, source=SOURCE, target="", count=1500, prefetch=0))
            await racer.finish()
        assert await ground.count(0, source=1500) == (1500, 0)
