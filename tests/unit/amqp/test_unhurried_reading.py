"""A stream is read in large pieces; whoever does not want to hear at all is not made to.

About `amqp.connection`.
"""

from __future__ import annotations

import asyncio

import pytest

from deadletter.amqp.address import Address
from deadletter.amqp.connection import BREATH_LEAST_BYTES, BREATH_MOST_BYTES, BREATH_S, Connection
from deadletter.amqp.frames import HEARTBEAT_FRAME
from deadletter.errors import ConnectionLost

STREAM = HEARTBEAT_FRAME * (BREATH_LEAST_BYTES // len(HEARTBEAT_FRAME) + 1)


class Ears(asyncio.Transport):
    """A transport of which only is known whether it listens."""

    listening = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        assert self.listening, "asked twice"
        self.listening = False

    def resume_reading(self) -> None:
        assert not self.listening, "asked twice"
        self.listening = True

    def close(self) -> None: ...


def opened(*, unhurried: bool = True) -> tuple[Connection, Ears]:
    connection, ears = Connection(Address(), asyncio.get_running_loop()), Ears()
    connection.connection_made(ears)
    connection.unhurried = unhurried
    return connection, ears


async def a_breath() -> None:
    await asyncio.sleep(BREATH_S * 5)


async def test_after_a_piece_of_a_stream_it_takes_a_breath_and_listens_again() -> None:
    connection, ears = opened()
    for _ in range(3):
        connection.data_received(STREAM)
        assert not ears.listening
        await a_breath()
        assert ears.listening


@pytest.mark.parametrize(
    "data",
    [HEARTBEAT_FRAME, HEARTBEAT_FRAME * (BREATH_MOST_BYTES // len(HEARTBEAT_FRAME))],
    ids=["a word", "a large piece"],
)
async def test_what_is_no_stream_or_large_already_is_followed_at_once(data: bytes) -> None:
    connection, ears = opened()
    connection.data_received(data)
    assert ears.listening


async def test_who_is_in_a_hurry_always_listens() -> None:
    connection, ears = opened(unhurried=False)
    connection.data_received(STREAM)
    assert ears.listening


async def test_a_breath_does_not_end_a_pause() -> None:
    connection, ears = opened()
    connection.data_received(STREAM)
    connection.pause_reading()
    await a_breath()
    assert not ears.listening, "nobody said that it should listen again"
    connection.resume_reading()
    assert ears.listening


async def test_a_pause_that_is_shorter_than_a_breath_leaves_it_a_breath() -> None:
    connection, ears = opened()
    connection.data_received(STREAM)
    connection.pause_reading()
    connection.resume_reading()
    assert not ears.listening
    await a_breath()
    assert ears.listening


async def test_an_end_in_the_middle_of_a_breath_is_heard() -> None:
    """A transport that does not listen does not notice that it is closed."""
    connection, ears = opened()
    connection.data_received(STREAM)
    connection.abort(ConnectionLost("the test ends it"))
    assert ears.listening
    await a_breath()
    assert ears.listening


async def test_damage_is_said_and_followed_by_no_breath() -> None:
    connection, ears = opened()
    connection.data_received(b"\xff" * BREATH_LEAST_BYTES * 2)
    assert connection.closed.done()
    assert ears.listening
