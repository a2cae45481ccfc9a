"""Letters that wait for a look around: one look for all of them, begun after the last of them came.

About `service.intake.lookout`.
"""

from __future__ import annotations

import asyncio

import pytest

from deadletter.service.intake import lookout
from deadletter.service.intake.lookout import Lookout


async def test_one_look_serves_all_who_wait_and_nobody_who_came_later() -> None:
    woken: list[int] = []
    post = Lookout(lambda: woken.append(1))
    early = [asyncio.ensure_future(post.look_afresh()) for _ in range(3)]
    await asyncio.sleep(0)
    look = await post.begin()
    assert look.anew
    late = asyncio.ensure_future(post.look_afresh())
    await asyncio.sleep(0)
    look.ended()
    assert await asyncio.gather(*early) == [True] * 3
    assert not late.done()
    (await post.begin()).ended()
    assert await late
    assert len(woken) == 4


async def test_a_look_that_failed_is_followed_by_the_next() -> None:
    post = Lookout(lambda: None)
    waiting = asyncio.ensure_future(post.look_afresh())
    await asyncio.sleep(0)
    await post.begin()  # and the management API is away
    (await post.begin()).ended()
    assert await waiting


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "PATIENCE_S", 0.01)
    post = Lookout(lambda: None)
    assert not await post.look_afresh()
    assert not (await post.begin()).anew
