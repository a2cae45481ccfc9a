"""The movers that `bench` compares: each moves every letter, or says that it did not.

About `move.courier`, `cli.move_command`.
"""

from __future__ import annotations

import pytest
from bench.ground import Ground
from bench.listening import Ears
from bench.management import Vhost as BenchVhost
from bench.race import Course, race
from bench.racers import COMMAND
from tests.brokers import Vhost

BIG = 300_000
"""Bytes of a body that comes in more than one frame."""


@pytest.mark.parametrize("mover", ["courier", "spliced", "shovel", COMMAND])
@pytest.mark.parametrize(("count", "body_bytes"), [(1500, 100), (5, BIG)])
async def test_a_mover_moves_all(vhost: Vhost, mover: str, count: int, body_bytes: int) -> None:
    course = Course(queue_type="quorum", body_bytes=body_bytes, prefetch=1000)
    place = BenchVhost(name=vhost.name, url=vhost.url, api=vhost.api)
    async with Ground.open(place) as ground:
        run = await race(
            ground, course, mover=mover, count=count, broker="?", round_number=1, ears=Ears(None)
        )
    assert run.complaint is None
    assert run.quiet is not None
    assert (run.cpu_us is None) == (mover == "shovel")
