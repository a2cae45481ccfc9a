"""What the API does beside stored letters: waiting, queues, findings, topology, policies, audit, samples,
events; and what all routes share: ETags, If-Match, Idempotency-Key.

About `desk.api.broker_api`, `desk.api.journal_api`, `desk.api.policy_api`, `desk.api.event_api`,
`desk.answers.desk_route`, `desk.answers.entity_tags`, `desk.answers.news`, `operations.journal.journal`,
`operations.journal.store_journal`, `operations.outlook.outlook`, `operations.rulebook.rulebook`,
`operations.rulebook.store_rulebook`, `store.groups.group_versions`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from tests.recorded import parked
from tests.web.conftest import Desk, Opened
from tests.web.test_http_app import problem_of
from tests.web.whole_desk import Everything, everything

from deadletter.core.grouping.group_states import GroupState
from deadletter.desk.answers import news
from deadletter.errors import ChangedMeanwhile
from deadletter.operations.records.records import GroupChange
from deadletter.operations.records.service_records import service_records
from deadletter.operations.waiting import WaitingChoice, Waits
from deadletter.service.telling.service_events import LettersStored, QueueSeen


@dataclass
class Whole:
    desk: Desk
    behind: Everything

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.desk.client.get(f"/api/v1/{path}", headers=headers)

    async def told(self, path: str) -> Any:
        return (await self.get(path)).raise_for_status().json()

    async def ask(self, method: str, path: str, wish: object, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.desk.client.request(method, f"/api/v1/{path}", json=wish, headers=named)


def refusal(answer: httpx.Response, status: int) -> str:
    detail = problem_of(answer)
    assert answer.status_code == status, detail
    return detail


@pytest.fixture
async def whole(opened: Opened, tmp_path: Path) -> AsyncIterator[Whole]:
    async with (
        everything(tmp_path / "letters.db") as behind,
        opened(records=behind.records, replays=behind.replays, more=behind.more) as desk,
    ):
        yield Whole(desk, behind)


# -- subjects --------------------------------------------------------------------------------------------
async def test_what_waits_is_told_let_out_and_parked(whole: Whole) -> None:
    told = await whole.told("waiting")
    assert (told["letters"], told["kinds"]) == (3, [])
    assert (await whole.told("waiting?most=10"))["kinds"][0]["origin"] == "orders"
    nothing = await whole.ask("POST", "waiting/release", {})
    assert "expected which letters" in refusal(nothing, 422)
    done = await whole.ask("POST", "waiting/release", {"origin": "orders", "who": "ann"})
    assert done.json()["released"] == 3
    done = await whole.ask("POST", "waiting/park", {"waits": "held", "why": "no bank", "who": "bob"})
    assert done.json()["parked"] == 3
    assert whole.behind.outlook.let == [
        (WaitingChoice(origin="orders"), None),
        (WaitingChoice(waits=Waits.HELD), "no bank"),
    ]
    entries = (await whole.told("audit?limit=2"))["entries"]
    assert [(one["who"], one["action"]) for one in entries] == [
        ("bob", "waiting parked"),
        ("ann", "waiting released"),
    ]


async def test_queues_findings_and_topology_are_told(whole: Whole) -> None:
    assert (await whole.told("vhosts")) == {"vhosts": ["/"]}
    assert (await whole.told("queues"))["queues"][0]["name"] == "orders.dlq"
    assert (await whole.told("findings"))["at_ms"] is None
    looked = await whole.ask("POST", "findings/look", {})
    assert looked.json()["findings"][0]["rule"] == "missing-dlx"
    assert (await whole.told("findings")) == looked.json()
    assert len((await whole.told("topology"))["nodes"]) == 4
    drawn = await whole.get("topology/drawn")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert drawn.text.startswith("<svg")
    assert (await whole.get("topology/drawn?form=mermaid")).text.startswith("flowchart")
    assert "vhost: expected" in refusal(await whole.get("queues?vhost=other"), 422)


async def test_policies_are_told_explained_set_and_removed(whole: Whole) -> None:
    told = await whole.told("policies")
    assert [(one["source"], one["match"]["routing_key"]) for one in told["policies"]] == [
        ("table", "order.placed"),
        ("file", None),
    ]
    assert told["policies"][0]["treatments"][0]["retries"] == 3
    assert told["rows"] == [{"routing_key": "order.placed", "max_retries": 3}]
    explained = await whole.told("letters/1/policy")
    assert explained["letter"] == 1
    assert explained["considered"][-1]["refusal"] is None
    assert explained["steps"]
    row = await whole.get("policies/rows/a.%23")
    assert "no row" in refusal(row, 404)
    done = await whole.ask("PUT", "policies/rows/a.%23", {"max_retries": 7, "who": "ann"})
    assert done.json() == {"routing_key": "a.#", "max_retries": 7}
    etag = (await whole.get("policies/rows/a.%23")).headers["etag"]
    await whole.ask("PUT", "policies/rows/a.%23", {"max_retries": 8, "who": "bob"}, if_match=etag)
    late = await whole.ask("PUT", "policies/rows/a.%23", {"max_retries": 9, "who": "ann"}, if_match=etag)
    assert "it has 8 retries now" in refusal(late, 412)
    gone = await whole.desk.client.delete("/api/v1/policies/rows/a.%23?who=ann")
    assert gone.json() == {"routing_key": "a.#", "removed": 1}
    assert "max_retries" in refusal(await whole.ask("PUT", "policies/rows/a", {"max_retries": -1}), 422)
    entries = (await whole.told("audit?action=policy%20set"))["entries"]
    assert [one["detail"]["max_retries"] for one in entries] == [8, 7, 3]


async def test_the_audit_has_pages_and_filters(whole: Whole) -> None:
    seen: list[int] = []
    after = ""
    while True:
        page = await whole.told(f"audit?limit=2{after}")
        seen += [one["id"] for one in page["entries"]]
        if page["more"] is None:
            break
        after = f"&after={page['more']}"
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len((await whole.told("audit"))["entries"]) >= 5
    assert [one["action"] for one in (await whole.told("audit?letter=1"))["entries"]] == ["edited"]
    assert [one["action"] for one in (await whole.told("audit?group=1"))["entries"]] == ["note"]
    assert [one["action"] for one in (await whole.told("audit?replay=1"))["entries"]][-1] == "replay"


async def test_samples_are_told_in_steps_for_charts(whole: Whole) -> None:
    told = await whole.told("samples")
    (queue,) = told["queues"]
    assert (queue["vhost"], queue["queue"]) == ("/", "orders.dlq")
    assert sum(1 for _ in queue["points"]) <= 120
    assert queue["points"][-1]["depth"] == 0
    assert (await whole.told("samples?queue=nothing"))["queues"] == []
    assert "from_ms" in refusal(await whole.get("samples?from_ms=5&until_ms=2"), 422)


# -- ETags -----------------------------------------------------------------------------------------------
READS = [
    "letters", "letters/1", "groups", "groups/1", "facets", "replays", "replays/1", "recipes", "deploys",
    "audit", "samples", "policies", "letters/1/draft", "store", "letters/1/policy",
]  # fmt: skip


@pytest.mark.parametrize("path", READS)
async def test_a_read_is_not_told_twice_until_something_changes(whole: Whole, path: str) -> None:
    first = await whole.get(path)
    assert first.status_code == 200
    etag = first.headers["etag"]
    again = await whole.get(path, **{"if-none-match": etag})
    if again.status_code != 304:  # a minute began between the two
        etag = again.headers["etag"]
        again = await whole.get(path, **{"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    await whole.ask("POST", "groups/1/notes", {"text": "news", "who": "bob"})
    assert (await whole.get(path, **{"if-none-match": etag})).status_code == 200


async def test_two_people_on_one_group(whole: Whole) -> None:
    ann = (await whole.get("groups/1")).headers["etag"]
    bob = await whole.ask("PATCH", "groups/1", {"state": "muted", "who": "bob"}, if_match=ann)
    assert bob.status_code == 200
    late = await whole.ask("PATCH", "groups/1", {"state": "resolved", "who": "ann"}, if_match=ann)
    said = refusal(late, 412)
    assert "it is muted" in said
    assert "last was bob: muted" in said
    assert (await whole.told("groups/1"))["group"]["state"] == "muted"
    again = await whole.ask(
        "PATCH", "groups/1", {"state": "resolved", "who": "ann"}, if_match=bob.headers["etag"]
    )
    assert again.status_code == 200
    async with service_records(whole.desk.url, None) as records:
        version = (await records.group("2")).group.version
        await records.change_group("2", GroupChange(state=GroupState.MUTED, version=version), who="ann")
        with pytest.raises(ChangedMeanwhile, match="is muted"):
            await records.change_group("2", GroupChange(state=GroupState.OPEN, version=version), who="bob")


async def test_a_note_is_about_what_was_seen(whole: Whole) -> None:
    etag = (await whole.get("groups/1")).headers["etag"]
    first = await whole.ask("POST", "groups/1/notes", {"text": "seen", "who": "bob"}, if_match=etag)
    assert first.status_code == 200, first.text
    await whole.ask("PATCH", "groups/1", {"state": "muted", "who": "bob"})
    late = await whole.ask("POST", "groups/1/notes", {"text": "still open", "who": "ann"}, if_match=etag)
    assert "last was bob: muted" in refusal(late, 412)
    async with service_records(whole.desk.url, None) as records:
        with pytest.raises(ChangedMeanwhile, match="is muted"):
            await records.note("1", "x", who="ann", version=first.headers["etag"].strip('"'))
    told = [one["text"] for one in (await whole.told("groups/1"))["notes"]]
    assert "seen" in told
    assert not {"still open", "x"} & set(told)


async def test_letters_that_come_do_not_make_a_group_another_one(whole: Whole) -> None:
    etag = (await whole.get("groups/1")).headers["etag"]
    store = (await whole.behind.records()).opened
    await store.ingest([parked(b"{}", now_ms=store.now_ms(), number=77)])
    assert (await whole.get("groups/1")).headers["etag"] != etag
    done = await whole.ask("PATCH", "groups/1", {"state": "muted"}, if_match=etag)
    assert done.status_code == 200


async def test_two_people_on_one_draft(whole: Whole) -> None:
    seen = (await whole.get("letters/1/draft")).headers["etag"]
    edit = {"edit": ".body.order = 5", "who": "bob"}
    assert (await whole.ask("PUT", "letters/1/draft", edit, if_match=seen)).status_code == 200
    late = await whole.ask("PUT", "letters/1/draft", {"edit": ".body.order = 6", "who": "ann"}, if_match=seen)
    assert "bob saved another draft" in refusal(late, 412)
    nonsense = await whole.ask("PUT", "letters/1/draft", edit, if_match="???")
    assert "If-Match: expected an ETag" in refusal(nonsense, 422)


# -- Idempotency-Key -------------------------------------------------------------------------------------
async def test_an_action_is_done_once_however_often_it_is_asked_for(whole: Whole) -> None:
    wish = {"text": "once", "who": "ann"}
    told = await asyncio.gather(
        *(whole.ask("POST", "groups/1/notes", wish, idempotency_key="k1") for _ in range(5))
    )
    assert {one.status_code for one in told} <= {200, 409}
    again = await whole.ask("POST", "groups/1/notes", wish, idempotency_key="k1")
    assert again.status_code == 200
    assert again.headers["idempotency-replayed"] == "true"
    notes = (await whole.told("groups/1"))["notes"]
    assert [one["text"] for one in notes].count("once") == 1
    other = await whole.ask("POST", "groups/1/notes", {"text": "two", "who": "ann"}, idempotency_key="k1")
    assert "a new key" in refusal(other, 422)
    assert "Idempotency-Key" in refusal(
        await whole.ask("POST", "groups/1/notes", wish, idempotency_key="has a space"), 422
    )


async def test_a_refused_action_leaves_its_key_free(whole: Whole) -> None:
    wish = {"state": "muted"}
    assert (await whole.ask("PATCH", "groups/99", wish, idempotency_key="k2")).status_code == 404
    assert (await whole.ask("PATCH", "groups/99", wish, idempotency_key="k2")).status_code == 404
    assert (await whole.ask("PATCH", "groups/1", {"x": 1}, idempotency_key="k3")).status_code == 422
    assert (await whole.ask("PATCH", "groups/1", wish, idempotency_key="k3")).status_code == 200


async def test_a_replay_whose_answer_was_never_kept_is_begun_once(whole: Whole) -> None:
    wish = {"selection": {"origin": "orders"}, "pace": {"pace": "all"}, "anyway": True, "who": "ann"}
    first = await whole.ask("POST", "replays", wish, idempotency_key="k4")
    store = (await whole.behind.records()).opened

    async with store.connections.writing() as connection:
        await connection.execute(text("UPDATE deadletter_answers SET status = NULL"))
    again = await whole.ask("POST", "replays", wish, idempotency_key="k4")
    assert again.json()["id"] == first.json()["id"]
    note = {"text": "x", "who": "ann"}
    await whole.ask("POST", "groups/1/notes", note, idempotency_key="k5")
    async with store.connections.writing() as connection:
        await connection.execute(text("UPDATE deadletter_answers SET status = NULL"))
    unknown = await whole.ask("POST", "groups/1/notes", note, idempotency_key="k5")
    assert "under way, or the service ended" in refusal(unknown, 409)


# -- events ----------------------------------------------------------------------------------------------
async def events_of(whole: Whole, since: str = "") -> AsyncGenerator[dict[str, Any], None]:
    headers = {"last-event-id": since} if since else {}
    async with whole.desk.client.stream("GET", "/api/v1/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        seen: dict[str, Any] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if line and name:
                seen[name] = value
            elif "data" in seen:
                yield {"id": seen["id"], **json.loads(seen["data"])}
                seen = {}


async def until(found: AsyncIterator[dict[str, Any]], about: str) -> dict[str, Any]:
    async with asyncio.timeout(120):
        async for one in found:
            if about in one["about"]:
                return one
    raise AssertionError("the stream ended")


async def test_what_the_service_and_others_do_is_heard(whole: Whole) -> None:
    listening = events_of(whole)
    heard = asyncio.create_task(until(listening, "groups"))
    async with asyncio.timeout(120):
        while not whole.behind.news.listeners:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.02)
    whole.behind.news(LettersStored(new=1, copies=0, again=0, new_groups=0, reopened=0, seconds=0.1))
    assert "letters" in (await heard)["about"]
    heard = asyncio.create_task(until(listening, "audit"))
    await asyncio.sleep(news.LOOK_S)  # the store was seen as it is
    async with service_records(whole.desk.url, None) as other:
        await other.note("1", "from elsewhere", who="bob")
    assert "groups" in (await heard)["about"]
    await listening.aclose()


async def test_who_comes_back_hears_what_was_missed_and_a_stranger_everything(whole: Whole) -> None:
    first = events_of(whole)
    heard = asyncio.create_task(until(first, "queues"))
    await asyncio.sleep(0.1)
    seen = QueueSeen(queue="a", watched=True, depth=1, consumers=0)
    whole.behind.news(seen)
    one = await heard
    await first.aclose()
    back = events_of(whole, one["id"])
    whole.behind.news(LettersStored(new=1, copies=0, again=0, new_groups=0, reopened=0, seconds=0.1))
    whole.behind.news(seen)  # as it was: no news
    two = await until(back, "letters")
    assert "queues" not in two["about"]
    await back.aclose()
    stranger = events_of(whole, "deadbeef-7")
    assert set((await until(stranger, "audit"))["about"]) == set(news.About)
    await stranger.aclose()


async def test_as_many_listen_as_may(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.desk.api.event_api.LISTENERS", 0)
    refused = await whole.get("events")
    assert "ask again in a while" in refusal(refused, 503)
    assert refused.headers["retry-after"] == "30"


async def test_streams_end_when_the_watcher_ends() -> None:
    """So a service that ends does not wait for whoever listens."""
    told = news.News()
    watching = asyncio.create_task(told.run())

    async def listening() -> list[news.Bulletin | None]:
        return [one async for one in told.listen()]

    streams = [asyncio.create_task(listening()) for _ in range(3)]
    async with asyncio.timeout(120):
        while told.listeners < 3:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.01)
        watching.cancel()
        assert await asyncio.gather(*streams) == [[], [], []]
    assert told.listeners == 0
