"""Who came and went is written down, and who is out is out: on every instance, in open streams, after a
restart, and while the store is away.

About `desk.door.door_book`, `desk.door.doorman`, `desk.door.sessions`, `desk.api.event_api`,
`desk.answers.news`, `store.journal.door_store`, `operations.journal.store_journal`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.recorded import url_of
from tests.web.conftest import Desk, Opened

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.desk.access.person import Person
from deadletter.desk.answers.news import News
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.door import attempts
from deadletter.desk.door.door_book import LOOK_S, DoorBook
from deadletter.desk.door.keyring import Key
from deadletter.desk.door.sessions import Sessions
from deadletter.errors import StoreUnreachable
from deadletter.operations.journal.journal import Journal
from deadletter.operations.journal.store_journal import LateJournal
from deadletter.operations.records.store_records import LateRecords
from deadletter.store.journal.audit_list import AuditQuery

KEY = bytes(32)
SECRET = "dlq_olga_0123456789"
OLGA = DeskToken(name="olga", role=Role.OPERATOR, hash=hashed(SECRET), queues=("orders*",))
OURS = {"sec-fetch-site": "same-origin"}
BEARER = {"authorization": f"Bearer {SECRET}"}
SOON_S = 20.0


@dataclass
class House:
    """One store, and the settings of whoever opens a desk on it."""

    opened: Opened
    journal: LateJournal
    tokens: list[DeskToken] = field(default_factory=lambda: [OLGA])

    @asynccontextmanager
    async def desk(self, **more: Any) -> AsyncIterator[Desk]:
        news = News(self.journal)
        running = asyncio.create_task(news.run())
        try:
            async with self.opened(
                more=MoreSources(journal=self.journal, news=news),
                tokens=lambda: tuple(self.tokens),
                home_token=lambda: "dlq_home_0123456789",
                session_key=KEY,
                **more,
            ) as desk:
                yield desk
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def written(self) -> list[tuple[str, str, dict[str, Any]]]:
        page = await (await self.journal()).audit(AuditQuery())
        return [(one.who, one.action, one.detail) for one in reversed(page.entries)]

    async def actions(self) -> list[tuple[str, str]]:
        return [(who, action) for who, action, _ in await self.written()]


@pytest.fixture
async def house(opened: Opened, tmp_path: Path) -> AsyncIterator[House]:
    records = LateRecords(url_of(tmp_path / "letters.db"))
    journal = LateJournal(records)
    try:
        yield House(opened, journal)
    finally:
        await journal.close()
        await records.close()


async def signed_in(desk: Desk) -> str:
    answer = await desk.client.post("/sign-in", data={"token": SECRET}, headers=OURS)
    assert answer.status_code == 303, answer.text
    (cookie,) = desk.client.cookies.jar
    return str(cookie.value)


async def sign_out(desk: Desk, cookie: str) -> None:
    sessions = Sessions(KEY, idle_s=9_999, end_s=9_999, now_s=time.time)
    session = sessions.read(cookie)
    assert session is not None
    form = {"csrf": sessions.form_token(session)}
    answer = await desk.client.post("/sign-out", data=form, headers={**OURS, **with_cookie(desk, cookie)})
    assert answer.status_code == 303


def with_cookie(desk: Desk, cookie: str) -> dict[str, str]:
    return {"cookie": f"deadletter-{desk.url.rpartition(':')[2]}={cookie}"}


async def status_of(desk: Desk, cookie: str) -> int:
    async with httpx.AsyncClient(base_url=desk.url, trust_env=False) as client:
        return (await client.get("/", headers=with_cookie(desk, cookie))).status_code


async def until_out(desk: Desk, cookie: str) -> None:
    async with asyncio.timeout(SOON_S):
        while await status_of(desk, cookie) != 401:  # noqa: ASYNC110 -- of another process, as it were
            await asyncio.sleep(0.1)


# -- the audit -------------------------------------------------------------------------------------------
async def test_who_came_and_went_is_written_down(house: House) -> None:
    async with house.desk() as desk:
        cookie = await signed_in(desk)
        await sign_out(desk, cookie)
        told = await house.written()
        assert [one[:2] for one in told] == [
            ("deadletter.toml", "token made"),
            ("olga", "signed in"),
            ("olga", "signed out"),
        ]
        assert told[0][2] == {"token": "olga", "role": "operator", "queues": ["orders*"]}
        assert told[1][2] == {"by": "token", "address": "127.0.0.1"}
        assert SECRET not in repr(told)
        assert OLGA.hash not in repr(told)


async def test_wrong_tokens_are_written_down_but_not_one_by_one(house: House) -> None:
    house.tokens.clear()
    async with house.desk(token="s3cret") as desk:
        for number in range(attempts.OF_ONE + 20):
            await desk.client.post("/sign-in", data={"token": f"guess-{number}"})
            await desk.client.get("/", headers={"authorization": f"Bearer guess-{number}"})
        told = await house.written()
        assert [one[:2] for one in told] == [("nobody", "sign-in refused")] * 2
        assert [one[2]["tries"] for one in told] == [1, attempts.OF_ONE]
        assert "guess" not in repr(told)


async def test_tokens_that_come_change_and_go_are_written_down_once(house: House) -> None:
    async with house.desk() as desk, house.desk() as other:
        for one in (desk, other, desk):
            assert (await one.client.get("/", headers=BEARER)).status_code == 200
        house.tokens[:] = [replace(OLGA, role=Role.VIEWER)]
        for one in (desk, other):
            assert (await one.client.get("/", headers=BEARER)).status_code == 200
        house.tokens.clear()
        for one in (desk, other):
            await one.client.get("/")
    house.tokens[:] = [OLGA]
    async with house.desk() as desk:  # after a restart, too
        await desk.client.get("/")
    assert await house.actions() == [
        ("deadletter.toml", f"token {what}") for what in ("made", "changed", "removed", "made")
    ]


# -- sessions --------------------------------------------------------------------------------------------
async def test_who_signs_out_is_out_on_every_instance_and_after_a_restart(house: House) -> None:
    async with house.desk() as first, house.desk() as second:
        cookie = await signed_in(first)
        kept = await signed_in(second)
        assert await status_of(second, cookie) == 200
        await sign_out(first, cookie)
        assert await status_of(first, cookie) == 401
        await until_out(second, cookie)
        assert await status_of(second, kept) == 200, "another session of the same person goes on"
    async with house.desk() as third:
        assert await status_of(third, cookie) == 401
        assert await status_of(third, kept) == 200


async def test_an_ended_session_is_forgotten_when_it_would_be_over(house: House) -> None:
    journal = await house.journal()
    await journal.end_session("old", 1)
    await journal.end_session("new", int(time.time() * 1000) + 60_000)
    assert await journal.ended_sessions() == {"new"}


# -- streams ---------------------------------------------------------------------------------------------
async def ended(desk: Desk, headers: dict[str, str], then: Any) -> None:
    """A stream of news that ends by itself after `then`."""
    async with asyncio.timeout(SOON_S), httpx.AsyncClient(base_url=desk.url, trust_env=False) as client:
        async with client.stream("GET", "/api/v1/events", headers=headers, timeout=SOON_S) as stream:
            assert stream.status_code == 200
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("retry")
            result = then()
            if result is not None:
                await result
            async for _ in lines:
                pass
        assert (await client.get("/api/v1/events", headers=headers)).status_code == 401


async def test_a_stream_ends_with_its_token(house: House) -> None:
    async with house.desk() as desk:
        await ended(desk, BEARER, house.tokens.clear)


async def test_a_stream_ends_with_the_sign_out_of_its_session(house: House) -> None:
    async with house.desk() as desk:
        cookie = await signed_in(desk)
        desk.client.cookies.clear()
        await ended(desk, with_cookie(desk, cookie), lambda: sign_out(desk, cookie))


async def test_a_stream_ends_with_the_sign_out_on_another_instance(house: House) -> None:
    async with house.desk() as desk, house.desk() as other:
        cookie = await signed_in(desk)
        desk.client.cookies.clear()
        await ended(desk, with_cookie(desk, cookie), lambda: sign_out(other, cookie))


async def test_a_stream_ends_with_the_time_of_its_session(house: House) -> None:
    async with house.desk(idle_s=600) as desk:
        sessions = Sessions(KEY, idle_s=600, end_s=600, now_s=time.time)
        key = Key(OLGA.hash, Person(name="", role=Role.VIEWER)).print
        session = sessions.begun(key=key)
        soon_over = sessions.written(replace(session, seen_s=int(time.time()) - 600 + 3))
        await ended(desk, with_cookie(desk, soon_over), lambda: None)


# -- without a store -------------------------------------------------------------------------------------
class AwayJournal:
    """A store that comes and goes."""

    def __init__(self) -> None:
        self.away = True
        self.told: list[str] = []

    async def noted(self, _who: str, action: str, _detail: object) -> None:
        self.told.append(action)

    async def ended_sessions(self) -> frozenset[str]:
        return frozenset()


async def test_what_could_not_be_written_is_written_later_in_its_order() -> None:
    now = [0.0]
    away = AwayJournal()

    async def journal() -> Journal:
        if away.away:
            raise StoreUnreachable("gone")
        return away  # type: ignore[return-value]  # the part of it that is asked

    book = DoorBook(journal, lambda: now[0])
    for action in ("signed in", "signed out"):
        await book.noted("olga", action)
    assert away.told == []
    away.away = False
    now[0] += LOOK_S
    await book.look()
    assert away.told == ["signed in", "signed out"]


async def test_nobody_waits_long_at_the_door_for_a_store_that_hangs() -> None:
    async def journal() -> Journal:
        await asyncio.Event().wait()
        raise AssertionError

    book = DoorBook(journal)
    async with asyncio.timeout(SOON_S):
        await book.noted("olga", "signed in")
        await book.look()
