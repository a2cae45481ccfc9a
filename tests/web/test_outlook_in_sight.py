"""Somebody who sees some queues: what is told of the broker, and what they may do there.

About `desk.answers.in_sight`, `desk.api.broker_api`, `desk.api.journal_api`, `desk.answers.desk_route`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.web.conftest import Desk, Opened
from tests.web.whole_desk import Everything, everything

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.operations.waiting import WaitingChoice

ORDERS = DeskToken(name="olga", role=Role.OPERATOR, hash=hashed("dlq_olga"), queues=("orders*",))
BILLS = DeskToken(name="bill", role=Role.OPERATOR, hash=hashed("dlq_bill"), queues=("bills",))
VIEW = DeskToken(name="vera", role=Role.VIEWER, hash=hashed("dlq_vera"))
ADMIN = DeskToken(name="ada", role=Role.ADMIN, hash=hashed("dlq_ada"))
OF = {"olga": "dlq_olga", "bill": "dlq_bill", "vera": "dlq_vera", "ada": "dlq_ada"}


@pytest.fixture
async def both(opened: Opened, tmp_path: Path) -> AsyncIterator[tuple[Desk, Everything]]:
    async with (
        everything(tmp_path / "letters.db") as behind,
        opened(
            records=behind.records,
            replays=behind.replays,
            more=behind.more,
            tokens=lambda: [ORDERS, BILLS, VIEW, ADMIN],
        ) as desk,
    ):
        yield desk, behind


async def status(desk: Desk, who: str, method: str, path: str, wish: object = None) -> int:
    bearer = {"authorization": f"Bearer {OF[who]}"}
    return (await desk.client.request(method, f"/api/v1/{path}", json=wish, headers=bearer)).status_code


async def told(desk: Desk, who: str, path: str) -> dict[str, list[object]]:
    answer = await desk.client.get(f"/api/v1/{path}", headers={"authorization": f"Bearer {OF[who]}"})
    assert answer.status_code == 200, answer.text
    found: dict[str, list[object]] = answer.json()
    return found


async def test_only_what_is_theirs_is_told(both: tuple[Desk, Everything]) -> None:
    desk, _ = both
    for path, key in (("waiting?most=10", "kinds"), ("queues", "queues"), ("samples", "queues")):
        assert len((await told(desk, "olga", path))[key]) == 1, path
        assert (await told(desk, "bill", path))[key] == [], path
    assert (await told(desk, "olga", "waiting?most=10"))["queues"] == []
    assert len((await told(desk, "vera", "waiting?most=10"))["queues"]) == 1
    for path in ("findings", "topology", "topology/drawn", "audit"):
        assert await status(desk, "olga", "GET", path) == 403, path


async def test_only_what_is_theirs_is_let_out(both: tuple[Desk, Everything]) -> None:
    desk, behind = both
    for who, wish, expected in (
        ("bill", {"origin": "orders"}, 403),
        ("olga", {"origin": "*"}, 403),
        ("olga", {"everything": True}, 403),
        ("olga", {"waits": "held"}, 403),
        ("vera", {"origin": "orders"}, 403),
        ("olga", {"origin": "orders"}, 200),
    ):
        assert await status(desk, who, "POST", "waiting/release", wish) == expected, (who, wish)
    assert behind.outlook.let == [(WaitingChoice(origin="orders"), None)]
    (entry,) = (await told(desk, "ada", "audit?action=waiting%20released"))["entries"]
    assert entry["who"] == "olga"  # type: ignore[index]  # an object


async def test_policies_are_set_by_admins_alone(both: tuple[Desk, Everything]) -> None:
    desk, _ = both
    for who, expected in (("vera", 403), ("olga", 403), ("ada", 200)):
        assert await status(desk, who, "PUT", "policies/rows/a", {"max_retries": 1}) == expected
        assert await status(desk, who, "DELETE", "policies/rows/a") == expected


async def test_the_answer_of_one_is_not_that_of_another(both: tuple[Desk, Everything]) -> None:
    """An ETag, or a key, of somebody else is nobody's."""
    desk, _ = both
    ada, vera = ({"authorization": f"Bearer {OF[who]}"} for who in ("ada", "vera"))
    etag = (await desk.client.get("/api/v1/letters", headers=ada)).headers["etag"]
    assert (
        await desk.client.get("/api/v1/letters", headers={**vera, "if-none-match": etag})
    ).status_code == 200
    note = {"text": "x"}
    key = {"idempotency-key": "k"}
    first = await desk.client.post("/api/v1/groups/1/notes", json=note, headers={**ada, **key})
    assert first.status_code == 200
    second = await desk.client.post("/api/v1/groups/1/notes", json=note, headers={**vera, **key})
    assert second.status_code == 403
