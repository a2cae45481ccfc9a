"""Each role × each route: who may is let through, who may not is refused in words, and nobody else comes in.

About `desk.access.route_rights`, `desk.access.rightful_service`, `desk.access.rightful_records`,
`desk.access.rightful_replays`, `desk.access.present`, `core.access.rights`.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from tests.recorded import make
from tests.web.conftest import Desk, Office, Opened

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import EVERYWHERE, RIGHTS, Action, Role
from deadletter.core.access.token_hash import hashed
from deadletter.desk.access.access import Access
from deadletter.desk.access.person import Person
from deadletter.desk.access.rightful_records import RightfulRecords
from deadletter.desk.access.rightful_replays import RightfulReplays
from deadletter.desk.access.route_rights import needed
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.http_app import create_app
from deadletter.errors import NotAllowed
from deadletter.operations.journal.store_journal import LateJournal
from deadletter.operations.records.exact_letters import MEDIA_TYPE
from deadletter.operations.records.records import Records
from deadletter.operations.records.store_records import LateRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.replays import Replays
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics
from deadletter.store.journal.audit_list import AuditQuery

TOKENS = {role: f"dlq_{role.value}" for role in Role}
PEOPLE = [DeskToken(name=role.value, role=role, hash=hashed(TOKENS[role])) for role in Role]
LIMITED = DeskToken(name="limited", role=Role.ADMIN, hash=hashed("dlq_limited"), queues=("mail",))


def every_route(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path
        router = getattr(route, "original_router", None)  # as FastAPI keeps a router that was included
        if router is not None:
            yield from every_route(router.routes)


def all_routes() -> list[tuple[str, str]]:
    async def nobody() -> Any:
        raise AssertionError

    app = create_app(Office(), Metrics(), ServiceHealth(lambda: 0.0), Access(host="::1"), nobody, nobody)
    return sorted(set(every_route(app.routes)))


ROUTES = all_routes()


def test_every_route_says_what_it_takes() -> None:
    assert len(ROUTES) > 40
    for method, route in ROUTES:
        needed(method, route)
    changing = {one for one in ROUTES if one[0] not in ("GET", "HEAD")}
    assert {action for one in changing if (action := needed(*one)) is not None} >= {
        Action.DISCARD, Action.EDIT, Action.REPLAY, Action.NOTE, Action.CHANGE_GROUP, Action.SWEEP,
    }  # fmt: skip


def test_only_what_tells_nothing_of_letters_is_open() -> None:
    assert {route for method, route in ROUTES if needed(method, route) is None} == {
        "/metrics", "/health/live", "/health/ready", "/api/status", "/sign-in",
        "/sign-in/begin", "/sign-in/end", "/static/{of}/{name}",
    }  # fmt: skip


@pytest.fixture
async def desk(opened: Opened, tmp_path: Path) -> AsyncIterator[Desk]:
    late = LateRecords(await make(tmp_path / "letters.db", int(time.time() * 1000)))
    replays = LateReplays(late, look_at=None, schemas=BodySchemas)
    try:
        async with opened(records=late, replays=replays, tokens=lambda: [*PEOPLE, LIMITED]) as found:
            yield found
    finally:
        await late.close()


async def asked(desk: Desk, method: str, route: str, token: str | None) -> tuple[int, str]:
    path = re.sub(r"\{[^}]*\}", "1", route)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    body: dict[str, Any] = {} if method in ("GET", "HEAD", "DELETE") else {"json": {}}
    if (method, route) == ("POST", "/api/v1/archive"):
        body = {"content": b"none"}
        headers["content-type"] = MEDIA_TYPE
    answer = await desk.client.request(method, path, headers=headers, **body)
    return answer.status_code, answer.text


async def test_each_role_on_each_route(desk: Desk) -> None:
    for method, route in ROUTES:
        action = needed(method, route)
        if action is None or route == "/sign-out":
            continue
        status, said = await asked(desk, method, route, None)
        assert status == 401, (method, route)
        for role in Role:
            status, said = await asked(desk, method, route, TOKENS[role])
            assert status not in (401, 500), (method, route, said)
            if action in RIGHTS[role]:
                assert status != 403, (method, route, role, said)
            else:
                assert status == 403, (method, route, role, status)
                assert f"{role.value} may not {action.value}" in said
        status, said = await asked(desk, method, route, "dlq_limited")
        if action in EVERYWHERE:
            assert status == 403
            assert "all queues" in said


async def test_what_somebody_does_stands_in_their_name(desk: Desk) -> None:
    groups = {"authorization": f"Bearer {TOKENS[Role.OPERATOR]}"}
    found = (await desk.client.get("/api/v1/groups", headers=groups)).json()["groups"][0]
    answer = await desk.client.post(
        f"/api/v1/groups/{found['id']}/notes", json={"text": "seen", "who": "somebody else"}, headers=groups
    )
    assert answer.status_code == 200
    told = (await desk.client.get(f"/api/v1/groups/{found['id']}", headers=groups)).json()
    assert [note["author"] for note in told["notes"]] == ["operator"]


async def test_a_sweep_is_of_their_queues_and_written_down(opened: Opened, tmp_path: Path) -> None:
    records = LateRecords(await make(tmp_path / "letters.db", int(time.time() * 1000)))
    late = LateJournal(records)
    try:
        async with opened(more=MoreSources(journal=late), tokens=lambda: [*PEOPLE, LIMITED]) as desk:
            limited = {"authorization": "Bearer dlq_limited"}
            for dlqs, status in (([], 403), (["a.dlq"], 403), (["mail", "a.dlq"], 403), (["mail"], 200)):
                answer = await desk.client.post("/api/sweeps", json={"dlqs": dlqs}, headers=limited)
                assert answer.status_code == status, dlqs
            assert desk.office.asked == [["mail"]]
            assert desk.office.in_vhosts == ["/", "shop", "bank"]
            (line,) = (await (await late()).audit(AuditQuery(action="swept"))).entries
            assert (line.who, line.action) == ("limited", "swept")
    finally:
        await late.close()
        await records.close()


async def test_a_sweep_is_of_their_vhosts(opened: Opened) -> None:
    """Queues of two vhosts may have one name."""
    shop = DeskToken(name="shop", role=Role.OPERATOR, hash=hashed("dlq_shop"), vhosts=("shop",))
    async with opened(tokens=lambda: [shop]) as desk:
        headers = {"authorization": "Bearer dlq_shop"}
        answer = await desk.client.post("/api/sweeps", json={"dlqs": ["a.dlq"]}, headers=headers)
        assert answer.status_code == 200
        assert desk.office.in_vhosts == ["shop"]


def _calls(kind: type) -> list[str]:
    return sorted(
        name for name, one in inspect.getmembers(kind) if inspect.isfunction(one) and name[0] != "_"
    )


@pytest.mark.parametrize(("rightful", "asked_of"), [(RightfulRecords, Records), (RightfulReplays, Replays)])
async def test_no_operation_goes_round_the_rights(rightful: Any, asked_of: type) -> None:
    """Whatever page asks: what a viewer may not is refused before the store hears of it."""
    looks = {
        "store", "groups", "group", "grouping", "letters", "facets", "letter", "body", "preview",
        "last_discard", "preflight", "replays", "replay", "outcomes", "recipes", "recipe", "deploys",
    }  # fmt: skip
    assert _calls(rightful) == _calls(asked_of)

    class Untouched:
        def __getattr__(self, name: str) -> Any:
            async def called(*_told: object, **_named: object) -> None:
                raise AssertionError(f"{name} was asked of the store")

            return called

    viewer = Person(name="eve", role=Role.VIEWER)
    masks: tuple[Any, ...] = () if rightful is RightfulRecords else ((),)
    for name in set(_calls(asked_of)) - looks:
        call = getattr(rightful(Untouched(), viewer, *masks), name)
        wanted = [one for one in inspect.signature(call).parameters.values() if one.default is one.empty]
        positional: list[Any] = ["1" for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
        named = {one.name: "x" for one in wanted if one.kind is one.KEYWORD_ONLY}
        with pytest.raises(NotAllowed, match="eve may not"):
            await call(*positional, **named)
