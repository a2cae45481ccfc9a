"""Replays over HTTP: the same answers as from the store, for whoever may have them.

About `desk.api.replay_api`, `desk.api.edit_api`, `desk.api.deploy_api`, `desk.api.replay_wishes`,
`desk.door.guarded_app`, `desk.problems`, `operations.replays.replays`,
`operations.replays.replay_told`, `operations.replays.store_replays`, `operations.replays.service_replays`,
`operations.replays.at_hand`, `operations.replays.before_replay`, `operations.repairs.drafting`,
`operations.replays.deploy_offers`, `operations.records.service_wire`, `store.replays.deploy_table`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.postgres import PrivatePostgres, private_postgres
from tests.recorded import collection, parked
from tests.web.conftest import Desk, Opened
from tests.web.test_http_app import problem_of

from deadletter import config
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import names
from deadletter.core.replaying.preflight import QueueFacts, RemarkLevel, WayFacts
from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ReplayTarget, ToExchange, ToQueue
from deadletter.errors import EditRefused, NotStored, StoreError, UsageError
from deadletter.operations.records.at_hand import Whereabouts
from deadletter.operations.records.records import json_of
from deadletter.operations.records.service_wire import service_wire
from deadletter.operations.records.store_records import LateRecords, opened_records
from deadletter.operations.repairs.body_schemas import BodySchemas, read_schemas
from deadletter.operations.replays.at_hand import replays_at_hand
from deadletter.operations.replays.preflight import LetterKinds, Looked
from deadletter.operations.replays.replay_told import (
    DraftWish,
    EditWish,
    OutcomeState,
    ReplayWish,
    StepPlace,
)
from deadletter.operations.replays.service_replays import ServiceReplays, wish_json
from deadletter.operations.replays.store_replays import LateReplays, StoreReplays
from deadletter.store.finding.searching import Where
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.letters.letter_tables import audit
from deadletter.store.letters.letter_views import Facets
from deadletter.store.replays.recipe_table import Recipe
from deadletter.store.replays.replay_store import ReplayStore

ALL = ReplayWish(selection=LetterQuery())
ORDERS = ReplayWish(selection=LetterQuery(origin="orders"), pace=AllAtOnce())


@dataclass(frozen=True, slots=True)
class Both:
    """The same store, asked in both ways; `store` is what a service would work with."""

    direct: StoreReplays
    over_http: ServiceReplays
    desk: Desk
    store: LetterStore
    url: str

    @property
    def replays(self) -> ReplayStore:
        return ReplayStore(self.store)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    with private_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'letters.db'}"
    running: PrivatePostgres = request.getfixturevalue("postgres")
    return running.fresh_database()


async def broker(_vhost: str, _target: ReplayTarget, letters: LetterKinds) -> Looked:
    """One that has the queue orders, and no other."""
    return Looked(
        tuple(
            WayFacts(
                letters=number,
                place=f"queue {origin}",
                queues=(QueueFacts(name=origin, there=origin == "orders", consumers=2),),
            )
            for origin, number in letters.origins.items()
        ),
        "",
    )


@pytest.fixture
async def both(opened: Opened, url: str, tmp_path: Path) -> AsyncIterator[Both]:
    schema = tmp_path / "orders.json"
    schema.write_text(json.dumps({"properties": {"order": {"type": "integer"}}}))

    def schemas() -> BodySchemas:
        return read_schemas([("orders", schema)])

    async with open_letters(url) as store:
        await store.ingest(collection(int(time.time() * 1000)))
        late = LateRecords(url)
        try:
            async with (
                opened_records(url) as records,
                opened(records=late, replays=LateReplays(late, look_at=broker, schemas=schemas)) as desk,
                service_wire(desk.url, None) as wire,
            ):
                direct = StoreReplays(
                    records.opened, records.programs, look_at=broker, attended=True, schemas=schemas
                )
                yield Both(direct, ServiceReplays(wire), desk, store, url)
        finally:
            await late.close()


async def frozen(both: Both, replay: int) -> None:
    while await both.replays.freeze_some(replay):
        pass


def now_ms() -> int:
    return int(time.time() * 1000)


# -- replays ---------------------------------------------------------------------------------------------
async def test_a_replay_from_its_preflight_to_its_outcomes_is_told_alike(both: Both) -> None:
    before = await both.over_http.preflight(ORDERS)
    assert before == await both.direct.preflight(ORDERS)
    assert (before.letters, before.exact, before.origins) == (5, True, {"orders": 5})
    assert [row.id for row in before.sample] == [1, 2, 3, 4, 5], "in the order in which they would go"
    assert {one.about for one in before.remarks} >= {"target", "consumers", "release"}
    begun = await both.over_http.start(ORDERS, who="anna", why="the bank is back")
    assert (begun.state, begun.who, begun.why) == (ReplayState.FREEZING, "anna", "the bank is back")
    assert (begun.selection, begun.target, begun.pace) == (
        {"origin": "orders"},
        {"to": "origin"},
        {"pace": "all", "rate_per_s": None},
    )
    assert begun.waits_for == "", "a service that answers is about to take it up"
    number = begun.id
    await frozen(both, number)
    store = both.replays
    assert await store.leased("desk-1", now_ms=now_ms(), lease_ms=60_000)
    some = await store.next_portion(number, 4)
    await store.settled(number, [one.row for one in some[:3]], {some[3].row: "too large"}, at_ms=now_ms())
    # the first one comes back, with another error
    back = parked(
        b"{}", now_ms=now_ms(), number=1, error="OutOfMoney", stack="", headers={names.REPLAY: str(number)}
    )
    await both.store.ingest([back])
    assert await store.done_by_consumer([(some[1].letter_id, number, now_ms())]) == 1
    assert await store.quiet(number, now_ms=now_ms() + 3_600_000) == 1
    detail = await both.over_http.replay(number)
    assert detail == await both.direct.replay(number)
    assert json_of(detail) == json_of(await both.direct.replay(number))
    counts = detail.replay.counts
    assert (counts.waiting, counts.returned, counts.done, counts.quiet, counts.refused) == (1, 1, 1, 1, 1)
    assert (detail.origins, detail.steps, detail.newcomers) == (("orders",), (), 1)
    assert detail.replay.holder == "desk-1"
    assert (await both.over_http.replay(number, newcomers=False)).newcomers is None
    for state in (None, *OutcomeState):
        told = await both.over_http.outcomes(number, state)
        assert told == await both.direct.outcomes(number, state), state
    (returned,) = (await both.over_http.outcomes(number, OutcomeState.RETURNED)).outcomes
    assert (returned.letter, returned.letter_id, returned.same_group) == (1, f"{1:032x}", False)
    assert returned.error.startswith("OutOfMoney")
    assert returned.after_ms is not None
    assert returned.returned_letter == 10
    (refused,) = (await both.over_http.outcomes(number, OutcomeState.REFUSED)).outcomes
    assert (refused.why, refused.after_ms) == ("too large", None)


async def test_outcomes_and_replays_come_in_pages(both: Both) -> None:
    numbers: list[int] = []
    for number in (1, 2, 3):
        wish = replace(ALL, selection=LetterQuery(ids=(number,)))
        numbers.append((await both.over_http.start(wish, who="anna", why="")).id)
    first = await both.over_http.replays(limit=2)
    assert [one.id for one in first.replays] == [numbers[2], numbers[1]]
    assert first == await both.direct.replays(limit=2)
    rest = await both.over_http.replays(limit=2, after=first.more)
    assert ([one.id for one in rest.replays], rest.more) == ([numbers[0]], None)
    await both.over_http.cancel(numbers[0], who="anna")
    only = await both.over_http.replays((ReplayState.CANCELLED, ReplayState.DONE))
    assert [one.id for one in only.replays] == [numbers[0]]
    await frozen(both, numbers[1])
    await frozen(both, numbers[2])
    whole = (await both.over_http.start(ORDERS, who="anna", why="")).id
    await frozen(both, whole)
    seen: list[int] = []
    after: int | None = None
    while True:
        page = await both.over_http.outcomes(whole, OutcomeState.WAITING, after=after, limit=1)
        seen += [one.letter for one in page.outcomes]
        after = page.more
        if after is None:
            break
    assert seen == [1, 4, 5], "the others are in replays that run"
    assert (await both.over_http.outcomes(whole, doubtful=True)).outcomes == ()


async def test_a_start_with_the_same_run_is_one_replay(both: Both) -> None:
    wish = replace(ORDERS, edit=EditWish(recipe="round"))
    await both.direct.save_recipe(Recipe(name="round", program=".body.total |= floor"), who="anna")
    asked = [both.over_http.start(wish, who="anna", why="once", run="r-1") for _ in range(4)]
    asked += [both.direct.start(wish, who="anna", why="once", run="r-1") for _ in range(4)]
    begun = await asyncio.gather(*asked)
    assert len({one.id for one in begun}) == 1
    assert (begun[0].edit, begun[0].recipe) == (".body.total |= floor", "round")
    await frozen(both, begun[0].id)
    await both.direct.save_recipe(Recipe(name="round", program="."), who="anna", replace=True)
    await both.direct.set_pace(begun[0].id, Auto(), who="anna")
    again = await both.over_http.start(wish, who="anna", why="once", run="r-1")
    assert (again.id, again.letters) == (begun[0].id, 5), "also when its letters are claimed by it"
    assert len((await both.direct.replays()).replays) == 1
    for other in (
        replace(wish, selection=LetterQuery(origin="mail")),
        replace(wish, target=ToQueue(queue="elsewhere")),
        replace(wish, resolves=True),
        replace(wish, edit=EditWish(program=".")),
    ):
        with pytest.raises(UsageError, match="r-1"):
            await both.over_http.start(other, who="anna", why="once", run="r-1")
    two = [(await both.over_http.start(ORDERS, who="anna", why="")).id for _ in range(2)]
    assert len(set(two)) == 2, "without one, each is one of its own"


async def test_a_run_that_somebody_else_began_meanwhile_is_the_same(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looks for the letters when the first one has them already."""
    await both.store.ingest([parked(b"{}", now_ms=now_ms(), number=50)._replace(vhost="shop")])
    wish = replace(ALL, selection=LetterQuery(ids=(10,)))
    first: list[int] = []
    really = LetterStore.facets

    async def late(store: LetterStore, query: LetterQuery, *, where: Where | None = None) -> Facets:
        monkeypatch.undo()
        first.append((await both.over_http.start(wish, who="anna", why="", run="r-3")).id)
        await frozen(both, first[0])
        return await really(store, query, where=where)

    monkeypatch.setattr(LetterStore, "facets", late)
    begun = await both.direct.start(wish, who="anna", why="", run="r-3")
    assert [begun.id] == first
    assert (begun.vhost, begun.letters) == ("shop", 1)


async def test_what_people_do_is_written_down_with_who_did_it(both: Both) -> None:
    number = (await both.over_http.start(ORDERS, who="anna", why="first")).id
    assert (await both.over_http.pause(number, who="ben")).state is ReplayState.PAUSED
    assert (await both.over_http.resume(number, who="cleo")).state is ReplayState.FREEZING
    told = await both.over_http.set_pace(number, Canary(steps=(1, 5), wait_s=2.5), who="dora")
    assert told.pace == {"pace": "canary", "steps": [1, 5], "share": 0.05, "wait_s": 2.5, "room": 10_000}
    assert (await both.over_http.cancel(number, who="emil")).state is ReplayState.CANCELLED
    await both.over_http.save_recipe(Recipe(name="a", program="."), who="finn")
    await both.over_http.delete_recipe("a", who="gina")
    await both.over_http.save_draft("6", DraftWish(edit=EditWish(program='.body = "x"')), who="hugo")
    await both.over_http.drop_draft("6", who="ida")
    await both.over_http.deployed("shop", "2.0", who="jan")
    async with both.store.connections.reading() as connection:
        rows = await connection.execute(select(audit.c.who, audit.c.action).order_by(audit.c.id))
        said = [(who, action) for who, action in rows]
    assert said == [
        ("anna", "replay"),
        ("ben", "replay paused"),
        ("cleo", "replay freezing"),
        ("dora", "replay pace"),
        ("emil", "replay cancelled"),
        ("finn", "recipe saved"),
        ("gina", "recipe deleted"),
        ("hugo", "edited"),
        ("ida", "edit dropped"),
        ("jan", "deployed"),
    ]


async def test_a_replay_that_is_over_is_not_changed_any_more(both: Both) -> None:
    number = (await both.over_http.start(ORDERS, who="anna", why="")).id
    await both.over_http.cancel(number, who="anna")
    for way in (both.over_http, both.direct):
        with pytest.raises(UsageError, match="is cancelled"):
            await way.resume(number, who="anna")
        with pytest.raises(UsageError, match="is cancelled"):
            await way.set_pace(number, Canary(), who="anna")
        for asked in (way.replay(999), way.outcomes(999), way.pause(999, who="anna")):
            with pytest.raises(NotStored, match="replay 999"):
                await asked


async def test_a_canary_tells_its_steps(both: Both) -> None:
    number = (await both.over_http.start(replace(ORDERS, pace=Canary(steps=(1, 3))), who="a", why="")).id
    await frozen(both, number)
    steps = (await both.over_http.replay(number)).steps
    assert [(one.number, one.letters, one.place, one.sent) for one in steps] == [
        (1, 1, StepPlace.NOW, 0),
        (2, 3, StepPlace.AHEAD, None),
    ]


async def test_letters_of_several_vhosts_want_one_named(both: Both) -> None:
    one = parked(b"{}", now_ms=now_ms(), number=50)._replace(vhost="shop")
    other = parked(b"{}", now_ms=now_ms(), number=51)._replace(vhost="stock")
    await both.store.ingest([one, other])
    wish = replace(ALL, selection=LetterQuery(ids=(10, 11)))
    for asked in (both.over_http.preflight(wish), both.over_http.start(wish, who="anna", why="")):
        with pytest.raises(UsageError, match="'shop', 'stock'"):
            await asked
    assert (await both.over_http.preflight(replace(wish, vhost="shop"))).letters == 1
    begun = await both.over_http.start(replace(wish, vhost="stock"), who="anna", why="")
    await frozen(both, begun.id)
    assert (begun.vhost, (await both.direct.replay(begun.id)).replay.letters) == ("stock", 1)
    alone = await both.over_http.start(replace(ALL, selection=LetterQuery(ids=(10,))), who="a", why="")
    assert alone.vhost == "shop", "where all are of one, nobody has to say it"


async def test_before_a_replay_the_bad_news_come_first(both: Both) -> None:
    told = await both.over_http.preflight(ALL)
    assert (told.letters, told.remarks[0].level) == (9, RemarkLevel.WARNING)
    assert any("no such queue" in one.text for one in told.remarks)
    none = await both.over_http.preflight(replace(ALL, selection=LetterQuery(origin="nowhere")))
    assert (none.letters, none.sample, none.remarks[0].level) == (0, (), RemarkLevel.STOP)
    inside = replace(ALL, selection=LetterQuery(where=".body.total > 250"))
    found = await both.over_http.preflight(inside)
    assert (found.letters, found.unanswered) == (3, 0)
    await both.direct.save_draft("1", DraftWish(edit=EditWish(program=".body.total = 1")), who="anna")
    assert (await both.over_http.preflight(ORDERS)).drafts == 1


async def test_where_the_look_before_says_stop_nothing_begins_unless_somebody_insists(both: Both) -> None:
    plan = {"selection": {"origin": "mail"}, "run": "r-2"}
    answer = await both.desk.client.post("/api/v1/replays", json=plan)
    assert answer.status_code == 422
    assert "no such queue" in problem_of(answer)
    assert (await both.direct.replays()).replays == ()
    begun = (await both.desk.client.post("/api/v1/replays", json={**plan, "anyway": True})).json()
    await frozen(both, begun["id"])
    again = await both.desk.client.post("/api/v1/replays", json=plan)
    assert again.json()["id"] == begun["id"], "it has begun: there is nothing to look at any more"


async def test_a_store_without_a_service_says_that_nobody_sends(both: Both, tmp_path: Path) -> None:
    nowhere = {"broker.url": "amqp://127.0.0.1:1", "broker.api": "http://127.0.0.1:1"}
    settings = config.load(options={**nowhere, "store.url": both.url}, environment={}, directory=tmp_path)
    async with replays_at_hand(Whereabouts(settings=settings, store_said=True)) as desk:
        assert not desk.by_service
        told = await desk.replays.preflight(ORDERS)
        assert any(one.about == "service" for one in told.remarks)
        assert any("shape of the broker is not known" in one.text for one in told.remarks)
        begun = await desk.replays.start(ORDERS, who="anna", why="")
        assert "dlq serve" in begun.waits_for
        assert begun.holder == ""
    async with replays_at_hand(Whereabouts(settings=settings, at=both.desk.url)) as desk:
        assert desk.by_service
        assert (await desk.replays.replay(begun.id)).replay.id == begun.id
        assert (await desk.records.letters(LetterQuery(limit=1))).letters


# -- edits -----------------------------------------------------------------------------------------------
async def test_an_edit_is_tried_in_portions_that_sum_up(both: Both) -> None:
    program = 'if .body | type == "object" then .body.total |= (. * 2) else error("no order") end'
    edit = EditWish(program=program)
    seen: list[int] = []
    failed: dict[int, tuple[str, ...]] = {}
    changed = letters = 0
    after: int | None = None
    while True:
        part = await both.over_http.try_edit(LetterQuery(), edit, after=after, limit=2)
        assert part == await both.direct.try_edit(LetterQuery(), edit, after=after, limit=2)
        assert part.letters == part.changed + part.same + part.failed <= 2
        seen += [one.letter for one in part.sample]
        failed |= {one.letter: one.why for one in part.failures}
        changed, letters, after = changed + part.changed, letters + part.letters, part.more
        if after is None:
            break
    assert (letters, changed, seen) == (9, 5, [1, 2, 3, 4, 5])
    assert failed.keys() == {6, 7, 8, 9}
    assert "no order" in failed[6][0]
    (first, *_) = (await both.over_http.try_edit(LetterQuery(ids=(1,)), edit)).sample
    assert [(one.path, one.before, one.after) for one in first.differences] == [
        (".body.total", "100.50", "201")
    ]


async def test_an_edit_is_tried_on_what_would_be_sent(both: Both) -> None:
    await both.direct.save_draft("1", DraftWish(edit=EditWish(program=".body.total = 7")), who="anna")
    told = await both.over_http.try_edit(LetterQuery(ids=(1, 2)), EditWish(program=".body.total = 7"))
    assert (told.changed, told.same, told.sample[0].letter) == (1, 1, 2)


async def test_what_breaks_the_schema_of_its_queue_is_told_one_by_one(both: Both) -> None:
    edit = EditWish(program='.body.order = "x"')
    told = await both.over_http.try_edit(LetterQuery(origin="orders"), edit)
    assert (told.changed, told.failed) == (0, 5)
    assert ".body.order" in told.failures[0].why[0]
    for way in (both.over_http, both.direct):
        with pytest.raises(EditRefused, match=r"\.body\.order"):
            await way.save_draft("1", DraftWish(edit=edit), who="anna")
        assert not (await way.draft("1")).there


async def test_a_letter_edited_by_hand(both: Both) -> None:
    shown = await both.over_http.draft("1")
    assert shown == await both.direct.draft("1")
    assert (shown.letter, shown.there, shown.differences) == (1, False, ())
    text = shown.text.replace('"total": 100.50', '"total": 99.90')
    wish = DraftWish(text=text)
    tried = await both.over_http.save_draft("1", wish, who="anna", keep=False)
    assert (tried.changed, tried.saved) == (True, False)
    assert not (await both.over_http.draft("1")).there
    kept = await both.over_http.save_draft("1", wish, who="anna", note="typo")
    assert kept.saved
    assert kept.differences == tried.differences
    found = await both.over_http.draft("1")
    assert (found.there, found.who, found.note, found.differences) == (True, "anna", "typo", kept.differences)
    assert '"big": 12345678901234567890' in found.text, "no number is rounded on its way"
    proposed = await both.over_http.propose("1")
    assert proposed == await both.direct.propose("1")
    assert (proposed.letter, proposed.origin) == (1, "orders")
    assert "99.90" in proposed.proposals[0].program
    again = await both.over_http.save_draft("1", DraftWish(text=found.text), who="anna")
    assert (again.changed, again.saved) == (False, False)
    assert (await both.over_http.drop_draft("1", who="anna")).dropped
    assert not (await both.over_http.drop_draft("1", who="anna")).dropped
    with pytest.raises(UsageError, match="without a draft"):
        await both.over_http.propose("1")


async def test_what_cannot_be_edited_is_refused_and_stays(both: Both) -> None:
    refused = (
        DraftWish(edit=EditWish(program='.headers["deadletter-id"] = "other"')),
        DraftWish(edit=EditWish(program='error("no")')),
        DraftWish(text="{}"),
    )
    for way in (both.over_http, both.direct):
        for wish in refused:
            with pytest.raises(EditRefused):
                await way.save_draft("1", wish, who="anna")
        for wish in (
            DraftWish(),
            DraftWish(edit=EditWish(program=".["), text=None),
            DraftWish(edit=EditWish(program="."), text="x"),
            DraftWish(edit=EditWish(program=".", recipe="x")),
        ):
            with pytest.raises(UsageError):
                await way.save_draft("1", wish, who="anna")
        with pytest.raises(NotStored):
            await way.save_draft("1", DraftWish(edit=EditWish(recipe="none")), who="anna")
        with pytest.raises(NotStored):
            await way.draft("999")
    answer = await both.desk.client.put("/api/v1/letters/1/draft", json={"edit": 'error("no")'})
    assert answer.status_code == 409
    assert "no" in problem_of(answer)
    assert not (await both.direct.draft("1")).there


async def test_a_large_letter_is_edited_by_hand_too(both: Both) -> None:
    body = json.dumps({"order": 1, "words": "x" * 300_000}).encode()
    await both.store.ingest([parked(body, now_ms=now_ms(), number=60, content_type="application/json")])
    shown = await both.over_http.draft("10")
    wish = DraftWish(text=shown.text.replace('"order": 1', '"order": 2'))
    assert (await both.over_http.save_draft("10", wish, who="anna")).saved
    answer = await both.desk.client.post("/api/v1/replays", json={"why": "x" * 70_000})
    assert answer.status_code == 413, "all other wishes are as small as before"


async def test_recipes_by_their_names(both: Both) -> None:
    for name in ("round", "a/b c?#%", "ümlaut"):
        recipe = Recipe(name=name, program=".body.total |= floor", note="why", origin="orders")
        saved = await both.over_http.save_recipe(recipe, who="anna")
        assert (saved.name, saved.who, saved.note) == (name, "anna", "why")
        assert await both.over_http.recipe(name) == await both.direct.recipe(name) == saved
        with pytest.raises(UsageError, match="there is one of this name"):
            await both.over_http.save_recipe(recipe, who="ben")
    assert await both.over_http.recipes() == await both.direct.recipes()
    better = Recipe(name="round", program=".body.total |= round")
    assert (await both.over_http.save_recipe(better, who="ben", replace=True)).who == "ben"
    told = await both.over_http.try_edit(LetterQuery(ids=(1,)), EditWish(recipe="round"))
    assert (told.program, told.changed) == (".body.total |= round", 1)
    for name in ("round", "a/b c?#%", "ümlaut"):
        assert (await both.over_http.delete_recipe(name, who="anna")).name == name
        with pytest.raises(NotStored):
            await both.over_http.recipe(name)
    for way in (both.over_http, both.direct):
        with pytest.raises(UsageError, match="jq program"):
            await way.save_recipe(Recipe(name="x", program=".["), who="anna")
        with pytest.raises(NotStored):
            await way.start(replace(ORDERS, edit=EditWish(recipe="none")), who="anna", why="")
        with pytest.raises(UsageError, match="jq program"):
            await way.start(replace(ORDERS, edit=EditWish(program=".[")), who="anna", why="")
    assert (await both.direct.replays()).replays == ()


# -- deploys ---------------------------------------------------------------------------------------------
async def test_a_release_that_is_told_offers_the_groups_of_its_service(both: Both) -> None:
    some = [
        parked(b"{}", now_ms=now_ms(), number=70 + number, error=f"Error{number}", message="",
               stack="", release="1.9", headers={names.ERROR_SERVICE: service})
        for number, service in enumerate(("billing", "billing", "mail"))
    ]  # fmt: skip
    await both.store.ingest(some)
    told = await both.over_http.deployed("billing", "2.0", who="ci")
    assert (told.news, told.deploy.service, told.deploy.release, told.deploy.who) == (
        True, "billing", "2.0", "ci",
    )  # fmt: skip
    assert [(one.origin, one.open, one.release) for one in told.offered] == [("orders", 1, "1.9")] * 2
    again = await both.over_http.deployed("billing", "2.0", who="ci")
    assert (again.news, again.deploy, again.offered) == (False, told.deploy, told.offered)
    by_origin = await both.over_http.deployed("mail", "7", who="ci")
    assert sorted(one.open for one in by_origin.offered) == [1, 1], "one says so, one is of that queue"
    first = await both.over_http.deploys(limit=1)
    assert first == await both.direct.deploys(limit=1)
    assert [one.release for one in first.deploys] == ["7"]
    rest = await both.over_http.deploys(after=first.more)
    assert ([one.release for one in rest.deploys], rest.more) == (["2.0"], None)
    assert (await both.over_http.deploys("mail")).deploys == first.deploys
    for service, release in (("", "1"), ("x", ""), ("x\n", "1"), ("x" * 300, "1")):
        for way in (both.over_http, both.direct):
            with pytest.raises(UsageError):
                await way.deployed(service, release, who="ci")


# -- what is no wish, and who may ------------------------------------------------------------------------
PLAN: dict[str, Any] = {"selection": {"origin": "orders"}}


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {**PLAN, "unknown": 1},
        {"selection": {"state": "discarded"}},
        {"selection": {"ids": [-1]}},
        {"selection": {"ids": list(range(1_001))}},
        {"selection": {"headers": [["only-a-name"]]}},
        {"selection": {"where": ".["}},
        {**PLAN, "pace": {"pace": "canary", "steps": "abc"}},
        {**PLAN, "pace": {"pace": "canary", "steps": []}},
        {**PLAN, "pace": {"pace": "canary", "steps": [0]}},
        {**PLAN, "pace": {"pace": "canary", "rate_per_s": 3}},
        {**PLAN, "pace": {"pace": "all", "rate_per_s": 0}},
        {**PLAN, "pace": {"pace": "auto", "share": 2}},
        {**PLAN, "pace": {"pace": "fast"}},
        {**PLAN, "pace": "all"},
        {**PLAN, "target": {"to": "queue"}},
        {**PLAN, "target": {"to": "queue", "queue": ""}},
        {**PLAN, "target": {"to": "origin", "queue": "x"}},
        {**PLAN, "outcome_ms": 0},
        {**PLAN, "outcome_ms": 10**15},
        {**PLAN, "edit": ".", "recipe": "x"},
        {**PLAN, "vhost": "a", "selection": {"vhost": "b"}},
    ],
)
async def test_what_is_no_wish_is_refused_and_nothing_begins(
    opened: Opened, tmp_path: Path, wish: object
) -> None:
    late = LateRecords(f"sqlite:///{tmp_path / 'letters.db'}")
    try:
        async with opened(
            records=late, replays=LateReplays(late, look_at=broker, schemas=BodySchemas)
        ) as desk:
            for path in ("/api/v1/replays/preflight", "/api/v1/replays"):
                answer = await desk.client.post(path, json=wish)
                assert answer.status_code == 422, answer.text
                assert problem_of(answer)
            assert (await desk.client.get("/api/v1/replays")).json() == {"replays": [], "more": None}
    finally:
        await late.close()


async def test_a_canary_is_what_goes_where_no_pace_is_said(both: Both) -> None:
    answer = await both.desk.client.post("/api/v1/replays", json=PLAN)
    assert answer.status_code == 200
    assert answer.json()["pace"]["pace"] == "canary"
    assert answer.json()["who"] == "api"
    for wish in (
        ORDERS,
        ALL,
        ReplayWish(
            selection=LetterQuery(ids=(1, 2), headers=(("a", "b=*"),), where=".", text="x", group=1),
            vhost="/",
            target=ToExchange(exchange="", key="k"),
            edit=EditWish(program="."),
            pace=Auto(),
            outcome_ms=5_000,
            resolves=True,
            overrules_guards=True,
        ),
    ):
        told = await both.over_http.start(wish, who="anna", why="")
        sent = wish_json(wish)
        assert (told.target, told.pace, told.edit) == (sent["target"], sent["pace"], sent["edit"])
        assert (told.outcome_ms, told.resolves, told.overrules_guards) == (
            wish.outcome_ms, wish.resolves, wish.overrules_guards,
        )  # fmt: skip
        vhost = {"vhost": wish.vhost} if wish.vhost else {}
        assert told.selection == {**sent["selection"], **vhost}


ROUTES = [
    ("GET", "replays"),
    ("POST", "replays"),
    ("POST", "replays/preflight"),
    ("GET", "replays/1"),
    ("GET", "replays/1/outcomes"),
    ("POST", "replays/1/pause"),
    ("POST", "replays/1/resume"),
    ("POST", "replays/1/cancel"),
    ("POST", "replays/1/pace"),
    ("POST", "edits/preview"),
    ("GET", "recipes"),
    ("POST", "recipes"),
    ("GET", "recipes/x"),
    ("DELETE", "recipes/x"),
    ("GET", "letters/1/draft"),
    ("PUT", "letters/1/draft"),
    ("DELETE", "letters/1/draft"),
    ("GET", "letters/1/proposals"),
    ("GET", "deploys"),
    ("POST", "deploys"),
]


async def test_replays_are_for_whoever_has_the_token(opened: Opened, tmp_path: Path) -> None:
    late = LateRecords(f"sqlite:///{tmp_path / 'letters.db'}")
    replays = LateReplays(late, look_at=None, schemas=BodySchemas)
    try:
        async with opened(token="s3cret", records=late, replays=replays) as desk:
            for method, path in ROUTES:
                answer = await desk.client.request(method, f"/api/v1/{path}")
                assert answer.status_code == 401, path
                told = {"authorization": "Bearer s3cret"}
                answer = await desk.client.request(method, f"/api/v1/{path}", headers=told)
                assert answer.status_code in (200, 404, 422), path
            page = {"sec-fetch-site": "cross-site", "authorization": "Bearer s3cret"}
            for method, path in ROUTES:
                if method != "GET":
                    answer = await desk.client.request(method, f"/api/v1/{path}", headers=page)
                    assert answer.status_code == 403, path
        async with opened(listen="0.0.0.0:0", records=late, replays=replays) as desk:
            for method, path in ROUTES:
                assert (await desk.client.request(method, f"/api/v1/{path}")).status_code == 403, path
    finally:
        await late.close()


async def test_the_document_tells_every_route(both: Both) -> None:
    document = (await both.desk.client.get("/openapi.json")).json()
    told = {
        (method.upper(), path.removeprefix("/api/v1/").replace("{replay}", "1"))
        for path, methods in document["paths"].items()
        for method in methods
    }
    wanted = {
        (method, path.replace("letters/1", "letters/{name}").replace("recipes/x", "recipes/{name}"))
        for method, path in ROUTES
    }
    assert wanted <= told


async def test_a_store_that_is_away_is_a_503_and_comes_back(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    path.mkdir()
    late = LateRecords(f"sqlite:///{path}")
    replays = LateReplays(late, look_at=None, schemas=BodySchemas)
    try:
        async with opened(records=late, replays=replays) as desk, service_wire(desk.url, None) as wire:
            with pytest.raises(StoreError):
                await ServiceReplays(wire).replays()
            path.rmdir()
            assert (await ServiceReplays(wire).replays()).replays == ()
    finally:
        await late.close()
