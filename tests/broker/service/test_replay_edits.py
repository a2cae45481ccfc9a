"""A replay edits letters on their way: those it can, and of the others it says why, one by one.

About `service.replaying.replay_edits`, `service.replaying.replay_consignment`,
`store.replays.claimed_letters`, `operations.repairs.editing`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.brokers import Vhost
from tests.commanding import command
from tests.letters import headers_of
from tests.replaying import begun, parked_letter, stock, until_replay
from tests.serving import Application, served
from tests.storekeeping import kept, settings

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.letter import names
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.letter_edit import editable, edited_by_hand
from deadletter.core.replaying.replay_pace import Canary
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.replays.draft_table import DraftStore
from deadletter.store.replays.recipe_table import Recipe, RecipeStore
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayedLetter

PROGRAM = """
if .body.do == "hang" then (def f: f; f)
elif .body.do == "fail" then error("no such order")
elif .body.do == "lock" then .headers["deadletter-id"] = "x"
elif .body.do == "violate" then .body.amount = "three"
elif .body.do == "none" then empty
elif .body.do == "stay" then .
else .body.amount = 3 end
"""
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}}


def body(do: str) -> bytes:
    return b'{"do": "%s",  "large": 9007199254740993, "amount": 1.0}' % do.encode()


def edited_body(do: str) -> bytes:
    """Nothing but the amount is otherwise."""
    return body(do).replace(b"1.0}", b"3}")


async def outcomes(url: str, replay: int) -> list[ReplayedLetter]:
    async with open_letters(url, prepare=False) as store:
        return await ReplayStore(store).outcomes(replay, limit=1_000)


async def save_draft(url: str, number: int, text: str) -> None:
    async with open_letters(url, prepare=False) as store:
        detail = await store.letter(str(number))
        shown = editable(detail.letter)
        rest = json.dumps({name: json.loads(shown.document.members[name].node.written)
                           for name in ("headers", "properties")})  # fmt: skip
        made = edited_by_hand(shown, rest, text, by="bea")
        await DraftStore(store).save(number, detail.letter.with_message(made.message), who="bea")


async def test_those_that_cannot_be_edited_stay_as_they_were_and_say_why(
    vhost: Vhost, tmp_path: Path, url: str
) -> None:
    kinds = ["go", "hang", "go", "fail", "lock", "violate", "none", "stay", "binary", "draft", "go"]
    made: list[Letter] = [
        parked_letter(number, body=b"\xff\x00" if do == "binary" else body(do))
        for number, do in enumerate(kinds)
    ]
    await stock(url, vhost.name, made)
    await save_draft(url, 10, body("draft").decode().replace("9007199254740993", "7"))
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA))
    desk = f'[[desk.schemas]]\nqueue = "orders"\nfile = "{tmp_path / "orders.json"}"\n'
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _delivery, _times: True, keep=True)
        replay = await begun(url, vhost.name, outcome_ms=1_000, edit=PROGRAM)
        with served(vhost, tmp_path, settings(url, desk)) as (one,):
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
            asked = f"/api/v1/replays/{replay}/outcomes?state=refused"
            rows = (await asyncio.to_thread(one.get, asked))["outcomes"]
            listed = {row["letter"]: row["why"] for row in rows}
            shown = {
                number: await asyncio.to_thread(one.get, f"/api/v1/letters/{number}")
                for number in range(1, len(kinds) + 1)
            }
            at = {"DLQ_CONFIG": str(one.config), "HOME": str(tmp_path)}
            typed = ("replays", str(replay), "--outcomes", "refused")
            said = await asyncio.to_thread(lambda: command(*typed, environment=at))
            of_one = await asyncio.to_thread(lambda: command("show", "4", environment=at))
        await app.until(lambda: len(app.deliveries) == 5, 120, "those that could be edited")
    assert (view.state, view.counts.quiet, view.counts.refused) == (ReplayState.DONE, 5, 6)
    told = {kinds[one.letter - 1]: one.why for one in await outcomes(url, replay) if one.why}
    assert told.keys() == {"hang", "fail", "lock", "violate", "none", "binary"}
    for do, why in (
        ("hang", "250 ms"),
        ("fail", "no such order"),
        ("lock", "deadletter-id cannot be changed"),
        ("violate", "integer"),
        ("none", "nothing"),
        ("binary", "binary"),
    ):
        assert why in told[do], told[do]
    assert listed == {kinds.index(do) + 1: why for do, why in told.items()}
    for number, letter in shown.items():
        history = [step["why"] for step in letter["timeline"] if step["what"] == "refused"]
        assert history == ([f"replay {replay}: {listed[number]}"] if number in listed else [])
    assert said.returncode == of_one.returncode == 0, (said.stderr, of_one.stderr)
    assert said.stdout.count("refused, in the store: ") == len(listed), said.stdout
    assert "no such order" in said.stdout
    assert "no such order" in of_one.stdout
    home = await kept(url)
    assert {number: letter.message for number, letter in home.items()} == {
        number + 1: made[number].message for number, do in enumerate(kinds) if do in told
    }
    came = {one.message.body: headers_of(one) for _, one, _ in app.deliveries}
    drafted = edited_body("draft").replace(b"9007199254740993", b"7")
    assert came.keys() == {edited_body("go"), body("stay"), drafted}
    assert came[edited_body("go")][names.EDITED] == came[drafted][names.EDITED] == "ann"
    assert names.EDITED not in came[body("stay")]


async def test_letters_that_an_edit_refuses_do_not_stop_a_canary(vhost: Vhost, tmp_path: Path) -> None:
    """They say nothing of the consumer: others take their place in the step, and no more of them."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    kinds = ["fail"] * 14 + ["go"] * 20
    await stock(url, vhost.name, [parked_letter(number, body=body(do)) for number, do in enumerate(kinds)])
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        replay = await begun(url, vhost.name, edit=PROGRAM, pace=Canary(steps=(1, 30), wait_s=0))
        with served(vhost, tmp_path, settings(url)):
            view = await until_replay(url, replay, lambda told: told.counts.sent > 0)
            assert (view.state, view.counts.sent, view.counts.refused) == (ReplayState.RUNNING, 1, 14)
            await app.consume("orders", lambda _delivery, _times: True, keep=True)
            await app.until(lambda: len(app.deliveries) == 20, 120, "those that could be edited")
            view = await until_replay(url, replay, lambda told: told.counts.sent == 20)
    assert (view.state, view.counts.refused) == (ReplayState.RUNNING, 14)


async def test_a_recipe_is_named_and_a_draft_alone_is_sent(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(number, body=body("go")) for number in range(2)])
    await save_draft(url, 2, '{"by": "hand"}')
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _delivery, _times: True, keep=True)
        one = LetterQuery(ids=(1,), order=LetterOrder.OLDEST)
        other = LetterQuery(ids=(2,), order=LetterOrder.OLDEST)
        await begun(url, vhost.name, selection=one, edit=".body.amount = 3", recipe="three")
        await begun(url, vhost.name, selection=other)
        with served(vhost, tmp_path, settings(url)):
            await app.until(lambda: len(app.deliveries) == 2, 120, "both")
    came = {one.message.body: headers_of(one)[names.EDITED] for _, one, _ in app.deliveries}
    assert came == {edited_body("go"): "three", b'{"by": "hand"}': "bea"}


async def test_a_rule_sends_letters_by_its_recipe(vhost: Vhost, tmp_path: Path) -> None:
    """Two instances, and one canary of one letter: it goes once."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(1, body=body("go"))])
    async with open_letters(url, prepare=False) as store:
        await RecipeStore(store).save(Recipe(name="three", program=".body.amount = 3"), who="ann")
    rule = (
        '[[desk.replay_rules]]\nname = "mend"\nenabled = true\nwhen = "every"\norigin = "orders"\n'
        'recipe = "three"\n'
    )
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _delivery, _times: True, keep=True)
        with served(vhost, tmp_path, settings(url, rule), instances=2):
            await app.until(lambda: bool(app.deliveries), 120, "the canary")
    ((_, came, _),) = app.deliveries
    assert (came.message.body, headers_of(came)[names.EDITED]) == (edited_body("go"), "three")
    async with open_letters(url, prepare=False) as store:
        (replay,) = await ReplayStore(store).views()
    assert (replay.who, replay.recipe) == ("rule mend", "three")


async def test_what_is_no_program_sends_nothing(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(number) for number in range(3)])
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        replay = await begun(url, vhost.name, edit=".body.[")
        with served(vhost, tmp_path, settings(url)):
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
        assert await app.depth("orders") == 0
    assert (view.state, view.counts.let_go) == (ReplayState.STOPPED, 3)
    assert "syntax error" in view.told
    assert {one.state for one in await outcomes(url, replay)} == {SentState.LET_GO}
