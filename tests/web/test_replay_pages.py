"""Pages of replays: what would be sent is said first, begun once, watched, turned; recipes and deploys.

About `desk.page.replaying.start_pages`, `desk.page.replaying.replay_pages`,
`desk.page.replaying.replay_address`, `desk.page.replaying.drawings`, `desk.page.replaying.recipe_pages`,
`desk.page.replaying.deploy_pages`, `operations.wording.replay_line`, `operations.wording.replay_words`,
`operations.wording.turning`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.recorded import HOSTILE, parked
from tests.web.conftest import Opened
from tests.web.page_reading import Whole, field
from tests.web.whole_desk import everything

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import names
from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayPace
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToExchange, ToQueue
from deadletter.desk.page.replaying import start_pages
from deadletter.desk.page.replaying.drawings import WIDTH, replay_bar
from deadletter.desk.page.replaying.replay_address import ReplayAsked, asked_in, search_of, which_words
from deadletter.errors import UsageError
from deadletter.operations.replays.replay_told import EditWish, ReplayTold, ReplayWish
from deadletter.operations.wording.replay_line import replay_line
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayCounts

NOW_MS = 1_790_812_800_000


@pytest.fixture
async def whole(opened: Opened, tmp_path: Path) -> AsyncIterator[Whole]:
    async with (
        everything(tmp_path / "letters.db") as behind,
        opened(records=behind.records, replays=behind.replays, more=behind.more) as desk,
    ):
        yield Whole(desk, behind)


async def begun(whole: Whole, path: str, **fields: str) -> str:
    """From the page of a replay that is thought of to the one of the replay that goes."""
    page = await whole.page(path)
    said = {name: field(page, name) for name in ("wish", "run", "tried")}
    return await whole.post("/replays", **{**said, **fields})


async def store_of(whole: Whole) -> ReplayStore:
    return ReplayStore((await whole.behind.records()).opened)


async def replays_of(whole: Whole) -> list[ReplayTold]:
    return list((await (await whole.behind.replays()).replays()).replays)


async def replays_begun(whole: Whole) -> list[ReplayTold]:
    """Without what they wait for: after some seconds that nobody works on them is told as well."""
    return [replace(one, waits_for="") for one in await replays_of(whole)]


# -- before it begins ------------------------------------------------------------------------------------
async def test_what_would_be_sent_is_said_and_nothing_is(whole: Whole) -> None:
    before = await replays_begun(whole)
    page = await whole.page("/replays/new?q=origin:orders")
    assert "Replay 5 letters" in page
    assert "Before it goes" in page
    assert "dlq replay --origin orders --yes" in page
    assert "canary: 1, 10, 100" in page
    assert await replays_begun(whole) == before


async def test_the_plan_is_the_address(whole: Whole) -> None:
    said = "to=queue&to_queue=orders.again&pace=auto&rate=50%2Fs&room=200&outcome=5min&resolve=1&overrule=on"
    page = await whole.page(f"/replays/new?q=origin:orders&{said}")
    assert "To queue orders.again" in page
    assert "50/s at most; room for 200" in page
    assert (
        "dlq replay --origin orders --to-queue orders.again --pace auto --rate 50/s --room 200 "
        "--outcome 5min --resolve --overrule-guards --yes" in page
    )


async def test_an_address_that_cannot_be_is_told_on_the_page(whole: Whole) -> None:
    for said, why in (
        ("q=colour:red", "is nothing to look for"),
        ("q=x&pace=canary&steps=1,,2", "expected numbers of letters"),
        ("q=x&pace=all&rate=fast", "a rate above zero"),
        ("q=x&room=many", "room: expected a number"),
        ("q=x&to=queue", "expected the name of the queue"),
        ("q=x&edit=.a&recipe=b", "a program or a recipe"),
        ("q=origin:orders&edit=.body[", "jq"),
        ("q=origin:orders&recipe=none", "no recipe is called so"),
        ("q=state:discarded", "only open letters are replayed"),
    ):
        page = await whole.page(f"/replays/new?{said}")
        assert "Such a replay cannot begin" in page, said
        assert why in page, said
    assert "Which letters?" in await whole.page("/replays/new")


async def test_a_replay_begins_once(whole: Whole) -> None:
    page = await whole.page("/replays/new?group=1")
    said = {name: field(page, name) for name in ("wish", "run", "tried")}
    told = await whole.post("/replays", **said, why="release 1.4.3")
    assert "begins with" in told
    await whole.post("/replays", **said, why="release 1.4.3")
    mine = [one for one in await replays_of(whole) if one.selection.get("group") == 1]
    assert len(mine) == 1
    assert (mine[0].why, mine[0].pace["pace"]) == ("release 1.4.3", "canary")


async def test_letters_that_were_selected_are_those_that_go(whole: Whole) -> None:
    await begun(whole, "/replays/new?id=1&id=3")
    assert (await replays_of(whole))[0].selection == {"ids": [1, 3]}


async def test_an_edit_is_tried_before_it_begins(whole: Whole) -> None:
    path = f"/replays/new?q=origin:orders&edit={quote('.body.order += 1000')}"
    page = await whole.page(path)
    assert "5 would change" in page.replace("</strong><span>", " ")
    assert "+ .body.order: 1002" in page
    assert "dlq replay --origin orders --edit '.body.order += 1000'" in page
    wish, run = field(page, "wish"), field(page, "run")
    why = await whole.refused("/replays", 422, wish=wish, run=run, tried="")
    assert "was not tried" in why
    other = field(await whole.page("/replays/new?q=origin:orders&edit=.body.order+%3D+7"), "tried")
    await whole.refused("/replays", 422, wish=wish, run=run, tried=other)
    await begun(whole, path)
    assert (await replays_of(whole))[0].edit == ".body.order += 1000"


async def test_letters_that_an_edit_cannot_change_are_named(whole: Whole) -> None:
    page = await whole.page(f"/replays/new?q=origin:stock&edit={quote('.body.order += 1')}")
    assert "Cannot be changed" in page or "No open letter is like that" in page
    page = await whole.page(f"/replays/new?q=origin:mail&edit={quote('.body.order += 1')}")
    assert "Cannot be changed" in page


async def test_a_stop_has_to_be_overruled_knowingly(whole: Whole) -> None:
    page = await whole.page("/replays/new?q=origin:nowhere")
    assert "There is nothing to send" in page
    assert "stop" in page
    why = await whole.refused("/replays", 422, wish=field(page, "wish"), run="r1", tried="")
    assert "no letter is selected" in why


async def test_many_at_once_are_begun_by_typing_their_number(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_pages, "TYPED_FROM", 5)
    path = "/replays/new?q=origin:orders&pace=all"
    page = await whole.page(path)
    assert "Type 5 to begin" in page
    assert "Type 5 to begin" not in await whole.page("/replays/new?q=origin:orders")
    said = {name: field(page, name) for name in ("wish", "run", "tried")}
    for wrong in ("", "4", "x"):
        assert "count: expected 5" in await whole.refused("/replays", 422, **said, count=wrong)
    await whole.post("/replays", **said, count="5")


@pytest.mark.parametrize(
    "wish", ["", "/replays/new", "/replays/new?id=x", "/replays/new?pace=no&q=x", "a" * 50_000]
)
async def test_what_is_no_plan_begins_nothing(whole: Whole, wish: str) -> None:
    before = await replays_begun(whole)
    await whole.refused("/replays", 422, wish=wish)
    assert await replays_begun(whole) == before


async def test_nothing_acts_in_a_plan(whole: Whole) -> None:
    evil = quote(f'"><script>x</script>{HOSTILE}')
    for name in ("q", "where", "to_queue", "key", "edit", "recipe", "steps", "rate", "vhost"):
        await whole.page(f"/replays/new?group=1&to=exchange&to_exchange=a&{name}={evil[:60]}")
    await whole.page(f"/replays/new?q={quote('error:Err')}")


# -- one that goes ---------------------------------------------------------------------------------------
async def test_a_replay_is_watched(whole: Whole) -> None:
    await begun(whole, "/replays/new?q=origin:orders&resolve=1")
    told, store = (await replays_of(whole))[0], await store_of(whole)
    assert "being collected" in await whole.page(f"/replays/{told.id}")
    while await store.freeze_some(told.id):
        pass
    now = int(time.time() * 1000)
    await store.leased("i1", now_ms=now, lease_ms=60_000)
    some = await store.next_portion(told.id, 4)
    rows = [one.row for one in some]
    await store.settled(told.id, rows[:3], {rows[3]: f"no queue <b>{HOSTILE}"}, at_ms=now, doubtful=rows[:1])
    await store.done_by_consumer([(some[1].letter_id, told.id, now)])
    await store.tell(told.id, "step 1: the outcome of 2 is not known yet")
    page = await whole.page(f"/replays/{told.id}")
    assert "3 of 5 letters sent" in page
    assert "It waits" in page
    assert "the outcome of 2 is not known yet" in page
    assert "nobody can say: a canary waits for outcomes" in page
    assert "no queue <b>" in page  # refused ones need a person: they stand first
    for word, wanted in (
        ("done", "its consumer said so"),
        ("doubtful", "may have gone twice"),
        ("waiting", "not sent yet"),
        ("back", "No letters of it"),
        ("all", "refused, in the store"),
    ):
        assert wanted in await whole.page(f"/replays/{told.id}?outcomes={word}"), word
    assert "0 came since and are left out" in await whole.page(f"/replays/{told.id}?newcomers=1")


async def test_a_replay_is_turned(whole: Whole) -> None:
    await begun(whole, "/replays/new?q=origin:orders")
    number = (await replays_of(whole))[0].id
    told, store = f"/replays/{number}", await store_of(whole)
    while await store.freeze_some(number):
        pass
    assert "nothing more is sent" in await whole.post(f"{told}/turn", to="pause", back=told)
    assert "Go on" in await whole.page(told)
    assert "goes on" in await whole.post(f"{told}/turn", to="resume", back=told)
    page = await whole.post(f"{told}/pace", pace="all", rate="30/min", steps="", share="", back=told)
    assert "from now on all, 30/min" in page
    assert (await replays_of(whole))[0].pace == {"pace": "all", "rate_per_s": 0.5}
    assert "is in the store, open" in await whole.post(f"{told}/turn", to="cancel", back=told)
    await whole.refused(f"{told}/turn", 422, to="explode")
    await whole.refused(f"{told}/pace", 422, pace="canary", steps="none")
    await whole.refused(f"{told}/pace", 422, pace="slowly")
    await whole.page("/replays/999999", 404)
    assert "Pause" not in await whole.page(told)


async def test_replays_are_listed(whole: Whole) -> None:
    await begun(whole, "/replays/new?q=origin:orders", why=f"<b>{HOSTILE}")
    page = await whole.page("/replays")
    assert "origin:orders" in page
    assert "freezing" in page
    assert "No replays like that" in await whole.page("/replays?state=done")
    assert "origin:orders" in await whole.page("/replays?state=going")
    await whole.page("/replays?state=nonsense", 422)


# -- recipes and deploys ---------------------------------------------------------------------------------
async def test_a_repaired_letter_becomes_a_recipe(whole: Whole) -> None:
    page = await whole.page("/replays/recipes?letter=1")
    assert "becomes 99" in page
    page = await whole.post(
        "/replays/recipes", name="ninety/nine", program=".body.order = 99", note="why <b>"
    )
    assert "recipe ninety/nine is saved" in page
    assert "why <b>" in page
    again = await whole.refused("/replays/recipes", 422, name="ninety/nine", program=".body.order = 98")
    assert "there is one of this name already" in again
    await whole.post("/replays/recipes", name="ninety/nine", program=".body.order = 98", replace="1")
    assert "98" in await whole.page("/replays/recipes/ninety%2Fnine")
    gone = await whole.post("/replays/recipes/delete", name="ninety/nine")
    assert "the audit has its program" in gone
    assert 'action="/replays/recipes/undo"' in gone
    await whole.page("/replays/recipes/ninety%2Fnine", 404)
    back = await whole.post("/replays/recipes/undo", name="ninety/nine")
    assert "recipe ninety/nine is back" in back
    assert "98" in back
    await whole.refused("/replays/recipes/undo", 422, name="ninety/nine")
    await whole.refused("/replays/recipes/undo", 404, name="never")
    await whole.post("/replays/recipes/delete", name="ninety/nine")
    await whole.refused("/replays/recipes", 422, name="", program=".")
    await whole.refused("/replays/recipes", 422, name="broken", program=".[")


async def test_a_letter_that_nobody_repaired_proposes_nothing(whole: Whole) -> None:
    for letter in ("2", "nothing", "9" * 63):
        assert "That does not work" in await whole.page(f"/replays/recipes?letter={letter}")


async def test_a_release_is_told_and_says_what_to_try(whole: Whole) -> None:
    store = (await whole.behind.records()).opened
    failed = parked(
        b"x", now_ms=store.now_ms(), number=77, origin="till", headers={names.ERROR_SERVICE: "shop"}
    )
    await store.ingest([failed])
    answer = await whole.sent("/replays/deploys", service="shop", release="1.4.4")
    assert answer.status_code == 200
    assert "/replays/new?group=" in answer.text
    again = await whole.sent("/replays/deploys", service="shop", release="1.4.4")
    assert "was told before" in again.text
    assert "1.4.4" in await whole.page("/replays/deploys?service=shop")
    assert "No release was told" in await whole.page("/replays/deploys?service=other")
    await whole.refused("/replays/deploys", 422, service="", release="x")


# -- pure ------------------------------------------------------------------------------------------------
def test_an_address_comes_back_as_it_was() -> None:
    asked = ReplayAsked(
        q='origin:"a b"', where=".x > 1", id=[1, 2], to="exchange", to_exchange="e", resolve=True
    )
    assert asked_in(asked.address()) == asked
    wish = asked.wish(NOW_MS)
    assert (wish.selection.origin, wish.selection.ids, wish.selection.where) == ("a b", (1, 2), ".x > 1")
    assert wish.target == ToExchange(exchange="e", key=None)
    assert ReplayAsked(group=7, q="since:2h").search().startswith("/letters?q=since%3A2h+group%3A7")


def test_what_is_of_another_pace_does_not_count() -> None:
    def chosen(pace: str) -> ReplayPace:
        said = {"steps": "1,5", "share": "2%", "wait": "30s", "room": "1,000", "rate": "20/s"}
        return ReplayAsked.model_validate({"pace": pace, **said}).typed().chosen()

    assert chosen("canary") == Canary(steps=(1, 5), share=0.02, wait_s=30.0, room=1_000)
    assert chosen("auto") == Auto(room=1_000, share=0.02, ceiling=20)
    assert chosen("all") == AllAtOnce(rate_per_s=20.0)


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({}, "all that were open"),
        ({"group": 12, "origin": "a b"}, 'origin:"a b" group:12'),
        ({"ids": [7]}, "id:7"),
        ({"ids": [7, 8]}, "2 letters by number"),
        ({"where": ".a"}, "where .a"),
        ({"headers": [["tenant", "acme"]], "text": "card"}, "header.tenant:acme card"),
        ({"colour": "red"}, "all that were open"),
    ],
)
def test_which_letters_in_words(selection: dict[str, object], said: str) -> None:
    assert which_words(selection) == said
    if "ids" not in selection and "where" not in selection and "colour" not in selection:
        assert search_of(selection) == ("" if said == "all that were open" else said)


def test_the_line_of_a_replay_says_all_of_it() -> None:
    plain = ReplayWish(selection=LetterQuery(group=12))
    assert replay_line(plain) == "dlq replay --group 12 --yes"
    more = replace(plain, edit=EditWish(recipe="cents"), target=ToQueue(queue="orders 2"), vhost="shop")
    assert replay_line(more, why="x") == (
        "dlq replay --group 12 --to-queue 'orders 2' --recipe cents --vhost shop --why x"
    )
    assert replay_line(replace(plain, selection=LetterQuery())) is None
    assert replay_line(replace(plain, vhost="\u202e")) is None


def test_a_bar_is_whole_and_nothing_in_it_vanishes() -> None:
    told = ReplayTold(
        id=1,
        vhost="/",
        made_ms=0,
        who="",
        why="",
        state=ReplayState.RUNNING,
        selection={},
        target={},
        pace={},
        edit="",
        recipe="",
        letters=1_000_001,
        counts=ReplayCounts(done=1_000_000, returned=1),
        outcome_ms=1,
        resolves=False,
        overrules_guards=False,
        began_ms=None,
        last_sent_ms=None,
        ended_ms=None,
        left_ms=None,
        holder="",
        waits_for="",
    )
    done, back = replay_bar(told)
    assert (done.kind, back.kind) == ("done", "back")
    assert back.width > 5
    assert back.x + back.width == pytest.approx(WIDTH, abs=0.2)
    assert replay_bar(replace(told, counts=ReplayCounts())) == ()
    with pytest.raises(UsageError):
        asked_in("/replays/new?" + "id=1&" * 3_000)
