"""Stored letters over HTTP: the same answers as from the store, for whoever may have them.

About `desk.api.letter_api`, `desk.api.group_api`, `desk.api.asked`, `desk.api.sources`,
`desk.door.guarded_app`, `desk.problems`, `operations.records.service_records`,
`operations.records.store_records`, `operations.records.where_programs`, `operations.records.records`,
`operations.records.exact_letters`, `operations.service_address`, `core.grouping.group_query`,
`core.letter.archive_parser`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import TABLES
from tests.letters import letter
from tests.recorded import HOSTILE, make
from tests.web.conftest import Desk, Opened
from tests.web.test_http_app import problem_of

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.letter.archive_format import ArchiveHead, ArchivePacker, StoreKeys
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.desk.api.group_api import GroupParams
from deadletter.desk.api.letter_api import LetterParams
from deadletter.errors import DeadletterError, NotStored, StoreError, Unreachable, UsageError
from deadletter.operations.records import exact_letters, store_records
from deadletter.operations.records.exact_letters import packed
from deadletter.operations.records.records import CHANGED_AT_ONCE, GroupChange, Records, json_of
from deadletter.operations.records.service_records import (
    ServiceRecords,
    group_params,
    letter_params,
    service_records,
)
from deadletter.operations.records.store_records import LateRecords, StoreRecords, opened_records
from deadletter.operations.records.where_programs import document


@dataclass(frozen=True, slots=True)
class Both:
    """The same store, asked in both ways."""

    direct: StoreRecords
    over_http: ServiceRecords
    desk: Desk


@pytest.fixture
async def both(opened: Opened, tmp_path: Path) -> AsyncIterator[Both]:
    url = await make(tmp_path / "letters.db", int(time.time() * 1000))
    late = LateRecords(url)
    try:
        async with (
            opened_records(url) as direct,
            opened(records=late) as desk,
            service_records(desk.url, None) as over_http,
        ):
            yield Both(direct, over_http, desk)
    finally:
        await late.close()


QUESTIONS = [
    LetterQuery(),
    LetterQuery(limit=3),
    LetterQuery(limit=3, after=7),
    LetterQuery(order=LetterOrder.OLDEST, limit=2, after=2),
    LetterQuery(origin="orders", error="ANSWER"),
    LetterQuery(queue="stock.dlq"),
    LetterQuery(queue="nowhere"),
    LetterQuery(ids=(1, 2, 99)),
    LetterQuery(group=1, cause="retries-exhausted"),
    LetterQuery(message_id="m-3"),
    LetterQuery(letter_id=f"{20:032x}"),
    LetterQuery(headers=(("tenant", "acme"),)),
    LetterQuery(headers=(("tenant", "*"), ("deadletter-attempt", "3"))),
    LetterQuery(text="apples"),
    LetterQuery(where='.body.order? > 3 and .headers.tenant == "other"'),
    LetterQuery(state=None, died_from_ms=1, died_until_ms=2**60),
    LetterQuery(state=LetterState.DISCARDED),
    LetterQuery(origin=f"evil{HOSTILE}"),
]


async def test_both_ways_give_the_same(both: Both) -> None:
    for query in QUESTIONS:
        there, here = await both.over_http.letters(query), await both.direct.letters(query)
        assert there == here, query
        assert json_of(there) == json_of(here)
        assert await both.over_http.facets(query) == await both.direct.facets(query)
    for asked in (
        GroupQuery(),
        GroupQuery(states=(), order=GroupOrder.LETTERS, limit=2),
        GroupQuery(states=(), limit=2, offset=2),
        GroupQuery(states=(GroupState.MUTED, GroupState.RESOLVED)),
        GroupQuery(category=Category.TRANSIENT, origin="orders", text="answer"),
    ):
        assert await both.over_http.groups(asked) == await both.direct.groups(asked), asked
    page = await both.direct.groups(GroupQuery())
    for group in page.groups:
        assert await both.over_http.group(str(group.id)) == await both.direct.group(group.key[:9])
    for row in (await both.direct.letters(LetterQuery())).letters:
        assert await both.over_http.letter(str(row.id)) == await both.direct.letter(row.letter_id)
        assert await both.over_http.body(str(row.id)) == await both.direct.body(row.letter_id)
    assert await both.over_http.store() == await both.direct.store()


async def test_what_is_found_is_what_was_meant(both: Both) -> None:
    async def numbers(query: LetterQuery) -> list[int]:
        return [row.id for row in (await both.over_http.letters(query)).letters]

    assert await numbers(LetterQuery(headers=(("tenant", "acme"),))) == [5, 3, 1]
    assert await numbers(LetterQuery(text="apples")) == [6]
    assert await numbers(LetterQuery(where=".body.total? > 250")) == [5, 4, 3]
    assert await numbers(LetterQuery(where='.body == "plain words about Apples"')) == [6]
    assert await numbers(LetterQuery(where=".body == null")) == [7], "neither JSON nor text"
    exact = ".body.big? == 12345678901234567890 and .properties.message_id"
    assert await numbers(LetterQuery(where=exact)) == [5, 4, 3, 2, 1]
    page = await both.over_http.letters(LetterQuery(limit=4))
    assert ([row.id for row in page.letters], page.more) == ([9, 8, 7, 6], 6)
    found = await both.over_http.groups(GroupQuery(states=(), order=GroupOrder.LETTERS))
    assert [(one.total, len(one.hours)) for one in found.groups][:2] == [(5, 24), (2, 24)]
    assert sum(found.groups[0].hours) == 5
    assert found.groups[0].release == "1.4.2"


async def test_a_body_is_exact_and_never_shown_by_a_browser(both: Both) -> None:
    answer = await both.desk.client.get("/api/v1/letters/7/body")
    assert answer.content == b"\x00\x01\xff\xfe binary"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("way", ["direct", "over_http"])
async def test_what_people_do(both: Both, way: str) -> None:
    records: Records = both.direct if way == "direct" else both.over_http
    view = await records.change_group("1", GroupChange(state=GroupState.RESOLVED), who="anna")
    assert view.state is GroupState.RESOLVED
    later = int(time.time() * 1000) + 3_600_000
    view = await records.change_group("1", GroupChange(state=GroupState.SNOOZED, until_ms=later), who="anna")
    assert (view.state, view.until_ms) == (GroupState.SNOOZED, later)
    view = await records.change_group("1", GroupChange(category=Category.BUG), who="anna")
    assert (view.state, view.category) == (GroupState.SNOOZED, Category.BUG)
    await records.note("1", f"a note {HOSTILE}", who="anna")
    detail = await records.group("1")
    assert [(note.author, note.text) for note in detail.notes] == [("anna", f"a note {HOSTILE}")]
    assert (await records.discard([1, 2, 99], who="anna", why="gone")).letters == 2
    assert (await records.discard([1], who="ben", why="")).letters == 0, "it is discarded already"
    assert (await records.letter("1")).timeline[-1].who == "anna"
    assert (await records.group("1")).group.open == 3
    assert (await records.take_back([1], who="anna", why="")).letters == 1
    assert (await records.letter("1")).timeline[-1].what == "taken back"
    other = (await records.group("2")).group
    assert (await records.merge("1", "2", who="anna")).id == 1
    assert (await records.group("1")).merged == (other.key,)
    await records.split(other.key, who="anna")
    assert (await records.group("2")).group == other


@pytest.mark.parametrize("way", ["direct", "over_http"])
async def test_what_cannot_be_is_the_same_error(both: Both, way: str) -> None:
    records: Records = both.direct if way == "direct" else both.over_http
    for name in ("999", "zzz", f"{99:032x}", "../store", "a/b", "1?x"):
        with pytest.raises(NotStored):
            await records.letter(name)
        with pytest.raises(NotStored):
            await records.group(name)
    with pytest.raises(NotStored, match="several begin so"):
        await records.letter("0000")
    with pytest.raises(UsageError, match="neither"):
        await records.change_group("1", GroupChange(), who="x")
    with pytest.raises(UsageError, match="in the future"):
        await records.change_group("1", GroupChange(state=GroupState.SNOOZED, until_ms=5), who="x")
    with pytest.raises(UsageError, match="empty"):
        await records.note("1", " ", who="x")
    with pytest.raises(UsageError, match="same twice"):
        await records.merge("1", "1", who="x")
    with pytest.raises(UsageError, match="merged into another"):
        await records.split("abcdef", who="x")
    with pytest.raises(UsageError, match="expected a jq program"):
        await records.letters(LetterQuery(where="].["))
    with pytest.raises(UsageError):
        await records.discard(range(CHANGED_AT_ONCE + 1), who="x", why="")
    with pytest.raises(UsageError):
        await records.letters(LetterQuery(limit=1_001))


async def test_a_program_that_runs_for_ever_finds_nothing_and_is_counted(both: Both) -> None:
    page = await both.over_http.letters(LetterQuery(where="[limit(1e12; repeat(1))] | length > 0", limit=1))
    assert page.letters == ()
    assert page.unanswered > 0


# -- exact letters ---------------------------------------------------------------------------------------
async def test_letters_are_exact_either_way(both: Both) -> None:
    here = await both.direct.exact([7, 1, 99, 3])
    assert list(here) == [7, 1, 3]
    assert here[7][0].body == b"\x00\x01\xff\xfe binary"
    assert same(await both.over_http.exact([7, 1, 99, 3])) == same(here)
    assert await both.over_http.exact([99]) == {}


async def test_a_portion_ends_where_it_is_full(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_records, "PORTION_BYTES", 60)
    assert list(await both.over_http.exact([1, 2, 3])) == [1], "one, however large"
    assert list(await both.over_http.exact([99, 2, 3])) == [2]


def same(found: dict[int, tuple[Letter, StoreKeys]]) -> list[object]:
    return [
        (number, letter.source, letter.message, letter.came_by, keys)
        for number, (letter, keys) in found.items()
    ]


@given(
    st.lists(
        st.tuples(TABLES.map(oracle.table_bytes), st.binary(max_size=200), st.binary(max_size=50)),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_goes_in_over_http_comes_out_again_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, opened: Opened, some: list[tuple[bytes, bytes, bytes]]
) -> None:
    letters = [
        Letter(
            source="deadletter.parked",
            message=RawMessage(oracle.properties(headers=headers, delivery_mode=2), body),
            came_by=ExchangeKey(b"shop", key),
            redelivered=False,
        )
        for headers, body, key in some
    ]
    known = [
        StoreKeys(
            letter_id=f"{number:032x}", same=b"s%15d" % number, message=b"m%15d" % number, died_ms=1,
            stored_ms=2, vhost="shop",
        )
        for number in range(len(letters))
    ]  # fmt: skip

    async def main() -> None:
        late = LateRecords(f"sqlite:///{tmp_path_factory.mktemp('exact') / 'letters.db'}")
        try:
            async with opened(records=late) as desk, service_records(desk.url, None) as records:
                given_ = list(zip(letters, known, strict=True))
                done = await records.put(given_, who="anna", source="a.dlq")
                assert (done.new, done.copies, done.again) == (len(letters), 0, 0)
                done = await records.put(given_, who="anna", source="a.dlq")
                assert (done.new, done.copies, done.again) == (0, 0, len(letters))
                found = await records.exact(range(1, len(letters) + 1))
                assert [one.message for one, _ in found.values()] == [one.message for one in letters]
                assert [one.came_by for one, _ in found.values()] == [one.came_by for one in letters]
                assert [keys.letter_id for _, keys in found.values()] == [keys.letter_id for keys in known]
                assert {keys.vhost for _, keys in found.values()} == {"shop"}
        finally:
            await late.close()

    asyncio.run(main())


async def test_what_is_no_whole_archive_changes_nothing(both: Both) -> None:
    ((one, keys),) = (await both.direct.exact([1])).values()
    whole = packed([(one, keys)])
    packer = ArchivePacker(ArchiveHead(id=bytes(16), made_ms=0, source="", taken=False, writer=""))
    unknown = packer.begin()
    packer.add(one)
    unknown += packer.end()
    for body in (whole[:-1], whole[:-90] + b"\0" * 90, b"", b"{}", unknown):
        answer = await put(both, body)
        assert answer.status_code == 422, body
        assert "whole archive" in problem_of(answer)
    assert (await put(both, whole)).json() == {"new": 0, "copies": 0, "again": 1}


async def test_few_bytes_that_would_be_very_many_are_refused(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_letters, "MAX_BYTES", 100_000)
    (one,) = (await both.direct.exact([1])).values()
    bomb = Letter(
        source="q",
        message=RawMessage(one[0].message.properties, bytes(60_000)),
        came_by=one[0].came_by,
        redelivered=False,
    )
    assert (await put(both, packed([(bomb, one[1])]))).status_code == 200
    bodies = packed([(bomb, one[1]), (bomb, one[1])])
    assert len(bodies) < 5_000
    assert (await put(both, bodies)).status_code == 422


async def put(both: Both, body: bytes, **headers: str) -> httpx.Response:
    said = {"content-type": exact_letters.MEDIA_TYPE, **headers}
    return await both.desk.client.post("/api/v1/archive", content=body, headers=said)


async def test_an_archive_is_taken_only_as_one(both: Both) -> None:
    whole = packed((await both.direct.exact([1])).values())
    assert (await put(both, whole, **{"content-type": "application/json"})).status_code == 415
    assert (await put(both, whole, **{"content-type": "text/plain"})).status_code == 415
    assert (await put(both, whole, **{"sec-fetch-site": "cross-site"})).status_code == 403
    assert (await put(both, bytes(70_000))).status_code == 422, "that much is read"
    answer = await both.desk.client.post("/api/v1/letters/discard", json={"ids": list(range(30_000))})
    assert answer.status_code == 413, "and of JSON no more than before"


# -- who may ---------------------------------------------------------------------------------------------
async def test_letters_are_for_whoever_has_the_token(opened: Opened, tmp_path: Path) -> None:
    late = LateRecords(await make(tmp_path / "letters.db", int(time.time() * 1000)))
    try:
        async with opened(token="s3cret", records=late) as desk:
            for path in (
                "store",
                "groups",
                "groups/1",
                "letters",
                "letters/1",
                "letters/1/body",
                "facets",
                "archive?id=1",
            ):
                answer = await desk.client.get(f"/api/v1/{path}")
                assert answer.status_code == 401, path
                assert "DLQ_API_TOKEN" in problem_of(answer)
                assert (await desk.client.head(f"/api/v1/{path}")).status_code == 401
            assert (await desk.client.get("/api/status")).status_code == 200
            async with service_records(desk.url, "s3cret") as records:
                assert len((await records.letters(LetterQuery())).letters) == 9
            async with service_records(desk.url, "wrong") as records:
                with pytest.raises(DeadletterError, match="refuses"):
                    await records.letters(LetterQuery())
        async with opened(listen="0.0.0.0:0", records=late) as desk:
            answer = await desk.client.get("/api/v1/letters/1")
            assert answer.status_code == 403, "without a token nobody elsewhere reads a letter"
            assert "no token" in problem_of(answer)
    finally:
        await late.close()


async def test_a_page_of_another_site_discards_nothing(both: Both) -> None:
    for path in ("letters/discard", "letters/take-back", "groups/1/notes", "groups/merge", "groups/split"):
        answer = await both.desk.client.post(
            f"/api/v1/{path}", json={"ids": [1]}, headers={"sec-fetch-site": "cross-site"}
        )
        assert answer.status_code == 403, path
    assert (await both.direct.letter("1")).letter.state is LetterState.OPEN


async def test_a_request_that_is_none_is_a_problem(both: Both) -> None:
    client = both.desk.client
    for path in (
        "letters?limit=0", "letters?limit=1001", "letters?after=-1", "letters?state=gone",
        "letters?unknown=1", "letters?header=novalue", "letters?group=abc", "groups?order=x",
        f"letters?where={'1' * 5_000}",
        f"letters/{'x' * 300}", f"letters?after={2**63}",
    ):  # fmt: skip
        answer = await client.get(f"/api/v1/{path}")
        assert answer.status_code == 422, path
        assert problem_of(answer)
    for path, wish in (
        ("letters/discard", {"ids": []}),
        ("letters/discard", {"ids": list(range(CHANGED_AT_ONCE + 1))}),
        ("letters/discard", {"ids": [1], "all": True}),
        ("letters/discard", {"ids": ["x"]}),
        ("letters/discard", {"ids": [1], "who": ""}),
        ("groups/1/notes", {"text": "x" * 4_001}),
        ("groups/merge", {"into": "1"}),
    ):
        answer = await client.post(f"/api/v1/{path}", json=wish)
        assert answer.status_code == 422, wish
        assert "dlqs" not in problem_of(answer)
    answer = await client.patch("/api/v1/groups/1", json={"state": "gone"})
    assert answer.status_code == 422


async def test_the_document_for_programs_tells_of_letters(both: Both) -> None:
    document_ = (await both.desk.client.get("/openapi.json")).json()
    assert {"/api/v1/groups", "/api/v1/letters/{name}", "/api/v1/letters/discard"} <= set(document_["paths"])
    names = {one["name"] for one in document_["paths"]["/api/v1/letters"]["get"]["parameters"]}
    assert {"queue", "header", "where", "after"} <= names


async def test_a_store_that_is_away_is_a_503_and_comes_back(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    path.mkdir()
    late = LateRecords(f"sqlite:///{path}")
    try:
        async with opened(records=late) as desk, service_records(desk.url, None) as records:
            with pytest.raises(StoreError):
                await records.groups(GroupQuery())
            assert (await desk.client.get("/api/v1/groups")).status_code == 503
            path.rmdir()
            assert (await records.groups(GroupQuery())).groups == ()
    finally:
        await late.close()


async def test_a_service_without_a_store_has_no_letters(desk: Desk) -> None:
    answer = await desk.client.get("/api/v1/letters")
    assert answer.status_code == 404
    assert problem_of(answer)


# -- others who answer -----------------------------------------------------------------------------------
@pytest.mark.parametrize("answer", [b'{"groups": [{}], "more": null}', b"<html>", b"[]", b""])
async def test_somebody_else_who_answers_is_no_service(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(answer), answer)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, service_records(f"127.0.0.1:{port}", None) as records:
        with pytest.raises(Unreachable, match="but not a dlq serve"):
            await records.groups(GroupQuery())


async def test_nobody_answers() -> None:
    async with service_records("127.0.0.1:1", None) as records:
        with pytest.raises(Unreachable, match=r"nobody answers at http://127\.0\.0\.1:1"):
            await records.groups(GroupQuery())


# -- questions travel as they are ------------------------------------------------------------------------
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
moments = st.none() | st.integers(0, 2**62)


@given(
    st.builds(
        LetterQuery,
        ids=st.lists(st.integers(0, 2**60), max_size=5).map(tuple),
        vhost=st.none() | words,
        queue=st.none() | words,
        origin=st.none() | words,
        group=moments,
        state=st.none() | st.sampled_from(LetterState),
        cause=st.none() | words,
        error=st.none() | words,
        message_id=st.none() | words,
        letter_id=st.none() | words,
        died_from_ms=moments,
        died_until_ms=moments,
        headers=st.lists(
            st.tuples(words.filter(lambda name: "=" not in name and "\n" not in name), words), max_size=3
        ).map(tuple),
        text=st.none() | words,
        where=st.none() | words,
        order=st.sampled_from(LetterOrder),
        after=moments,
        limit=st.integers(1, 1_000),
    )
)
def test_a_question_about_letters_arrives_as_it_was(query: LetterQuery) -> None:
    sent = httpx.QueryParams(tuple(letter_params(query)))
    told = {name: sent.get_list(name) if name in ("id", "header") else sent[name] for name in sent}
    assert LetterParams.model_validate(told).query() == query


@given(
    st.builds(
        GroupQuery,
        states=st.lists(st.sampled_from(GroupState), unique=True).map(tuple),
        origin=st.none() | words,
        category=st.none() | st.sampled_from(Category),
        text=st.none() | words,
        order=st.sampled_from(GroupOrder),
        limit=st.integers(1, 1_000),
        offset=st.integers(0, 2**60),
    )
)
def test_a_question_about_groups_arrives_as_it_was(query: GroupQuery) -> None:
    sent = httpx.QueryParams(tuple(group_params(query)))
    told = {name: sent.get_list(name) if name == "state" else sent[name] for name in sent}
    assert GroupParams.model_validate(told).query() == query


# -- what a jq program sees ------------------------------------------------------------------------------
def seen(body: bytes, **properties: object) -> object:
    raw = letter(body, **properties)
    return json.loads(
        document(Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=False))
    )


def test_a_program_sees_body_headers_and_properties() -> None:
    assert seen(b' {"a": 1}\n', headers={"h": b"\xff"}, type="t") == {
        "body": {"a": 1},
        "headers": {"h": {"base64": "/w=="}},
        "properties": {"delivery_mode": 2, "type": "t"},
    }
    for body, told in (
        (b"", ""),
        (b"text", "text"),
        (b"\xff", None),
        (b"{broken", "{broken"),
        (b"1 2", "1 2"),
    ):
        assert seen(body) == {"body": told, "headers": {}, "properties": {"delivery_mode": 2}}
    broken = Letter(
        source="q", message=RawMessage(b"\xff\xff", b"[]"), came_by=ExchangeKey(b"", b"q"), redelivered=False
    )
    assert json.loads(document(broken)) == {"body": [], "headers": {}, "properties": {}}
    exact = letter(b'{"n": 1.10, "n": 1e999}')
    shown = document(Letter(source="q", message=exact, came_by=ExchangeKey(b"", b"q"), redelivered=False))
    assert shown.startswith(b'{"body":{"n": 1.10, "n": 1e999},'), "a body that is JSON stays as it stands"
    deep = b"[" * 100_000
    assert seen(deep) == {
        "body": deep.decode(), "headers": {}, "properties": {"delivery_mode": 2},
    }  # fmt: skip
