"""`dlq serve` brings parked letters into the store: exact, once, and never acked before they are committed.

About `service.storing.storekeeper`, `service.storing.store_lines`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.commanding import command
from tests.consuming import consumer, post, serving
from tests.letters import letter, letters
from tests.serving import Application, served, until_depth
from tests.storekeeping import (
    PARK,
    WATCH,
    bodies,
    dying,
    kept,
    listed,
    settings,
    stored,
    until_empty,
    until_listed,
)

from deadletter import Message
from deadletter.config.settings import DeskSettings
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.letter import names
from deadletter.service.storing.lasting import why_not_stored
from deadletter.store.letters.letter_store import open_letters

QUORUM = {"x-queue-type": "quorum", "x-overflow": "reject-publish"}


async def test_a_stored_letter_is_the_one_that_was_parked(vhost: Vhost, tmp_path: Path, url: str) -> None:
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        with served(vhost, tmp_path, settings(url)) as (one,):
            made = [
                letter(
                    b'{"id": 1}', content_type="application/json", message_id="m-1", headers={"tenant": "a"}
                ),
                letter(bytes(range(256)), headers={"nested": {"a": [1, None, True]}}, priority=3),
            ]
            await app.publish("", "orders", made)
            await until_listed(url, lambda rows: len(rows) == 2)
            await until_empty(app, names.PARKED)
            rows = await listed(url)
            assert {(row.vhost, row.queue, row.origin, row.cause) for row in rows} == {
                (vhost.name, names.PARKED, "orders", "no-retries")
            }
            assert set(await bodies(url)) == {one.body for one in made}
            assert stored(one, "new") == 2
            await app.until(lambda: 'outcome="stored"' in one.metrics(), 120, "it is told once a second")


async def test_it_is_so_unless_somebody_says_otherwise(vhost: Vhost, tmp_path: Path) -> None:
    """And whoever looks for letters in their queue is told where they are."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    nothing = "# nothing about ingest\n"
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        with served(vhost, tmp_path, f'[store]\nurl = "{url}"\n{PARK}{WATCH}{nothing}') as (one,):
            await app.publish("", "orders", letters("n", 5))
            if why_not_stored(DeskSettings(), url) is not None:  # tests that run in a container's own files
                await until_depth(app, names.PARKED, 5)
                assert "parked letters stay in their queue" in one.said()
                return
            await until_listed(url, lambda rows: len(rows) == 5)
            await until_empty(app, names.PARKED)
            assert f"parked letters come into the store  store={url}" in one.said()
            assert "[desk] ingest = false leaves them in deadletter.parked" in one.said()
            for asked in (("peek", names.PARKED), ("move", names.PARKED, "orders", "--dry-run")):
                typed = partial(command, *asked, "--config", str(one.config))
                told = await asyncio.to_thread(typed, environment={"HOME": str(one.home)})
                assert "letters of deadletter.parked are in the desk: dlq letters" in told.stdout, told
            assert one.end() == 0


async def test_its_bytes_are_those_of_the_broker(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """A twin of each letter goes into a queue beside it."""
    async with Application(vhost.url) as app:
        channel = await app.connection.channel()
        await channel.declare_queue(names.PARKED, arguments=QUORUM)
        await app.declare("twin")
        await channel.declare_exchange("both", "fanout")
        for queue in (names.PARKED, "twin"):
            await channel.bind_queue(queue, "both", "")
        made = [
            letter(bytes(range(256)) * n, headers={"n": n, "t": {"x": [1.5, b"\xff"]}}, type="t")
            for n in range(5)
        ]
        made += [letter(b"", user_id=None, expiration="60000", headers={"deadletter-move": "r-1"})]
        await app.publish("both", "some.key", made)
        with served(vhost, tmp_path, settings(url)):
            await until_listed(url, lambda rows: len(rows) == len(made))
        await app.consume("twin", lambda _delivery, _times: True, keep=True)
        await app.until(lambda: len(app.deliveries) == len(made), 120, "the twins")
        twins = [(one.exchange, one.routing_key, one.message) for _, one, _ in app.deliveries]
        here = [
            (one.came_by.exchange, one.came_by.routing_key, one.message) for one in (await kept(url)).values()
        ]
        assert sorted(here) == sorted(twins)


@pytest.mark.slow
async def test_what_the_consumer_library_parks_comes_there_too(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    app = consumer(vhost, "return")

    @app.queue("orders", retries=0)
    async def handle(_message: Message) -> None:
        raise ValueError("order 4711 has no lines")

    with served(vhost, tmp_path, settings(url)):
        async with serving(app):
            await post(vhost, b"an order")
            await until_listed(url, lambda rows: len(rows) == 1)
    (row,) = await listed(url)
    assert (row.queue, row.origin, row.error) == (
        names.PARKED,
        "orders",
        "ValueError: order 4711 has no lines",
    )
    async with open_letters(url, prepare=False) as store:
        (group,) = await store.groups(GroupQuery())
    assert (group.error_type, group.open) == ("ValueError", 1)


@pytest.mark.parametrize("kind", [pytest.param("classic", marks=pytest.mark.slow), "quorum"])
async def test_a_queue_one_only_wants_to_look_at(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    """No watch, no retries: its letters come into the store, as many as retention allows, the newest."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    more = '[[desk.queues]]\nname = "errors"\nretention = { letters = 5 }\n[[desk.queues]]\nname = "eror"\n'
    async with Application(vhost.url) as app:
        await app.declare("errors", kind=kind)
        await app.publish("", "errors", letters("n", 250))
        with served(vhost, tmp_path, f'[store]\nurl = "{url}"\n[desk]\ningest = true\n{more}') as (one,):
            await until_empty(app, "errors")
            await until_listed(url, lambda rows: len(rows) == 5)
            rows = await listed(url)
            assert {(row.vhost, row.queue) for row in rows} == {(vhost.name, "errors")}
            assert set(await bodies(url)) == {f"n-{n}".encode() for n in range(245, 250)}
            await app.until(lambda: 'outcome="forgotten",' in one.metrics(), 120, "it is told")
            assert [t["what"] for t in one.get("/api/status")["troubles"]] == ["desk:eror"], (
                "a typing error is told"
            )
            await app.declare("eror")
            await app.until(lambda: one.get("/api/status")["troubles"] == [], 120, "it is there now")
