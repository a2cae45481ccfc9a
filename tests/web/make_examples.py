"""Makes the examples of the API's document: each route is asked once, on a desk with everything.

    .venv/bin/python -m tests.web.make_examples

writes `src/deadletter/desk/answers/examples.json`: what was asked, and what came. Long lists are cut.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx
from tests.web.conftest import Office
from tests.web.whole_desk import everything

from deadletter.desk.access.access import Access
from deadletter.desk.answers.document import FILE
from deadletter.desk.http_app import create_app
from deadletter.operations.records.exact_letters import MEDIA_TYPE as ARCHIVE
from deadletter.service.telling.service_events import LifeChanged, QueueSeen, Stage
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics

V1: Final = "/api/v1"
SELECTION: Final = {"origin": "orders"}
REPLAY: Final = {"selection": SELECTION, "pace": {"pace": "canary", "steps": [1, 10], "share": 0.1}}
ASKED: Final[list[tuple[str, str, str, Any]]] = [
    ("GET", "/health/live", "", None),
    ("GET", "/health/ready", "", None),
    ("GET", "/api/status", "", None),
    ("POST", "/api/sweeps", "", {"dlqs": ["a.dlq"]}),
    ("GET", f"{V1}/store", "", None),
    ("GET", f"{V1}/letters", "?origin=orders&limit=2", None),
    ("GET", f"{V1}/facets", "", None),
    ("GET", f"{V1}/letters/{{name}}", "1", None),
    ("GET", f"{V1}/letters/{{name}}/draft", "1", None),
    ("PUT", f"{V1}/letters/{{name}}/draft", "2", {"edit": ".body.order = 7", "who": "ann", "note": "typo"}),
    ("GET", f"{V1}/letters/{{name}}/proposals", "1", None),
    ("GET", f"{V1}/letters/{{name}}/policy", "1", None),
    ("DELETE", f"{V1}/letters/{{name}}/draft", "2?who=ann", None),
    ("POST", f"{V1}/letters/discard", "", {"ids": [3], "who": "ann", "why": "sent by hand"}),
    ("GET", f"{V1}/discards/last", "?who=ann", None),
    ("POST", f"{V1}/letters/take-back", "", {"ids": [3], "who": "ann", "why": "it was not"}),
    ("GET", f"{V1}/groups", "?limit=1", None),
    ("GET", f"{V1}/groups/{{name}}", "1", None),
    ("PATCH", f"{V1}/groups/{{name}}", "1", {"state": "muted", "who": "ann"}),
    ("POST", f"{V1}/groups/{{name}}/notes", "1", {"text": "The bank is down until noon.", "who": "ann"}),
    ("POST", f"{V1}/groups/merge", "", {"into": "1", "other": "2", "who": "ann"}),
    ("POST", f"{V1}/groups/split", "", {"key": "KEY OF GROUP 2", "who": "ann"}),
    ("GET", f"{V1}/grouping", "", None),
    ("GET", f"{V1}/grouping/preview", "", None),
    ("POST", f"{V1}/grouping/regroup", "", {"who": "ann"}),
    ("POST", f"{V1}/replays/preflight", "", REPLAY),
    ("POST", f"{V1}/replays", "", {**REPLAY, "who": "ann", "why": "the bank is back", "anyway": True}),
    ("GET", f"{V1}/replays", "", None),
    ("GET", f"{V1}/replays/{{replay}}", "1", None),
    ("GET", f"{V1}/replays/{{replay}}/outcomes", "1", None),
    ("POST", f"{V1}/replays/{{replay}}/pause", "2", {"who": "ann"}),
    ("POST", f"{V1}/replays/{{replay}}/resume", "2", {"who": "ann"}),
    ("POST", f"{V1}/replays/{{replay}}/pace", "2", {"pace": {"pace": "all", "rate_per_s": 5}, "who": "ann"}),
    ("POST", f"{V1}/replays/{{replay}}/cancel", "2", {"who": "ann"}),
    ("POST", f"{V1}/edits/preview", "", {"selection": SELECTION, "edit": ".body.order = 7", "limit": 2}),
    ("GET", f"{V1}/recipes", "", None),
    ("POST", f"{V1}/recipes", "", {"name": "to-7", "program": ".body.order = 7", "who": "ann"}),
    ("GET", f"{V1}/recipes/{{name}}", "to-7", None),
    ("DELETE", f"{V1}/recipes/{{name}}", "to-7?who=ann", None),
    ("POST", f"{V1}/deploys", "", {"service": "shop", "release": "1.6.0", "who": "ann"}),
    ("GET", f"{V1}/deploys", "", None),
    ("GET", f"{V1}/audit", "?who=ann&limit=2", None),
    ("PUT", f"{V1}/views/{{name}}", "payments", {"address": "/letters?q=origin:orders", "shared": True}),
    ("GET", f"{V1}/views", "", None),
    ("GET", f"{V1}/suggestions", "?text=pay", None),
    ("DELETE", f"{V1}/views/{{name}}", "payments", None),
    ("GET", f"{V1}/samples", "?points=24", None),
    ("GET", f"{V1}/instances", "", None),
    ("GET", f"{V1}/vhosts", "", None),
    ("GET", f"{V1}/waiting", "?most=100", None),
    ("POST", f"{V1}/waiting/release", "", {"origin": "orders", "who": "ann"}),
    ("POST", f"{V1}/waiting/park", "", {"origin": "orders", "why": "the bank is closed", "who": "ann"}),
    ("GET", f"{V1}/queues", "?dead=true", None),
    ("POST", f"{V1}/findings/look", "", {"who": "ann"}),
    ("GET", f"{V1}/findings", "", None),
    ("GET", f"{V1}/topology", "", None),
    ("GET", f"{V1}/policies", "", None),
    ("PUT", f"{V1}/policies/rows/{{routing_key}}", "order.#", {"max_retries": 5, "who": "ann"}),
    ("GET", f"{V1}/policies/rows/{{routing_key}}", "order.%23", None),
    ("DELETE", f"{V1}/policies/rows/{{routing_key}}", "order.%23?who=ann", None),
]


async def made() -> dict[str, dict[str, Any]]:
    """By method and path: `request`, where it has a body, and `response`."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with everything(Path(folder) / "letters.db") as behind:
            office, metrics, health = Office(), Metrics(), ServiceHealth(lambda: 0.0)
            seen = QueueSeen(queue="a.dlq", watched=True, depth=7, consumers=1, oldest_s=3.0)
            for event in (LifeChanged(stage=Stage.READY), seen):
                office.board(event)
                health(event)
            access = Access(host="127.0.0.1")
            app = create_app(office, metrics, health, access, behind.records, behind.replays, behind.more)
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                other = (await client.get(f"{V1}/groups/2")).json()["group"]["key"]
                for method, path, part, wish in ASKED:
                    asked = {**wish, "key": other} if isinstance(wish, dict) and "key" in wish else wish
                    name, question, query = part.partition("?")
                    url = re.sub(r"\{.*\}", name, path).replace("#", "%23") + question + query
                    answer = await client.request(method, url, json=asked)
                    assert answer.status_code in (200, 503), (method, url, answer.text)
                    found[f"{method} {path}"] = _pair(asked, answer.json(), folder)
                exact = (await client.get(f"{V1}/archive?id=4")).content
                answer = await client.post(
                    f"{V1}/archive?who=ann", content=exact, headers={"content-type": ARCHIVE}
                )
                found[f"POST {V1}/archive"] = _pair(None, answer.json(), folder)
    return found


def _pair(asked: Any, told: Any, folder: str) -> dict[str, Any]:
    shown = json.loads(json.dumps(_cut(told)).replace(folder, "/var/lib/deadletter"))
    return {"response": shown} if asked is None else {"request": asked, "response": shown}


def _cut(value: Any) -> Any:
    """Two of many are an example; a body is shown by its beginning."""
    match value:
        case dict():
            return {key: _cut(one) for key, one in value.items()}
        case list():
            things = all(isinstance(one, dict | list) for one in value)
            return [_cut(one) for one in (value[:2] if things else value[:24])]
        case str() if len(value) > 400:
            return value[:400]
        case _:
            return value


if __name__ == "__main__":
    FILE.write_text(json.dumps(asyncio.run(made()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
