"""One secret value, looked for in every answer of the desk: whoever may not see the field that holds it finds
it nowhere, whatever quotes it.

About `operations.records.masked_groups`, `operations.records.masked_rows`, `desk.access.typed_texts`,
`desk.access.rightful_records`, `desk.access.rightful_replays`, `desk.api.journal_api`,
`desk.page.operating.audit_pages`.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from tests.recorded import STACK, parked
from tests.web.conftest import Desk, Office, Opened
from tests.web.test_rights import every_route
from tests.web.whole_desk import everything

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import AllAtOnce
from deadletter.desk.access.access import Access
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.http_app import create_app
from deadletter.operations.records.store_records import LateRecords
from deadletter.operations.replays.replay_told import EditWish, ReplayWish
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import LetterRow
from deadletter.store.replays.recipe_table import Recipe

SECRET = "Wolkenstein Lila"
OTHER = "Nachtigall Blau"
SPLINTERS = (SECRET, OTHER, "Wolkenstein", "Nachtigall", SECRET.encode().hex(" "))
PEOPLE = [
    DeskToken(name="olga", role=Role.OPERATOR, hash=hashed("dlq_olga")),
    DeskToken(name="anna", role=Role.ADMIN, hash=hashed("dlq_anna")),
]
POLICIES = """
[[policies]]
name = "of acme"
match.header = { tenant = "acme*" }

[[policies]]
name = "of nobody"
match.header = { x-exception-message = "nothing*" }

[[policies]]
name = "of details"
match.header = { deadletter-error-message = "nothing*" }
"""
HOLDING = ("plain", "stacked", "left", "doubled", "broken")
NEVER_ENDS, NOT_READY = "/api/v1/events", "/health/ready"


@pytest.fixture
async def secret_ids(opened: Opened, tmp_path: Path) -> AsyncIterator[tuple[Desk, list[int], MoreSources]]:
    """A desk, and the letters that hold the secret: with a stack and without; one whose group was named by
    another letter that is gone; some that are hidden whole."""
    now_ms = int(time.time() * 1000)
    (tmp_path / "deadletter.toml").write_text(POLICIES)
    async with everything(tmp_path / "letters.db") as behind:
        store = (await behind.records()).opened
        made = [
            parked(
                f'{{"order": {number}, "tenant": "{value}"}}'.encode(),
                now_ms=now_ms,
                number=900 + number,
                headers={"tenant": value, "x-exception-message": f"no tenant {value}"},
                app_id=value,
                error="shop.errors.UnknownTenant",
                message=f"nobody knows the tenant {value}",
                content_type="application/json",
                origin=origin,
                stack="" if origin == "plain" else STACK,
            )
            for number, (value, origin) in enumerate(
                [(SECRET, "plain"), (SECRET, "stacked"), (OTHER, "left"), (SECRET, "left")]
            )
        ]
        made += [
            parked(
                body.replace("?", SECRET).encode(),
                now_ms=now_ms,
                number=950 + number,
                error="shop.errors.UnknownTenant",
                message=f"nobody knows the tenant {SECRET}",
                headers={"x-error-details": [f"the tenant was {SECRET}"], "deadletter-why": f"no {SECRET}"},
                origin=origin,
                stack=f"{STACK}\nUnknownTenant: {SECRET}" if origin == "broken" else "",
            )
            for number, (body, origin) in enumerate(
                [('{"tenant": "?", "x": 1, "x": 2}', "doubled"), ("tenant=?", "broken")]
            )
        ]
        for one in made:  # one by one: a group is named by its first
            await store.ingest([one])
        ids = [row.id for row in await _rows(store) if row.origin in HOLDING]
        gone = next(row.id for row in reversed(await _rows(store)) if row.origin == "left")
        await _forget(behind.records, gone)
        replays = await behind.replays()
        program = f'if .body.tenant == "{SECRET}" then .body.order = 1 else . end'
        await replays.save_recipe(Recipe(name="by-tenant", program=program), who="anna")
        for wish in (
            ReplayWish(selection=LetterQuery(text=SECRET, origin="plain"), pace=AllAtOnce()),
            ReplayWish(
                selection=LetterQuery(headers=(("tenant", SECRET),), origin="stacked"),
                edit=EditWish(recipe="by-tenant"),
                pace=AllAtOnce(),
            ),
        ):
            await replays.start(wish, who="anna", why="", careful=False)
        async with opened(
            records=behind.records,
            replays=behind.replays,
            more=behind.more,
            tokens=lambda: PEOPLE,
            masked=lambda: ["body.tenant", "header.tenant"],
        ) as desk:
            yield desk, [one for one in ids if one != gone], behind.more


async def _rows(store: LetterStore) -> tuple[LetterRow, ...]:
    return (await store.find(LetterQuery(state=None, limit=100))).letters


async def _forget(records: LateRecords, number: int) -> None:
    """As if its time were over: the group keeps the name it gave."""
    store = (await records()).opened
    async with store.connections.writing() as connection:
        await connection.exec_driver_sql(f"DELETE FROM deadletter_letters WHERE id = {number}")


def looks(more: MoreSources) -> list[str]:
    """Every address that shows something, with its parameters as they are called."""

    async def nobody() -> Any:
        raise AssertionError

    app: FastAPI = create_app(
        Office(),
        Metrics(),
        ServiceHealth(lambda: 0.0),
        Access(host="::1"),
        nobody,
        nobody,
        more,
    )
    return sorted(
        {route for method, route in every_route(app.routes) if method == "GET"} - {NEVER_ENDS, NOT_READY}
    )


async def seen(desk: Desk, name: str, path: str, accept: str = "text/html") -> tuple[int, str]:
    answer = await desk.client.get(path, headers={"accept": accept, "authorization": f"Bearer dlq_{name}"})
    return answer.status_code, answer.text


async def test_it_is_in_no_answer(secret_ids: tuple[Desk, list[int], MoreSources]) -> None:
    desk, ids, more = secret_ids
    groups = (await desk.client.get("/api/v1/groups?limit=100", headers=bearer("anna"))).json()["groups"]
    mine = [one["id"] for one in groups if one["origin"] in HOLDING]
    assert len(mine) == len(HOLDING)
    assert all(
        "Wolkenstein" in one["title"] or "Nachtigall" in one["title"] for one in groups if one["id"] in mine
    )
    paths = set()
    for route in looks(more):
        if "/groups/{" in route:
            names = [str(one) for one in mine]
        elif "/letters/{" in route:
            names = [str(one) for one in ids]
        elif "recipes/{" in route:
            names = ["by-tenant"]
        else:
            names = ["1", "2", "3"] if "{" in route else [""]
        paths |= {re.sub(r"\{[^}]*\}", name, route) for name in names}
    paths |= {f"/letters/{one}?view={view}" for one in ids for view in ("tree", "text", "hex")}
    paths |= {
        "/letters?facets=1",
        "/api/v1/facets",
        "/groups?state=any",
        "/audit?action=recipe+saved",
        "/?all=1",
    }
    paths |= {f"/policies?letter={one}" for one in ids}
    paths |= {"/letters?q=origin:stacked&facets=1", "/replays/new?group=" + str(mine[0])}
    paths |= {f"/replays/new?group={one}&recipe=by-tenant" for one in mine}
    found = set()
    for path in sorted(paths):
        for accept in ("application/json",) if path.startswith("/api") else ("text/html",):
            status, text = await seen(desk, "olga", path, accept)
            assert status < 500, (path, text)
            for splinter in SPLINTERS:
                assert splinter.lower() not in text.lower(), (path, splinter)
            status, text = await seen(desk, "anna", path, accept)
            found |= {path} if SECRET in text or "Wolkenstein" in text else set()
    for part in (
        "/groups",
        "/letters",
        "/replays",
        "/audit",
        "/policies?letter=",
        "/api/v1/groups",
        "/api/v1/audit",
        "/api/v1/replays",
    ):
        assert any(path.startswith(part) for path in found), (
            f"who may sees it at {part}, or this tests nothing"
        )
    assert len(found) > 20


async def test_it_is_in_no_answer_to_an_action(secret_ids: tuple[Desk, list[int], MoreSources]) -> None:
    desk, _, _ = secret_ids
    groups = (await desk.client.get("/api/v1/groups?limit=100", headers=bearer("anna"))).json()["groups"]
    for one in groups:
        if one["origin"] not in HOLDING:
            continue
        for method, path, body in (
            ("PATCH", f"/api/v1/groups/{one['id']}", {"state": "muted"}),
            ("POST", f"/api/v1/groups/{one['id']}/notes", {"text": "seen"}),
            ("POST", "/api/v1/replays/preflight", {"selection": {"group": one["id"]}}),
        ):
            answer = await desk.client.request(method, path, json=body, headers=bearer("olga"))
            assert answer.status_code == 200, answer.text
            assert not any(part.lower() in answer.text.lower() for part in SPLINTERS), path
    answer = await desk.client.post(
        "/api/v1/deploys", json={"service": "plain", "release": "9"}, headers=bearer("olga")
    )
    assert answer.status_code == 200, answer.text
    assert not any(part.lower() in answer.text.lower() for part in SPLINTERS)


async def test_nothing_is_found_by_it(secret_ids: tuple[Desk, list[int], MoreSources]) -> None:
    desk, _, _ = secret_ids
    for path, key in (
        ("/api/v1/groups?text=Wolkenstein", "groups"),
        (f"/api/v1/letters?text={SECRET}", "letters"),
        ("/api/v1/letters?error=Wolkenstein", "letters"),
        (f"/api/v1/letters?header=tenant={SECRET}", "letters"),
        ("/api/v1/letters?header=deadletter-error-message=*Wolkenstein*", "letters"),
        ("/api/v1/letters?header=x-exception-message=*Wolkenstein*", "letters"),
        ('/api/v1/letters?where=.headers["deadletter-error-message"]|contains("Wolkenstein")', "letters"),
        ('/api/v1/letters?where=.headers|tostring|contains("Wolkenstein")', "letters"),
        (f'/api/v1/letters?where=.properties.app_id=="{SECRET}"', "letters"),
    ):
        found = (await desk.client.get(path, headers=bearer("anna"))).json()
        assert found.get(key), path
        found = (await desk.client.get(path, headers=bearer("olga"))).json()
        assert found.get(key) == [], path
    told = (await desk.client.get("/api/v1/groups?text=UnknownTenant", headers=bearer("olga"))).json()
    found = sorted(one["origin"] for one in told["groups"])
    assert found == ["doubled", "plain"], "by the type of its error it is"


async def test_a_title_says_what_it_can(secret_ids: tuple[Desk, list[int], MoreSources]) -> None:
    desk, _, _ = secret_ids
    told = (await desk.client.get("/api/v1/groups", headers=bearer("olga"))).json()
    titles = {one["origin"]: one["title"] for one in told["groups"]}
    assert titles["plain"].startswith("UnknownTenant: nobody knows the tenant ***")
    assert titles["stacked"].endswith(": nobody knows the tenant ***")
    assert " in " in titles["left"], "its first letter is gone, so only code is told"
    assert titles["doubled"].endswith("UnknownTenant"), "nobody knows what its first letter holds"
    assert " in " in titles["broken"]


async def test_a_policy_that_does_not_apply_quotes_nothing(
    secret_ids: tuple[Desk, list[int], MoreSources],
) -> None:
    desk, _, _ = secret_ids
    (row,) = (await desk.client.get("/api/v1/letters?origin=plain", headers=bearer("anna"))).json()["letters"]
    path = f"/api/v1/letters/{row['id']}/policy"
    for name, said in (
        ("anna", f"header tenant '{SECRET}' is not like 'acme*'"),
        ("olga", "header tenant is not like 'acme*'"),
    ):
        told = (await desk.client.get(path, headers=bearer(name))).json()["considered"]
        assert [one["refusal"] for one in told if one["policy"] == "of acme"] == [said]


async def test_of_a_letter_that_is_hidden_whole_no_error_is_told_in_words(
    secret_ids: tuple[Desk, list[int], MoreSources],
) -> None:
    desk, _, _ = secret_ids
    for origin in ("doubled", "broken"):
        (row,) = (await desk.client.get(f"/api/v1/letters?origin={origin}", headers=bearer("olga"))).json()[
            "letters"
        ]
        assert row["error"] == "***"
        told = (await desk.client.get(f"/api/v1/letters/{row['id']}", headers=bearer("olga"))).json()
        assert (told["letter"]["error"], told["why"], told["body"]["text"]) == ("***", "***", "***")
        assert told["error"]["type"] == "shop.errors.UnknownTenant"
        assert (told["error"]["message"], told["error"]["chain"]) == ("***", [])
        assert told["error"]["stack"] in ("", "***")
        (failed,) = [one["why"] for one in told["timeline"] if one["what"] == "failed"]
        assert failed == "shop.errors.UnknownTenant: ***"


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer dlq_{name}"}


async def test_a_recipe_of_others_is_tried_and_used_by_its_name(
    secret_ids: tuple[Desk, list[int], MoreSources],
) -> None:
    desk, ids, _ = secret_ids
    row = (await desk.client.get(f"/api/v1/letters/{ids[-1]}", headers=bearer("anna"))).json()["letter"]
    address = f"/replays/new?id={row['id']}&recipe=by-tenant&pace=all"
    for name, shown in (("olga", False), ("anna", True)):
        status, text = await seen(desk, name, address)
        assert status == 200, text
        assert "would change" in text
        assert ("What it changes is not shown" not in text) is shown
        assert ("if .body.tenant" in text) is shown
    status, text = await seen(desk, "olga", f"/replays/new?id={row['id']}&edit=.&pace=all")
    assert status == 403
    assert "may not edit letters here" in text
    tried = re.search(r'name="tried" value="(\w+)"', (await seen(desk, "olga", address))[1])
    assert tried is not None
    form = {"wish": address, "tried": tried[1], "why": "", "run": "r1", "anyway": "1"}
    begun = await desk.client.post(
        "/replays",
        data=form | {"tried": "0" * 16},
        headers=bearer("olga") | {"sec-fetch-site": "same-origin", "accept": "text/html"},
    )
    assert begun.status_code == 422, "not as it was tried"
    begun = await desk.client.post(
        "/replays",
        data=form,
        headers=bearer("olga") | {"sec-fetch-site": "same-origin", "accept": "text/html"},
    )
    assert begun.status_code == 303, begun.text
