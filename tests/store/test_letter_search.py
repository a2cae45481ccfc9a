"""Letters are found: by each field, by words, by headers, in pages, and counted.

About `store.finding.searching`, `store.finding.facets`, `store.finding.word_index`,
`core.grouping.letter_words`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.grouping.letter_words import divided, words_of
from deadletter.core.grouping.retention import Retention
from deadletter.core.letter.letter import Letter
from deadletter.store.finding import facets, searching
from deadletter.store.letters.letter_store import LetterStore

MANY = searching._FEW + 60
BULK = [parked(n + 1_000, error="common trouble", body=f"filler {n}".encode()) for n in range(MANY)]


async def _numbers(store: LetterStore, **query: object) -> list[int]:
    """The letters of `parked(n)` that are found, by n, without those of BULK."""
    found: list[int] = []
    asked = LetterQuery(**query)  # type: ignore[arg-type]
    while True:
        page = await store.find(asked)
        found += [int(row.letter_id, 16) for row in page.letters]
        if page.more is None:
            return sorted(n for n in found if n < 1_000)
        asked = LetterQuery(**{**query, "after": page.more})  # type: ignore[arg-type]


ERRORS = (
    "connection timed out",
    "timeout",
    "the ledger did not answer",
    "TIMING",
    "no",
    "ledgers are out",
    "x y",
)


@pytest.mark.parametrize("order", list(LetterOrder))
@pytest.mark.parametrize(("portion", "asked", "window"), [(500, 20, 20_000), (3, 20, 20_000), (3, 0, 5)])
async def test_a_part_of_a_word_in_the_error(
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
    order: LetterOrder,
    portion: int,
    asked: int,
    window: int,
) -> None:
    """However little is asked for at once, each that says it is found, once and in order."""
    monkeypatch.setattr(searching, "_PORTION", portion)
    monkeypatch.setattr(searching, "_GROUPS_ASKED", asked)
    monkeypatch.setattr(searching, "_WINDOW", window)
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n, error=ERRORS[n % 7]) for n in range(70))))
        for text in ("tim", "IMEO", "time", "ledger", "dger did no", "out", "t", "errorx", "rror: no", "x y"):
            expected = [n for n in range(70) if text.lower() in f"timeouterror: {ERRORS[n % 7]}".lower()]
            found: list[int] = []
            after: int | None = None
            while True:
                page = await store.find(LetterQuery(error=text, order=order, limit=4, after=after))
                found += [int(row.letter_id, 16) for row in page.letters]
                if (after := page.more) is None:
                    break
            assert found == sorted(expected, reverse=order is LetterOrder.NEWEST), text
            assert (await store.facets(LetterQuery(error=text))).total == len(expected)
        both = await store.find(LetterQuery(error="imeo", text="letter 8", cause="retries-exhausted"))
        assert [int(row.letter_id, 16) for row in both.letters] == [8]


async def test_by_each_field(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(*BULK))
        await store.ingest(
            stored(
                parked(1, queue="a.dlq", at_ms=NOON_MS - 60 * MINUTE_MS),
                parked(2, origin="mail", message_id="order-2/x_y"),
                parked(3, cause="rare-cause", error="Größe of 3 parcels: too_big!"),
                parked(4, kind="shop.errors.OddError", error='100% of "it" failed'),
                parked(5, error=None, at_ms=NOON_MS + 60 * MINUTE_MS, message_id="--"),
            )
        )
        assert await _numbers(store, queue="a.dlq") == [1]
        assert await _numbers(store, origin="mail") == [2]
        assert await _numbers(store, message_id="order-2/x_y") == [2]
        assert await _numbers(store, message_id="order-2") == []
        assert await _numbers(store, message_id="--") == [5]
        assert await _numbers(store, cause="rare-cause") == [3]
        assert await _numbers(store, cause="no such") == []
        assert await _numbers(store, error="GRÖSSE OF") == []  # ß has no capital letter
        assert await _numbers(store, error="größe OF 3") == [3]
        assert await _numbers(store, error="too_big!") == [3]
        assert await _numbers(store, error="ODDERROR: 100%") == [4]
        assert await _numbers(store, error='"it"') == [4]
        assert await _numbers(store, letter_id=f"{3:032x}") == [3]
        assert await _numbers(store, died_until_ms=NOON_MS) == [1]
        assert await _numbers(store, died_from_ms=NOON_MS + 1) == [5]
        assert await _numbers(store, died_from_ms=NOON_MS + 1, died_until_ms=NOON_MS + 2) == []
        (row,) = (await store.find(LetterQuery(letter_id=f"{4:032x}"))).letters
        assert await _numbers(store, ids=(row.id, 10**12)) == [4]
        assert await _numbers(store, group=row.group) == [4]
        assert await _numbers(store, group=10**6) == []
        await store.discard([row.id], who="ann", why="")
        assert await _numbers(store, state=LetterState.DISCARDED) == [4]
        assert 4 not in await _numbers(store)
        assert await _numbers(store, state=None) == [1, 2, 3, 4, 5]


TEXTS = {
    1: "plain words, with-hyphens and under_scores",
    2: "quotes \"inside\" and 'single' ones; x",
    3: "Straße München naïve İstanbul Ω",
    4: "東京タワー 한국어 emoji 🦆",
    5: "www.example.com/path?q=1&r=2 user@example.com 10.0.0.1",
    6: '{"n": 1.5e3, "deep": {"key": "va-lue"}, "q": "\\u00e9"}',
    7: "tabs\tand\nlines NUL\0here",
    8: "AND OR NOT NEAR * ^ : ( ) - + ~ % ' \\",
}
ASKED = [
    ("plain", [1]), ("PLAIN words", [1]), ("words plain", [1]), ('"plain words"', [1]), ('"words plain"', []),
    ("hyphens", [1]), ("with-hyphens", [1]), ("scores", [1]), ("under_scores", [1]), ("with_hyphens", []),
    ("inside", [2]), ('"inside"', [2]), ("single", [2]), ("x", [2]), ("plai", []), ("lain", []),
    ("straße", [3]), ("münchen", [3]), ("munchen", []), ("NAÏVE", [3]), ("ω", [3]), ("Ω", [3]),
    ("東京", [4]), ("タワー", [4]), ("京東", []), ("한국어", [4]), ("🦆", [4]),
    ("example.com", [5]), ("path", [5]), ("r=2", [5]), ("user@example.com", [5]), ("10.0.0.1", [5]),
    ("0.0.1.10", []),
    ("va-lue", [6]), ("1.5e3", [6]), ('"deep": {', [6]), ("u00e9", [6]),
    ("tabs lines", [7]), ("here", [7]), ("AND OR", [8]), ("near", [8]), ("near ^ ~", [8]), ("' \\", [8]),
    ("%", [8]),
    ("plain straße", []), ("nothing", []),
]  # fmt: skip


async def test_free_text_with_and_without_the_index_finds_the_same(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(*BULK))
        some = [parked(n, body=said.encode(), error=None, origin="texts") for n, said in TEXTS.items()]
        await store.ingest(stored(*some))
        for text, expected in ASKED:
            assert await _numbers(store, text=text) == expected, text
            # few letters of one origin are looked into, without the index
            assert await _numbers(store, text=text, origin="texts") == expected, text


def test_words() -> None:
    assert words_of("a_b-C.d 1e5") == ["a", "b", "c", "d", "1e5"]
    assert words_of("東京 x") == ["東", "京", "x"]
    assert words_of("…–“ ”") == []
    assert divided("ASCII Only") == "ascii only"
    assert max(map(len, words_of("x" * 1_000))) == 200


async def test_headers(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(*BULK))
        await store.ingest(
            stored(
                parked(1, headers={"tenant": "acme", "n": 5, "flag": True}),
                parked(2, headers={"tenant": "acme corp*", "Tenant": "other"}),
                parked(3, headers={"tenant": "", "list": ["acme"]}),
                parked(4, headers={"tenant": "x" * 300}, host="odd-host"),
            )
        )
        for headers, expected in (
            ((("tenant", "acme"),), [1]),
            ((("tenant", "acme*"),), [1, 2]),
            ((("tenant", "*"),), [1, 2, 3, 4]),
            ((("tenant", ""),), [3]),
            ((("tenant", "*corp*"),), [2]),
            ((("Tenant", "other"),), [2]),
            ((("tenant", "other"),), []),
            ((("n", "5"), ("flag", "true")), [1]),
            ((("list", "acme"),), []),
            ((("tenant", "x" * 300),), [4]),
            ((("deadletter-error-host", "odd-*"),), [4]),
        ):
            assert await _numbers(store, headers=headers) == expected, headers


async def test_where_answers_for_what_else_holds(ground: Ground) -> None:
    async def where(letters: Sequence[Letter]) -> Sequence[bool]:
        return [letter.body.endswith(b"2") for letter in letters]

    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n) for n in range(30))))
        page = await store.find(LetterQuery(where="program", error="ledger"), where=where)
        assert sorted(int(row.letter_id, 16) for row in page.letters) == [2, 12, 22]
        assert (page.looked_at, page.more) == (30, None)


async def test_a_search_that_takes_too_long_says_how_far_it_came(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(parked(1, headers={"a": "first"}), *BULK))
        monkeypatch.setattr(searching, "LOOK_S", 0.0)
        pages, after = 0, None
        found: list[str] = []
        while True:
            asked = LetterQuery(headers=(("a", "f*"), ("deadletter-cause", "*")), text="letter", after=after)
            page = await store.find(asked)
            found += [row.letter_id for row in page.letters]
            pages, after = pages + 1, page.more
            if after is None:
                break
        assert found == [f"{1:032x}"]
        headers = (("deadletter-cause", "nothing"),)
        page = await store.find(LetterQuery(headers=headers))
        assert (page.letters, page.more is not None, page.looked_at > 0) == ((), True, True)


@pytest.mark.parametrize(
    "query", [LetterQuery(), LetterQuery(text="letter"), LetterQuery(cause="retries-exhausted")]
)
async def test_pages_have_no_gaps_and_no_repeats_while_letters_come_and_go(
    ground: Ground, query: LetterQuery
) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n) for n in range(57))))

        def page_of(order: LetterOrder, after: int | None) -> LetterQuery:
            return LetterQuery(text=query.text, cause=query.cause, order=order, after=after, limit=10)

        newest, after = list[int](), None
        for step in range(20):
            page = await store.find(page_of(LetterOrder.NEWEST, after))
            newest += [row.id for row in page.letters]
            after = page.more
            if after is None:
                break
            await store.ingest(stored(parked(100 + step)))
            await store.forget_some("deadletter.parked", Retention(letters=58))  # the oldest one goes
        assert newest == sorted(set(newest), reverse=True)
        gone = 57 - len(newest)
        assert newest == list(range(57, gone, -1))
        assert gone <= 6
        back, after = list[int](), newest[-1] - 1
        while after is not None:
            page = await store.find(page_of(LetterOrder.OLDEST, after))
            back += [row.id for row in page.letters]
            after = page.more
        assert back[: len(newest)] == sorted(newest)
        assert back == sorted(set(back))


async def test_facets_are_exact_where_they_are_kept_and_say_so_where_not(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facets, "FACETS_MAX", 20)
    monkeypatch.setattr(facets, "_PORTION", 7)
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n, origin=f"o{n % 3}", cause=f"c{n % 2}") for n in range(60))))
        kept = await store.facets(LetterQuery())
        assert (kept.total, kept.exact) == (60, True)
        assert {f.value: f.letters for f in kept.by["origin"]} == {"o0": 20, "o1": 20, "o2": 20}
        assert [(f.letters, f.label) for f in kept.by["group"]] == [
            (20, "TimeoutError: the ledger did not answer")
        ] * 3
        assert (await store.facets(LetterQuery(origin="o1"))).total == 20
        counted = await store.facets(LetterQuery(cause="c1", origin="o1"))
        assert (counted.total, counted.exact, counted.by["cause"][0].letters) == (10, True, 10)
        assert [f.value for f in counted.by["origin"]] == ["o1"]
        many = await store.facets(LetterQuery(cause="c1"))
        assert (many.total, many.exact) == (20, False)
        by_text = await store.facets(LetterQuery(text="letter 7"))
        assert (by_text.total, by_text.exact, by_text.looked_at >= 1) == (1, True, True)
        by_text = await store.facets(LetterQuery(text="letter"))
        assert (by_text.total, by_text.exact) == (20, False), "the newest"
        by_header = await store.facets(LetterQuery(headers=(("deadletter-cause", "c1"),), origin="o1"))
        assert (by_header.total, by_header.exact) == (10, True)

        async def where(some: Sequence[Letter]) -> list[bool]:
            return [one.body.endswith(b"7") for one in some]

        asked = await store.facets(LetterQuery(where="program"), where=where)
        assert (asked.total, asked.exact, asked.looked_at) == (6, True, 60)
        monkeypatch.setattr(facets, "FACETS_S", 0.0)
        asked = await store.facets(LetterQuery(where="program"), where=where)
        assert (asked.exact, asked.looked_at) == (False, 7), "no longer than it may take"
        assert (await store.facets(LetterQuery(cause="none"))).total == 0


async def test_what_is_forgotten_is_in_no_index(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(*(parked(n, body=f"word{n} Ünï 東京".encode()) for n in range(30))))
        clock.now_ms += MINUTE_MS
        await store.ingest(stored(parked(100, body=b"stays word3")))
        assert await store.forget_some("deadletter.parked", Retention(age_ms=MINUTE_MS // 2)) == 30
        assert await store.forget_some("deadletter.parked", Retention(age_ms=MINUTE_MS // 2)) == 0
        page = await store.find(LetterQuery(text="word3"))
        assert [int(row.letter_id, 16) for row in page.letters] == [100]
        kept = ground.sql("SELECT count(*) FROM deadletter_contents")
        if "sqlite" in ground.url:
            ground.sql("INSERT INTO deadletter_words (deadletter_words) VALUES ('integrity-check')")
            hits = ground.sql(
                "SELECT count(*) FROM deadletter_words WHERE deadletter_words MATCH 'word7 OR 東'"
            )
            assert (kept, hits) == ("1", "0")
        else:
            assert (kept, ground.sql("SELECT count(*) FROM deadletter_words")) == ("1", "1")
