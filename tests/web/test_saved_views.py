"""Views that people save, and what is suggested while they type: of what they see, and of nothing else.

About `store.journal.view_table`, `desk.access.rightful_views`, `desk.api.view_api`, `desk.page.view_pages`,
`desk.page.taken_back`, `desk.page.said`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.conftest import Desk, Opened
from tests.web.page_reading import ACTS, HTML
from tests.web.whole_desk import everything

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed

PEOPLE = [
    DeskToken(name="olga", role=Role.OPERATOR, hash=hashed("dlq_olga")),
    DeskToken(name="vera", role=Role.VIEWER, hash=hashed("dlq_vera")),
    DeskToken(name="lars", role=Role.OPERATOR, hash=hashed("dlq_lars"), queues=("mail",)),
]
WHERE = "/letters?q=origin:orders"


@pytest.fixture
async def desk(opened: Opened, tmp_path: Path) -> AsyncIterator[Desk]:
    async with (
        everything(tmp_path / "letters.db") as behind,
        opened(
            records=behind.records, replays=behind.replays, more=behind.more, tokens=lambda: PEOPLE
        ) as found,
    ):
        yield found


async def ask(desk: Desk, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer dlq_{who}", **more.pop("headers", {})}
    return await desk.client.request(method, path, headers=headers, **more)


async def named(desk: Desk, who: str) -> list[tuple[str, str]]:
    told = (await ask(desk, who, "GET", "/api/v1/views")).json()["views"]
    return [(one["name"], one["owner"]) for one in told]


async def test_a_view_is_its_owners_until_it_is_shared(desk: Desk) -> None:
    answer = await ask(desk, "olga", "PUT", "/api/v1/views/mine", json={"address": WHERE})
    assert answer.status_code == 200, answer.text
    assert await named(desk, "olga") == [("mine", "olga")]
    assert await named(desk, "vera") == []
    wish = {"address": WHERE, "shared": True}
    assert (await ask(desk, "olga", "PUT", "/api/v1/views/all", json=wish)).status_code == 200
    assert (
        await ask(desk, "vera", "PUT", "/api/v1/views/all", json={"address": "/groups?q=x"})
    ).status_code == 200
    assert await named(desk, "vera") == [("all", "vera"), ("all", "olga")]
    assert await named(desk, "lars") == [], "an address names queues, and he sees some of them"
    refused = await ask(desk, "vera", "PUT", "/api/v1/views/loud", json=wish)
    assert refused.status_code == 403
    assert (await ask(desk, "vera", "DELETE", "/api/v1/views/mine")).status_code == 404, "it is not hers"
    assert (await ask(desk, "olga", "DELETE", "/api/v1/views/mine")).status_code == 200
    assert await named(desk, "olga") == [("all", "olga"), ("all", "vera")][:1]


@pytest.mark.parametrize(
    "address",
    ["https://evil.example", "//evil.example", "/\\evil", "letters", "", "/api/v1/x", "/sign-out", "/a\nb"],
)
async def test_a_view_leads_nowhere_else(desk: Desk, address: str) -> None:
    answer = await ask(desk, "olga", "PUT", "/api/v1/views/bad", json={"address": address})
    assert answer.status_code == 422, answer.text


async def test_a_page_saves_shows_and_removes_views_and_takes_that_back(desk: Desk) -> None:
    evil = '"><script>x</script>'

    async def post(path: str, **fields: str) -> httpx.Response:
        return await ask(desk, "olga", "POST", path, data={"back": "/letters", **fields}, headers=HTML)

    answer = await post("/views", name=evil, address=WHERE, shared="1")
    assert (answer.status_code, answer.headers["location"]) == (303, WHERE)
    page = (await ask(desk, "olga", "GET", WHERE, headers=HTML)).text
    assert not ACTS.search(page)
    assert f'<a href="{WHERE}" data-view>' in page
    assert 'action="/views/remove"' in page
    theirs = (await ask(desk, "vera", "GET", WHERE, headers=HTML)).text
    assert "shared by olga" in theirs
    assert 'action="/views/remove"' not in theirs
    assert (await post("/views/remove", name=evil)).status_code == 303
    told = (await ask(desk, "olga", "GET", "/letters", headers=HTML)).text
    assert 'action="/views/undo"' in told
    assert not ACTS.search(told)
    assert await named(desk, "vera") == []
    assert (await post("/views/undo", name=evil)).status_code == 303
    assert await named(desk, "vera") == [(evil, "olga")]
    assert (await post("/views/undo", name="never")).status_code == 404
    audit = (await ask(desk, "olga", "GET", "/api/v1/audit?action=view+removed")).json()["entries"]
    assert [(one["who"], one["detail"]["address"]) for one in audit] == [("olga", WHERE)]


async def test_suggestions_are_of_what_somebody_sees(desk: Desk) -> None:
    async def suggested(who: str, text: str) -> set[tuple[str, str]]:
        answer = await ask(desk, who, "GET", "/api/v1/suggestions", params={"text": text})
        assert answer.status_code == 200, answer.text
        return {(one["kind"], one["word"] or one["text"]) for one in answer.json()["suggestions"]}

    await ask(desk, "olga", "PUT", "/api/v1/views/orders of today", json={"address": WHERE})
    found = await suggested("olga", "ORD")
    assert {("queue", "origin:orders"), ("view", "orders of today")} <= found
    assert ("error", "error:shop.errors.PaymentTimeout") in await suggested("olga", "payment")
    assert any(kind == "group" for kind, _ in await suggested("olga", "timeout"))
    for text in ("ord", "payment", "timeout"):
        assert not any("orders" in word or "Payment" in word for _, word in await suggested("lars", text))
    assert await suggested("olga", "no such thing") == set()
