"""Batches that are read before it is their turn.

About `service.storing.read_ahead`.
"""

from __future__ import annotations

import asyncio

import pytest

from deadletter.service.storing.read_ahead import AHEAD, ReadAhead


async def resting() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_are_read_before_somebody_takes_one() -> None:
    read: list[int] = []

    async def one_more() -> int:
        read.append(len(read))
        return read[-1]

    ahead = ReadAhead(one_more)
    await resting()
    assert read == list(range(AHEAD))
    assert [await ahead.next() for _ in range(5)] == [0, 1, 2, 3, 4]
    await resting()
    assert await ahead.end() == [5, 6], "nobody took them, and nobody reads on"
    assert read == list(range(7))


async def test_what_went_wrong_is_raised_after_what_was_read_before_it() -> None:
    some = iter([1, 2])

    async def one_more() -> int:
        try:
            return next(some)
        except StopIteration:
            raise ValueError("no more") from None

    ahead = ReadAhead(one_more, most=5)
    await resting()
    assert [await ahead.next(), await ahead.next()] == [1, 2]
    with pytest.raises(ValueError, match="no more"):
        await ahead.next()
    with pytest.raises(ValueError, match="no more"):
        await ahead.next()
    assert await ahead.end() == []


async def test_who_waits_and_is_cancelled_takes_nothing_along() -> None:
    come: asyncio.Queue[int] = asyncio.Queue()
    ahead = ReadAhead(come.get)
    waiting = asyncio.create_task(ahead.next())
    await resting()
    come.put_nowait(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    await resting()
    come.put_nowait(2)
    await resting()
    assert await ahead.end() == [1, 2]
