"""Masked fields and other people's letters on pages: whoever may not see them finds them nowhere.

About `desk.page.letter_pages`, `desk.page.search_pages`, `desk.page.group_pages`, `desk.page.overview_pages`,
`desk.access.rightful_records`, `desk.access.rightful_replays`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.recorded import parked, url_of
from tests.web.conftest import Desk, Opened

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.operations.records.store_records import LateRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.store.letters.letter_store import open_letters

CARD, TENANT = "4111222233334444", "acme-secret"
PEOPLE = [
    DeskToken(name="olga", role=Role.OPERATOR, hash=hashed("dlq_olga"), queues=("orders",)),
    DeskToken(name="anna", role=Role.ADMIN, hash=hashed("dlq_anna")),
]


@pytest.fixture
async def desk(opened: Opened, tmp_path: Path) -> AsyncIterator[Desk]:
    """Letter 1 has masked fields; letter 2 is of another queue."""
    now_ms = int(time.time() * 1000)
    url = url_of(tmp_path / "letters.db")
    body = f'{{"order": 1, "card": "{CARD}"}}'.encode()
    made = [
        parked(body, now_ms=now_ms, number=1, headers={"tenant": TENANT}, content_type="application/json"),
        parked(b'{"order": 2}', now_ms=now_ms, number=2, origin="bills", error="BillsError", stack=""),
    ]
    async with open_letters(url) as store:
        for one in made:
            await store.ingest([one])
    late = LateRecords(url)
    try:
        async with opened(
            records=late,
            replays=LateReplays(late, look_at=None, schemas=BodySchemas),
            tokens=lambda: PEOPLE,
            masked=lambda: ["body.card", "header.tenant"],
        ) as found:
            yield found
    finally:
        await late.close()


async def seen(desk: Desk, name: str, path: str) -> tuple[int, str]:
    answer = await desk.client.get(
        path, headers={"accept": "text/html", "authorization": f"Bearer dlq_{name}"}
    )
    return answer.status_code, answer.text


async def test_masked_fields_are_nowhere(desk: Desk) -> None:
    shown = "".join([(await seen(desk, "anna", "/letters/1?view=text"))[1]])
    assert CARD in shown
    assert TENANT in shown
    paths = ["/", "/groups", "/groups/1", "/letters", "/letters/1", "/letters/1/raw", "/letters/1/edit"]
    paths += [f"/letters/1?view={view}" for view in ("tree", "text", "hex")]
    paths += ["/letters?q=origin:orders&facets=1", "/letters/export?q=origin:orders"]
    assert (await seen(desk, "olga", paths[-1]))[0] == 403, "an archive is exact, so it is not for her"
    for path in paths:
        _, text = await seen(desk, "olga", path)
        for masked in (CARD, TENANT, CARD.encode().hex(" ")[:23]):
            assert masked not in text, path
    for asked in (f"q={CARD}", f"q=header.tenant:{TENANT}", f'where=.body.card=="{CARD}"'):
        status, text = await seen(desk, "olga", f"/letters?{asked}")
        assert status == 200
        assert 'href="/letters/1"' not in text, asked


async def test_letters_of_others_are_not_there(desk: Desk) -> None:
    for path in ("/letters/2", "/letters/2/raw", "/letters/2/edit", "/groups/2"):
        assert (await seen(desk, "anna", path))[0] == 200
        status, text = await seen(desk, "olga", path)
        assert status == 404, path
        assert "BillsError" not in text
    for path in ("/", "/groups?state=any", "/letters?q=state:any", "/letters?q=id:2"):
        status, text = await seen(desk, "olga", path)
        assert status == 200
        assert "BillsError" not in text, path


async def test_letters_of_others_are_not_changed(desk: Desk) -> None:
    bearer = {"authorization": "Bearer dlq_olga", "accept": "text/html"}
    for path, fields in (
        ("/groups/state", {"group": "2", "state": "muted"}),
        ("/groups/2/note", {"text": "x"}),
        ("/letters/2/edit", {"do": "save", "program": ".body.order = 3", "base": "0"}),
        ("/groups/undo", {"group": "2:muted:0"}),
    ):
        answer = await desk.client.post(path, data=fields, headers=bearer)
        assert answer.status_code in (403, 404), (path, answer.status_code)
    answer = await desk.client.post("/letters/discard", data={"id": "2", "back": "/"}, headers=bearer)
    assert answer.status_code in (303, 403, 404)
    desk.client.cookies.clear()
    assert "discarded" not in (await seen(desk, "anna", "/letters/2"))[1].partition("</header>")[2][:3000]
