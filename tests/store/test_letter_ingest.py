"""Letters come into the store: each once, copies known as copies, every byte kept, whatever is in them.

About `store.letters.ingesting`, `store.letters.letter_contents`, `store.letters.letter_rows`,
`store.finding.letter_list`.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import TABLES, damaged
from tests.store.grounds import Ground, PostgresGround, SqliteGround
from tests.store.parked import NOON_MS, Clock, letters_at, parked, stored

from deadletter.core.grouping.compression import packed
from deadletter.core.grouping.dictionaries import PackedContent
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_frame import framed
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import wrapping
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.letter.parking import Cause
from deadletter.errors import UsageError
from deadletter.store.letters.ingesting import Ingested
from deadletter.store.letters.letter_store import LetterStore, open_letters


def _bytes(letter: Letter) -> tuple[object, ...]:
    return letter.message, letter.came_by, letter.source


async def _only(store: LetterStore) -> Letter:
    (row,) = (await store.find(LetterQuery(state=None))).letters
    return (await store.letter(str(row.id))).letter


async def test_new_then_again_then_a_copy(ground: Ground) -> None:
    async with letters_at(ground) as store:
        assert await store.ingest(stored(parked(1), parked(2))) == Ingested(new=2, new_groups=1)
        assert await store.ingest(stored(parked(1), parked(3))) == Ingested(new=1, again=1)
        assert await store.ingest(stored(parked(2, move="another"))) == Ingested(copies=1)
        assert await store.ingest(stored(parked(2, move="another"))) == Ingested(again=1)
        rows = (await store.find(LetterQuery())).letters
        assert [(int(row.letter_id, 16), row.copies) for row in rows] == [(3, 0), (2, 1), (1, 0)]
        (group,) = await store.groups(GroupQuery())
        assert (group.total, group.open) == (3, 3)
    async with letters_at(ground) as store:  # another instance, which remembers nothing
        assert await store.ingest(stored(parked(1), parked(2, move="another"))) == Ingested(again=2)


async def test_twice_in_one_batch(ground: Ground) -> None:
    async with letters_at(ground) as store:
        done = await store.ingest(stored(parked(1), parked(1), parked(1, move="another")))
        assert done == Ingested(new=1, again=1, copies=1, new_groups=1)


async def test_the_same_id_with_another_death_or_body_is_another_letter(ground: Ground) -> None:
    async with letters_at(ground) as store:
        first, other = parked(1), parked(1, body=b"changed", move="later")
        assert (await store.ingest(stored(first, other))).new == 2
        rows = (await store.find(LetterQuery(letter_id=f"{1:032x}"))).letters
        assert len(rows) == 2
        assert [row.id for row in (await store.letter(str(rows[0].id))).earlier] == [rows[1].id]


async def test_equal_letters_that_nothing_tells_apart_are_all_kept(ground: Ground) -> None:
    async with letters_at(ground) as store:
        twins = stored(parked(1, move=None), parked(1, move=None), parked(1, move=None))
        assert await store.ingest(twins) == Ingested(new=1, copies=2, new_groups=1)
        (row,) = (await store.find(LetterQuery())).letters
        assert row.copies == 2


async def test_two_writers_at_once_list_a_letter_once(ground: Ground) -> None:
    async with letters_at(ground) as one, open_letters(ground.url, now_ms=Clock()) as other:
        same = stored(*(parked(n) for n in range(40)))
        copies = stored(*(parked(n, move=f"other-{n}") for n in range(40)))
        done = await asyncio.gather(
            one.ingest(same), other.ingest(same), one.ingest(copies), other.ingest(list(reversed(copies)))
        )
        assert [sum(getattr(part, name) for part in done) for name in ("new", "copies", "again")] == [
            40,
            40,
            80,
        ]
        rows = (await one.find(LetterQuery(limit=100))).letters
        assert sorted(int(row.letter_id, 16) for row in rows) == list(range(40))
        assert {row.copies for row in rows} == {1}
        (group,) = await one.groups(GroupQuery())
        assert (group.total, group.open) == (40, 40)


NAMES = ["a\0b", "\udcff broken", "emoji 🦆 ☃", "x" * 255, "'; DROP TABLE deadletter_letters; --", "%_\\", ""]


@pytest.mark.parametrize("name", NAMES)
async def test_names_are_kept_as_far_as_a_database_can(ground: Ground, name: str) -> None:
    letter = parked(
        1,
        origin=name,
        queue=name.replace("\udcff", "?"),
        cause=name[:100],
        message_id="m\0" + name[:200].replace("\udcff", "?"),
    )
    async with letters_at(ground) as store:
        assert (await store.ingest(stored(letter))).new == 1
        kept = await _only(store)
        assert (kept.message, kept.came_by) == (letter.message, letter.came_by)
        (row,) = (await store.find(LetterQuery(queue=letter.source))).letters
        for query in (
            LetterQuery(origin=name or "(unknown)"),
            LetterQuery(message_id="m\0" + name[:200].replace("\udcff", "?")),
        ):
            assert [found.id for found in (await store.find(query)).letters] == [row.id]
        assert (await store.facets(LetterQuery(queue=letter.source))).total == 1


async def test_a_huge_letter(ground: Ground) -> None:
    letter = parked(1, body=bytes(range(256)) * 40_000, headers={"big": "x" * 100_000})
    async with letters_at(ground) as store:
        await store.ingest(stored(letter))
        assert _bytes(await _only(store)) == _bytes(letter)


async def test_a_wrapped_letter_is_read_as_the_one_inside(ground: Ground) -> None:
    inside = parked(7, error="wrapped trouble", origin="inner").message
    came_by = ExchangeKey(b"shop", b"order.placed")
    made = wrapping.wrap(
        inside,
        source="orders.dlq",
        came_by=came_by,
        move="m-1",
        cause=Cause.ORIGIN_FULL,
        why="big",
        at_ms=NOON_MS,
    )
    letter = Letter(
        source="deadletter.parked",
        message=made,
        came_by=ExchangeKey(b"", b"deadletter.parked"),
        redelivered=False,
    )
    async with letters_at(ground) as store:
        await store.ingest(stored(letter))
        assert _bytes(await _only(store)) == _bytes(letter)
        assert len((await store.find(LetterQuery(text="wrapped trouble", origin="inner"))).letters) == 1


UNREADABLE = [b"", b"\xff", b"\x20\x00\x00\x00\x00\x09\x01", b"\x80\x00\x05ab", b"\xff\xff" * 9]


@pytest.mark.parametrize("properties", UNREADABLE)
async def test_an_unreadable_letter_is_kept_found_and_forgotten(ground: Ground, properties: bytes) -> None:
    body = b'{"actor_name": "a", "queue_name": "q", "options": {"traceback": "ValueError: readable body"}}'
    letter = Letter(
        source="q", message=RawMessage(properties, body), came_by=ExchangeKey(b"", b"q"), redelivered=False
    )
    async with letters_at(ground) as store:
        await store.ingest(stored(letter))
        assert _bytes(await _only(store)) == _bytes(letter)
        assert len((await store.find(LetterQuery(text="readable body"))).letters) == 1


async def test_what_was_packed_elsewhere_is_kept_only_with_the_dictionaries_of_now(ground: Ground) -> None:
    """The reader packs, too; behind a new connection a number may mean other bytes."""
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n) for n in range(20))))
        late, fitting = stored(parked(100), parked(101))
        known = store.dictionaries.get(late.fingerprint.key)
        assert known is not None
        other = packed(framed(late.letter), framed(parked(100)))
        late = late._replace(packed=PackedContent(object(), known.number, other))
        data = packed(framed(fitting.letter), known.data)
        fitting = fitting._replace(packed=PackedContent(store.dictionaries.edition, known.number, data))
        assert (await store.ingest([late, fitting])).new == 2
        rows = (await store.find(LetterQuery(limit=2))).letters
        found = await store.whole([row.id for row in rows], most_bytes=10**6)
        assert [_bytes(found[row.id][0]) for row in rows] == [_bytes(parked(101)), _bytes(parked(100))]


@pytest.mark.parametrize("amount", [1, 3, 30])
async def test_letters_of_one_group_stay_exact_when_they_share_a_dictionary(
    ground: Ground, amount: int
) -> None:
    letters = [parked(n, body=f"order {n} ".encode() * 50, headers={"n": n}) for n in range(amount * 4)]
    clock = Clock()
    async with letters_at(ground, clock) as store:
        for start in range(0, len(letters), amount):
            await store.ingest(stored(*letters[start : start + amount]))
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(*(parked(n, body=b"more") for n in range(500, 520))))
        for letter in letters:
            (row,) = (await store.find(LetterQuery(letter_id=letter.id))).letters
            assert _bytes((await store.letter(str(row.id))).letter) == _bytes(letter)


async def test_a_letter_by_number_by_id_by_its_beginning(ground: Ground) -> None:
    async with letters_at(ground) as store:
        letter_id = "abcdef0123456789abcdef0123456789"
        foreign = encode(View(headers={"deadletter-id": letter_id}))
        letter = Letter(
            source="q", message=RawMessage(foreign, b"x"), came_by=ExchangeKey(b"", b"q"), redelivered=False
        )
        await store.ingest(stored(letter, parked(1)))
        row = (await store.letter(letter_id)).row
        for name in (str(row.id), letter_id[:4], letter_id[:9], letter_id[:31]):
            assert (await store.letter(name)).row.id == row.id
        for name in ("abce", "f" * 32, "no such", "", "99999", "'"):
            with pytest.raises(UsageError, match="no letter is called so"):
                await store.letter(name)


_TABLE = TABLES.map(lambda entries: b"\x20\x00" + oracle.table(entries).wire[1:])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.one_of(_TABLE, damaged(_TABLE), st.binary(max_size=40)),
            st.one_of(st.binary(max_size=3_000), st.just(b'{"a": 1}' * 500)),
            st.binary(max_size=255),
            st.binary(max_size=255),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_a_letter_is_it_comes_back_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, some: list[tuple[bytes, bytes, bytes, bytes]]
) -> None:
    letters = [
        Letter(source="q", message=RawMessage(p, b), came_by=ExchangeKey(e, k), redelivered=False)
        for p, b, e, k in some
    ]

    async def kept() -> None:
        ground = SqliteGround(tmp_path_factory.mktemp("store") / "x.db")
        async with letters_at(ground) as store:
            await store.ingest(stored(*letters))
            count = int(ground.sql("SELECT count(*) FROM deadletter_letters"))
            assert count == len(letters)
            found = [(await store.letter(str(n))).letter for n in range(1, count + 1)]
        assert [_bytes(letter) for letter in found] == [_bytes(letter) for letter in letters]

    asyncio.run(kept())


async def test_postgresql_keeps_them_byte_for_byte(postgres_ground: PostgresGround) -> None:
    odd = [bytes([n]) * n + b"\0\xff\\x" for n in range(0, 200, 13)]
    letters = [
        Letter(
            source="q",
            message=RawMessage(part, part[::-1]),
            came_by=ExchangeKey(part, part),
            redelivered=False,
        )
        for part in odd
    ]
    async with letters_at(postgres_ground) as store:
        await store.ingest(stored(*letters))
        rows = (await store.find(LetterQuery(limit=100))).letters
        found = [(await store.letter(str(row.id))).letter for row in reversed(rows)]
    assert [_bytes(letter) for letter in found] == [_bytes(letter) for letter in letters]
