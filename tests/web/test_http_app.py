"""What the service says over HTTP.

About `desk.http_app`, `desk.api.service_api`, `desk.api.all_routes`, `desk.board`, `desk.view`,
`desk.problems`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.web.conftest import NOW, Desk, Opened

from deadletter.amqp.address import parse_addresses
from deadletter.config.settings import Mode, Watch
from deadletter.core.guards.gate import GateState
from deadletter.desk.board import Board
from deadletter.desk.view import SweepAnswer, SweepState
from deadletter.errors import Unreachable
from deadletter.service.telling.service_events import (
    BudgetSeen,
    FindingGone,
    FindingNamed,
    GateChanged,
    GrowthFound,
    LeaseChanged,
    LifeChanged,
    PoliciesChanged,
    QueueGone,
    QueueSeen,
    Recovered,
    Stage,
    SweepEnded,
    Trouble,
)

NOON = "2025-06-01T12:00:00Z"
VHOSTS = {"a": Mode.SWEEP, "b": Mode.CONSUME}


def problem_of(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told.keys() == {"title", "status", "detail"}
    assert told["status"] == answer.status_code
    detail = told["detail"]
    assert isinstance(detail, str)
    return detail


async def test_metrics_in_the_format_that_is_asked_for(desk: Desk) -> None:
    plain = await desk.client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert 'deadletter_queue_letters{queue="a.dlq"} 7.0' in plain.text
    assert list(parse_text(plain.text))
    accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"
    openmetrics = await desk.client.get("/metrics", headers={"accept": accept})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert list(parse_openmetrics(openmetrics.text))  # type: ignore[no-untyped-call]


async def test_health_with_reasons(desk: Desk) -> None:
    ready = await desk.client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"ok": True, "reasons": [], "notes": []})
    desk.emit(Trouble(what="broker", why="refused"), Trouble(what="store", why="down"))
    ready = await desk.client.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json() == {
        "ok": False,
        "reasons": ["the broker cannot be used: refused"],
        "notes": ["store: down"],
    }
    assert (await desk.client.get("/health/live")).status_code == 200
    desk.emit(Recovered(what="broker"), LifeChanged(stage=Stage.STOPPING))
    assert (await desk.client.get("/health/ready")).status_code == 503


async def test_status_is_what_the_facts_say(desk: Desk) -> None:
    desk.office.board.broker_version = "4.3.6"
    desk.emit(
        GateChanged(gate="x", origin="x", state=GateState.CLOSED, guard="breaker", why="all die"),
        GateChanged(gate="y", origin="y", state=GateState.CLOSED, guard="depth", why="full"),
        GateChanged(gate="y", origin="y", state=GateState.OPEN, guard="depth", why="room"),
        LeaseChanged(name="sweep:a.dlq", held=True),
        BudgetSeen(policy="", used=3, limit=60),
        PoliciesChanged(count=2, where="file", problems=("row 3",)),
        SweepEnded(dlq="a.dlq", seen=5, moved=4, left=0, failed=1, seconds=0.5, why="timer"),
        FindingNamed(rule="shared-dlx", subject="x", why="fanout"),
        GrowthFound(origin="x", letter_id="7", copies=9, why="fanout"),
        Trouble(what="store", why="postgresql://u:hunter2@db does not answer"),
        QueueGone(queue="deadletter.due"),
        QueueSeen(queue="deadletter.held.x", watched=False, depth=12, consumers=0),
        FindingNamed(rule="shared-dlx", subject="mended", why="fanout"),
        FindingGone(rule="shared-dlx", subject="mended"),
    )
    answer = await desk.client.get("/api/status")
    assert answer.json() == {
        "instance": "i1",
        "version": "0.1.0",
        "stage": "ready",
        "broker": "rabbit:5672",
        "broker_version": "4.3.6",
        "started_at": NOON,
        "uptime_s": 0.0,
        "watches": [
            {"dlq": "*.dlq", "vhost": "/", "mode": "sweep", "layout": "return", "queues": ["a.dlq"]},
            {
                "dlq": "jobs.dead",
                "vhost": "/",
                "mode": "consume",
                "layout": "return",
                "queues": ["jobs.dead"],
            },
        ],
        "queues": [
            {
                "queue": "a.dlq",
                "vhost": "",
                "mode": "sweep",
                "depth": 7,
                "consumers": 1,
                "growth_per_s": 0.5,
                "growing_since": None,
                "oldest_s": 3.0,
                "last_sweep_at": NOON,
                "last_sweep": "4 of 5 moved in 0.5 s (timer), 1 failed",
                "next_sweep_at": None,
                "held_by": "",
            },
            {
                "queue": "deadletter.held.x",
                "vhost": "",
                "mode": "",
                "depth": 12,
                "consumers": 0,
                "growth_per_s": 0.0,
                "growing_since": None,
                "oldest_s": None,
                "last_sweep_at": None,
                "last_sweep": "",
                "next_sweep_at": None,
                "held_by": "breaker: all die",
            },
            {
                "queue": "jobs.dead",
                "vhost": "",
                "mode": "consume",
                "depth": 0,
                "consumers": 1,
                "growth_per_s": 0.0,
                "growing_since": None,
                "oldest_s": None,
                "last_sweep_at": None,
                "last_sweep": "",
                "next_sweep_at": None,
                "held_by": "",
            },
        ],
        "gates": [
            {
                "gate": "x",
                "origin": "x",
                "guard": "breaker",
                "state": "closed",
                "why": "all die",
                "since": NOON,
                "held": 12,
                "held_in": "deadletter.held.x",
            }
        ],
        "leases": [{"lease": "sweep:a.dlq", "held": True}],
        "budgets": [{"policy": "", "used": 3, "limit": 60}],
        "policies": {"count": 2, "where": "file", "problems": ["row 3"]},
        "findings": [
            {"rule": "growth", "subject": "x", "why": "9 letters of one id (7): fanout"},
            {"rule": "shared-dlx", "subject": "x", "why": "fanout"},
        ],
        "troubles": [{"what": "store", "why": "postgresql://u:***@db does not answer", "since": NOON}],
    }


async def test_a_sweep_on_demand(desk: Desk) -> None:
    answer = await desk.client.post("/api/sweeps", json={"dlqs": ["a.dlq"]})
    assert answer.status_code == 200
    assert answer.json() == {
        "sweeps": [
            {
                "dlq": "a.dlq",
                "state": "swept",
                "seen": 3,
                "moved": 3,
                "left": 0,
                "failed": 0,
                "seconds": 0.25,
                "why": "",
            }
        ]
    }
    wish: object
    for wish in ({"dlqs": []}, {}):
        assert (await desk.client.post("/api/sweeps", json=wish)).status_code == 200
    assert (await desk.client.post("/api/sweeps")).status_code == 200, "curl -X POST is enough"
    assert desk.office.asked == [["a.dlq"], [], [], []]


async def test_a_sweep_that_cannot_be(desk: Desk) -> None:
    answer = await desk.client.post("/api/sweeps", json={"dlqs": ["unknown"]})
    assert (answer.status_code, problem_of(answer)) == (422, "expected a watched queue, got 'unknown'")
    desk.office.error = Unreachable(f"nobody answers at {parse_addresses('amqp://rabbit')[0]}")
    answer = await desk.client.post("/api/sweeps", json={})
    assert (answer.status_code, problem_of(answer)[:14]) == (503, "nobody answers")
    desk.office.error = None
    desk.office.answers = [SweepAnswer(dlq="a.dlq", state=SweepState.FAILED, why="it is locked")]
    answer = await desk.client.post("/api/sweeps", json={})
    assert answer.json()["sweeps"][0]["why"] == "it is locked"


async def test_a_mistake_of_ours_tells_nothing_of_our_insides(desk: Desk) -> None:
    desk.office.error = RuntimeError("amqp://u:hunter2@h")
    answer = await desk.client.post("/api/sweeps", json={})
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert problem_of(answer) == "the service made a mistake; its log says which"
    assert (await desk.client.get("/health/live")).status_code == 200


async def test_a_wish_that_is_none_is_told_what_was_expected(desk: Desk) -> None:
    wish: object
    for wish in ({"dlqs": "a"}, {"dlqs": [1]}, {"dlqs": [""]}, {"dlqs": ["x" * 256]}, {"queues": []}, [], 1):
        answer = await desk.client.post("/api/sweeps", json=wish)
        assert answer.status_code == 422, wish
        assert problem_of(answer).startswith('expected {"dlqs": ["name", …]}')
    answer = await desk.client.post("/api/sweeps", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert problem_of(answer)
    assert desk.office.asked == []


async def test_what_is_not_here_says_where_to_look(desk: Desk) -> None:
    answer = await desk.client.get("/nothing")
    assert (answer.status_code, problem_of(answer)) == (
        404,
        "nothing is at /nothing; what is here stands at /",
    )
    answer = await desk.client.get("/api/sweeps")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert problem_of(answer)


async def test_the_front_page_tells_what_is_here(desk: Desk) -> None:
    desk.emit(
        QueueSeen(queue="<script>.dlq", watched=True, depth=1, consumers=0),
        Trouble(what="store", why="<b>down</b>"),
    )
    page = await desk.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for told in ("ready", "i1", "rabbit:5672", "a.dlq", "&lt;script&gt;.dlq", "&lt;b&gt;down", "dlq sweep"):
        assert told in page.text
    assert page.text.count("<script") == 1, "ours"
    assert "http" not in page.text.replace("/health", ""), "no outside hosts"
    for link in ("/api/status", "/metrics", "/health/live", "/health/ready", "/openapi.json"):
        assert f'href="{link}"' in page.text
        assert (await desk.client.get(link)).status_code in (200, 503)


async def test_the_document_for_programs_is_whole(desk: Desk) -> None:
    document = (await desk.client.get("/openapi.json")).json()
    assert set(document["paths"]) == {
        "/metrics",
        "/health/live",
        "/health/ready",
        "/api/status",
        "/api/sweeps",
    }
    assert {"Status", "SweepAnswer", "Problem", "Condition"} <= document["components"]["schemas"].keys()
    for outside in ("/docs", "/redoc"):
        assert (await desk.client.get(outside)).status_code == 404


async def test_a_desk_that_has_seen_nothing_answers_all_the_same(opened: Opened) -> None:
    async with opened() as fresh:
        assert "No queue has been seen yet" in (await fresh.client.get("/")).text
        assert (await fresh.client.get("/api/status")).json()["stage"] == "starting"
        ready = await fresh.client.get("/health/ready")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["the watches have not started yet"])


def test_since_when_a_queue_grows() -> None:
    moment = datetime(2025, 6, 1, 12, tzinfo=UTC)
    now = [moment]
    board = Board(instance="a", broker="b", watches=(), now=lambda: now[0])

    def since(depth: int) -> datetime | None:
        now[0] += timedelta(minutes=1)
        board(QueueSeen(queue="a.dlq", watched=True, depth=depth, consumers=0))
        (queue,) = board.status().queues
        return queue.growing_since

    assert since(5) is None, "one look tells nothing"
    assert since(5) is None
    began = since(8)
    assert began == now[0]
    assert since(40) == began
    assert since(30) == began, "it falls a little"
    assert since(19) is None, "by more than half"
    again = since(20)
    assert again == now[0]
    assert since(19) is None, "back where it began"


def test_queues_of_one_name_in_two_vhosts_are_two() -> None:
    watches = [Watch(dlq="*.dlq", vhost=vhost, mode=mode) for vhost, mode in VHOSTS.items()]
    board = Board(instance="i1", broker="rabbit:5672", watches=watches, now=lambda: NOW)
    for vhost, depth in (("a", 1), ("b", 7), ("a", 3)):
        board(QueueSeen(queue="x.dlq", vhost=vhost, watched=True, depth=depth, consumers=0))
    told = {one.vhost: (one.depth, one.mode, one.growing_since) for one in board.status().queues}
    assert told == {"a": (3, "sweep", NOW), "b": (7, "consume", None)}
    assert [(one.vhost, one.queues) for one in board.status().watches] == [
        ("a", ("x.dlq",)),
        ("b", ("x.dlq",)),
    ]
    board(QueueGone(queue="x.dlq", vhost="a"))
    assert [(one.vhost, one.depth) for one in board.status().queues] == [("b", 7)]
    assert [one.queues for one in board.status().watches] == [(), ("x.dlq",)]
