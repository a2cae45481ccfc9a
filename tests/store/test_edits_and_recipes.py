"""Edits tried out on stored letters, drafts that a replay sends, recipes by name; on both databases.

About `operations.repairs.editing`, `operations.repairs.recipes`, `operations.repairs.body_schemas`,
`core.replaying.recipe_proposal`, `store.replays.recipe_table`, `store.replays.draft_table`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.store.grounds import Ground
from tests.store.parked import NOON_MS, letters_at, parked, stored
from tests.store.replayed import frozen

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.grouping.retention import Retention
from deadletter.core.letter import names
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.letter_diff import difference_lines
from deadletter.core.replaying.letter_edit import Edited
from deadletter.core.replaying.replay_states import SentState
from deadletter.errors import NotStored, UsageError
from deadletter.operations.repairs.body_schemas import BodySchemas, read_schemas
from deadletter.operations.repairs.editing import Editor, FailedEdit, preview
from deadletter.operations.repairs.recipes import proposals
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.draft_table import DraftStore
from deadletter.store.replays.recipe_table import Recipe, RecipeStore
from deadletter.store.replays.replay_store import ReplayStore

OLDEST = LetterQuery(order=LetterOrder.OLDEST)


@asynccontextmanager
async def with_bodies(ground: Ground, *bodies: bytes) -> AsyncIterator[LetterStore]:
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n, body=body) for n, body in enumerate(bodies, 1))))
        yield store


@asynccontextmanager
async def editor(program: str, schemas: BodySchemas | None = None) -> AsyncIterator[Editor]:
    one = Editor(program, by="anna", schemas=schemas)
    try:
        yield one
    finally:
        await one.close()


async def test_a_preview_counts_what_changes_what_stays_and_what_fails_each_by_its_number(
    ground: Ground,
) -> None:
    bodies = [b'{"n": "1"}', b'{"n": 2}', b'{"n": "x"}', b"\xff", b'{"n": "hang"}'] * 50
    program = '.body.n |= if . == "hang" then (def f: f; f) elif type == "string" then tonumber else . end'
    # few that hang: each takes its quarter of a second
    bodies = [body for n, body in enumerate(bodies) if b"hang" not in body or n < 10]
    told: list[FailedEdit] = []
    async with with_bodies(ground, *bodies) as store, editor(program) as one:
        found = await preview(store, OLDEST, one, on_failure=told.append, sample=2)
    assert (found.letters, found.whole) == (len(bodies), True)
    assert found.changed == bodies.count(b'{"n": "1"}')
    assert found.same == bodies.count(b'{"n": 2}')
    assert found.failed == len(told) == len(bodies) - found.changed - found.same
    assert [one.letter for one in told[:3]] == [3, 4, 5]
    assert "cannot be parsed as a number" in told[0].why[0]
    assert "250 ms" in told[2].why[0]
    assert difference_lines(found.sample[0].differences) == ['- .body.n: "1"', "+ .body.n: 1"]
    assert sum(found.reasons.values()) == found.failed


async def test_a_program_that_does_not_compile_is_refused_in_its_words(ground: Ground) -> None:
    async with with_bodies(ground, b"1") as store, editor(".body.[") as one:
        with pytest.raises(UsageError, match="syntax error"):
            await preview(store, OLDEST, one)


async def test_a_schema_is_held_and_each_violation_is_told(ground: Ground, tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text(
        json.dumps(
            {
                "type": "object",
                "required": ["id"],
                "properties": {"n": {"type": "integer", "maximum": 9007199254740992}},
            }
        )
    )
    schemas = read_schemas([("ord*", file)])
    bodies = (b'{"id":1,"n":"9007199254740992"}', b'{"n":"9007199254740993"}', b'{"id":1}')
    program = '(.body.n? | select(type == "string")) |= tonumber'
    async with with_bodies(ground, *bodies) as store, editor(program, schemas) as one:
        found = await preview(store, OLDEST, one)
    assert (found.changed, found.same, found.failed) == (1, 1, 1)
    assert found.failures == [
        FailedEdit(
            letter=2,
            why=(
                '.body: "id" is a required property',
                ".body.n: 9007199254740993 is greater than the maximum of 9007199254740992",
            ),
        )
    ]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"$ref": "http://127.0.0.1:9/x.json"}', "nothing is fetched"),
        ('{"$ref": "file:///etc/hostname"}', "nothing is fetched"),
        ('{"type": "objct"}', "objct"),
        ("{", "expected a JSON schema"),
    ],
)
def test_what_is_no_schema_or_is_elsewhere_is_refused(tmp_path: Path, schema: str, problem: str) -> None:
    (tmp_path / "s.json").write_text(schema)
    with pytest.raises(UsageError, match=problem):
        read_schemas([("q", tmp_path / "s.json")])
    with pytest.raises(UsageError, match=r"missing\.json"):
        read_schemas([("q", tmp_path / "missing.json")])


async def test_recipes_are_saved_listed_shown_deleted_and_audited(ground: Ground) -> None:
    async with letters_at(ground) as store:
        recipes = RecipeStore(store)
        saved = await recipes.save(Recipe(name="numbers", program=".body.n |= tonumber"), who="anna")
        assert saved.who == "anna"
        with pytest.raises(UsageError, match="already"):
            await recipes.save(Recipe(name="numbers", program="."), who="bob")
        assert await recipes.named("numbers") == saved
        await recipes.save(Recipe(name="numbers", program="."), who="bob", replace=True)
        assert [(one.name, one.program, one.who) for one in await recipes.all()] == [("numbers", ".", "bob")]
        await recipes.delete("numbers", who="anna")
        assert await recipes.all() == ()
        for missing in (recipes.named("numbers"), recipes.delete("numbers", who="anna")):
            with pytest.raises(NotStored):
                await missing
        for name in ("", " x", "a\nb", "x" * 101):
            with pytest.raises(UsageError, match="expected a name"):
                await recipes.save(Recipe(name=name, program="."), who="anna")
    told = ground.sql("SELECT who, action FROM deadletter_audit ORDER BY id")
    assert told.splitlines() == ["anna|recipe saved", "bob|recipe saved", "anna|recipe deleted"]


async def test_a_draft_leaves_the_original_and_is_dropped_or_forgotten(ground: Ground) -> None:
    async with with_bodies(ground, b'{"n": "1"}', b"2") as store:
        drafts = DraftStore(store)
        before = (await store.letter("1")).letter
        async with editor(".body.n |= tonumber") as one:
            (made,) = await one.outcomes([("orders", before)])
        assert isinstance(made, Edited)
        await drafts.save(1, before.with_message(made.message), who="anna", note="by hand")
        detail = await store.letter("1")
        assert detail.letter.message == before.message
        assert [(step.step, step.who) for step in detail.steps] == [("edited", "anna")]
        draft = (await drafts.of([1, 2]))[1]
        assert draft.message.body == b'{"n": 1}'
        assert before.with_message(draft.message).headers[names.EDITED] == "anna"
        assert await drafts.drop(1, who="anna")
        assert not await drafts.drop(1, who="anna")
        await store.discard([2], who="anna", why="")
        with pytest.raises(NotStored, match="open"):
            await drafts.save(2, before, who="anna")


async def test_a_replay_sends_the_draft_or_refuses_a_damaged_one_and_what_is_forgotten_leaves_none(
    ground: Ground,
) -> None:
    async with with_bodies(ground, b"1", b"2", b"3") as store:
        drafts, replays = DraftStore(store), ReplayStore(store)
        for number in (1, 2):
            letter = (await store.letter(str(number))).letter
            await drafts.save(number, letter.with_message(letter.message._replace(body=b"new")), who="anna")
        ground.sql("UPDATE deadletter_drafts SET data = substr(data, 1, 2) WHERE letter = 2")
        replay = await frozen(replays)
        found = await replays.next_portion(replay.id, 10)
        assert [(one.row, one.letter.body) for one in found] == [(1, b"new"), (3, b"3")]
        for late in (drafts.save(3, found[1].letter, who="anna"), drafts.drop(1, who="anna")):
            with pytest.raises(NotStored, match="in no replay"):
                await late
        (refused,) = await replays.outcomes(replay.id, SentState.REFUSED)
        assert (refused.letter, "damaged" in refused.why) == (2, True)
        await replays.settled(replay.id, [1, 3], {}, at_ms=NOON_MS)
        await replays.cancel(replay.id, who="anna")
        while await store.forget_some(names.PARKED, Retention(letters=0)):
            pass
    assert ground.sql("SELECT count(*) FROM deadletter_drafts") == "0"


def _as_before(body: str) -> Letter:
    return parked(1, body=body.encode())


@pytest.mark.parametrize(
    ("before", "after", "other", "becomes"),
    [
        ('{"n":"12"}', '{"n":12}', '{"n":"7"}', '{"n":7}'),
        ('{"a":1}', '{"b":1}', '{"a":9}', '{"b":9}'),
        ('{"a":1}', '{"a":1,"c":"EUR"}', '{"a":1,"c":"USD"}', '{"a":1,"c":"USD"}'),
        ('{"a":1,"x":2}', '{"a":1}', '{"x":5}', "{}"),
        ('{"l":[{"q":"1"},{"q":"2"}]}', '{"l":[{"q":1},{"q":2}]}', '{"l":[{"q":"3"}]}', '{"l":[{"q":3}]}'),
        ('{"l":["1","2","3"]}', '{"l":[1,2,"3"]}', '{"l":["1","5","3"]}', '{"l":[1,5,"3"]}'),
        ('{"s":"OPN"}', '{"s":"OPEN"}', '{"s":"OTHER"}', '{"s":"OTHER"}'),
        ('{"p":"3,50"}', '{"p":3.50}', '{"p":"1,25"}', '{"p":1.25}'),
        ('{"x":" a "}', '{"x":"a"}', '{"x":"b "}', '{"x":"b"}'),
        ('{"t":"acme"}', '{"t":"acme","o":"acme"}', '{"t":"beta"}', '{"t":"beta","o":"beta"}'),
        ('{"id":9007199254740993}', '{"id":"9007199254740993"}', '{"id":5}', '{"id":"5"}'),
        ('{"l":[1,2,3]}', '{"l":[1,3]}', '{"l":[2]}', '{"l":[]}'),
        ('{"v":{"a":1}}', '{"v":[{"a":1}]}', '{"v":{"b":2}}', '{"v":[{"b":2}]}'),
    ],
)
async def test_the_first_proposal_does_to_another_letter_what_was_done_to_this_one(
    before: str, after: str, other: str, becomes: str
) -> None:
    found = await proposals(_as_before(before), _as_before(after))
    assert found, "nothing was proposed"
    assert all(one.words for one in found)
    async with editor(found[0].program) as one:
        made, same, beside = await one.outcomes(
            [("", _as_before(other)), ("", _as_before(before)), ("", _as_before('"of another shape"'))]
        )
    assert isinstance(made, Edited)
    assert isinstance(same, Edited)
    assert (made.message.body.decode(), same.message.body.decode()) == (becomes, after)
    assert isinstance(beside, Edited)
    assert not beside.changed, "a letter of another shape stays"


async def test_nothing_is_proposed_where_nothing_was_changed() -> None:
    assert await proposals(_as_before("1"), _as_before("1")) == ()
