"""Pages of letters: found, looked at, repaired, thrown away and taken back; hostile in every field.

About `desk.page.letter_pages`, `desk.page.search_pages`, `desk.page.search_words`, `desk.page.body_views`,
`operations.records.selecting`, `operations.archiving.from_store`, `core.text.safe_text`.
"""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.recorded import HOSTILE, collection, parked, url_of
from tests.web.conftest import Desk, Opened

from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.core.letter.archive_format import ArchivedLetter, ArchiveEnd
from deadletter.core.letter.archive_parser import ArchiveParser
from deadletter.desk.page import body_views
from deadletter.desk.page.body_views import TREE_BYTES, TREE_NODES, tree_html, tree_of, unpacked
from deadletter.desk.page.search_words import read, with_word, without_word, words, written
from deadletter.errors import UsageError
from deadletter.operations.records.store_records import LateRecords, StoreRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.store.letters.letter_store import open_letters

HTML = {"accept": "text/html"}
EVIL = f'"><script>alert(1)</script><img src=x onerror=alert(1)>{HOSTILE}'
ACTS = re.compile(r"<script(?![^>]*nonce=)|<img|\sonerror=[^&]*>", re.IGNORECASE)
_CRLF = re.compile(r"\r?\n")
HIDDEN = ("\u202e", "\x1b", "\x07")


@dataclass(frozen=True, slots=True)
class Stocked:
    desk: Desk
    records: StoreRecords
    ids: dict[str, int]
    """Letters by a word of their body, or by what they are."""

    async def page(self, path: str, status: int = 200) -> str:
        found = await self.desk.client.get(path, headers=HTML)
        assert found.status_code == status, found.text[:2000]
        assert not ACTS.search(found.text), path
        assert not any(hidden in found.text for hidden in HIDDEN), path
        return found.text

    async def post(self, path: str, **fields: str | list[str]) -> str:
        answer = await self.desk.client.post(
            path, data={"back": "/letters?q=state:any", **fields}, headers=HTML
        )
        assert answer.status_code == 303, answer.text
        return await self.page(answer.headers["location"])


@pytest.fixture
async def stocked(opened: Opened, tmp_path: Path) -> AsyncIterator[Stocked]:
    now_ms = int(time.time() * 1000)
    made = collection(now_ms)
    bodies = {
        "evil": json.dumps({EVIL: EVIL}).encode(),
        "deep": b"[" * 10_000 + b"]" * 10_000,
        "bomb": gzip.compress(b"a" * 20_000_000),
        "odd json": b'{"a": 1, "a": 12345678901234567890123, "f": 1.10}',
        "crlf": b"one\r\ntwo\r\n",
        "mixed": b"one\r\ntwo\n",
        "large": b'{"x": "' + b"y" * 300_000 + b'"}',
    }
    for number, (name, body) in enumerate(bodies.items(), 100):
        made.append(
            parked(
                body,
                now_ms=now_ms,
                number=number,
                origin=EVIL if name == "evil" else "odd",
                error=EVIL if name == "evil" else f"Odd{number}",
                message=EVIL,
                stack=EVIL,
                release=EVIL,
                headers={EVIL[:200]: EVIL, "nested": {"a": [EVIL, 1, b"\xff"]}},
                content_type="text/plain" if name in ("crlf", "mixed") else "application/json",
                content_encoding="gzip" if name == "bomb" else "",
                message_id=EVIL[:200],
                type=EVIL[:200],
            )
        )
    url = url_of(tmp_path / "letters.db")
    async with open_letters(url, now_ms=lambda: now_ms) as store:
        await store.ingest(made)
    late = LateRecords(url)
    try:
        replays = LateReplays(late, look_at=None, schemas=BodySchemas)
        async with opened(records=late, replays=replays) as desk:
            records = await late()
            rows = (await records.letters(LetterQuery(limit=100))).letters
            ids = {row.letter_id: row.id for row in rows}
            named = {name: ids[f"{number:032x}"] for number, name in enumerate(bodies, 100)}
            yield Stocked(desk, records, {**named, "order": ids[f"{1:032x}"], "binary": ids[f"{21:032x}"]})
    finally:
        await late.close()


# -- one letter ------------------------------------------------------------------------------------------
async def test_a_letter_tells_its_story(stocked: Stocked) -> None:
    page = await stocked.page(f"/letters/{stocked.ids['order']}")
    for told in (
        "died",
        "parked",
        "stored",
        "PaymentTimeout",
        "tenant",
        "acme",
        "12345678901234567890",
        "m-1",
    ):
        assert told in page
    assert 'class="tree"' in page
    for view, told in (("text", "&#34;order&#34;: 1,"), ("hex", "00000000  7b 22 6f")):
        assert told in await stocked.page(f"/letters/{stocked.ids['order']}?view={view}")


async def test_whatever_is_in_it_is_shown_and_does_nothing(stocked: Stocked) -> None:
    for name, number in stocked.ids.items():
        for view in ("", "tree", "text", "hex"):
            page = await stocked.page(f"/letters/{number}?view={view}")
            assert len(page) < 2_000_000, (name, view)
            assert "[U+202E]" in page or name == "order"


async def test_json_is_shown_as_it_was_written(stocked: Stocked) -> None:
    page = await stocked.page(f"/letters/{stocked.ids['odd json']}")
    assert page.count('<span class="k"><bdi>&#34;a&#34;</bdi></span>') == 2
    assert "12345678901234567890123" in page
    assert "1.10" in page


async def test_a_zip_bomb_is_unpacked_as_far_as_is_shown(stocked: Stocked) -> None:
    page = await stocked.page(f"/letters/{stocked.ids['bomb']}")
    assert "it has more than 4,000,000 bytes" in page


async def test_a_large_body_comes_in_parts(stocked: Stocked) -> None:
    number = stocked.ids["large"]
    page = await stocked.page(f"/letters/{number}?view=text&at=65536")
    assert "from byte 65,536 of 300,009" in page
    assert 'at=0#body">Before' in page
    assert "at=131072#body" in page
    beyond = await stocked.page(f"/letters/{number}?view=hex&at=9999999")
    assert "from byte 300,008" in beyond
    assert (await stocked.desk.client.get(f"/letters/{number}?at=-1", headers=HTML)).status_code == 422


async def test_the_raw_body_is_saved_and_never_shown(stocked: Stocked) -> None:
    answer = await stocked.desk.client.get(f"/letters/{stocked.ids['evil']}/raw")
    assert answer.content == json.dumps({EVIL: EVIL}).encode()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_fifty_megabytes_are_looked_at_in_parts(stocked: Stocked) -> None:
    now_ms = int(time.time() * 1000)
    large = parked(b"z" * 50_000_000, now_ms=now_ms, number=900, content_type="text/plain")
    await stocked.records.opened.ingest([large])
    number = (await stocked.records.letters(LetterQuery(letter_id=f"{900:032x}"))).letters[0].id
    page = await stocked.page(f"/letters/{number}")
    assert len(page) < 400_000
    assert "of 50,000,000" in page
    assert "It cannot be edited here" in await stocked.page(f"/letters/{number}/edit")


# -- editing ---------------------------------------------------------------------------------------------
def fields(page: str) -> dict[str, str]:
    """What a browser would send of the edit form: every end of a line is CRLF, whatever it was."""
    areas = dict(re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL))
    base = re.search(r'name="base" value="(\d*)"', page)
    assert base
    sent = {name: _CRLF.sub("\r\n", unescape(said)) for name, said in areas.items()}
    return {**sent, "base": base[1]}


async def test_a_letter_is_repaired_by_hand_and_the_original_stays(stocked: Stocked) -> None:
    number = stocked.ids["order"]
    sent = fields(await stocked.page(f"/letters/{number}/edit"))
    sent["body"] = sent["body"].replace('"order": 1', '"order": 111')
    tried = await stocked.desk.client.post(f"/letters/{number}/edit", data={**sent, "do": "preview"})
    assert tried.status_code == 200
    assert "+ .body.order: 111" in tried.text
    assert "repaired by hand" not in await stocked.page(f"/letters/{number}")
    page = await stocked.post(f"/letters/{number}/edit", **sent, do="save")
    assert "kept as a draft, 1 change" in page
    assert "+ .body.order: 111" in page
    assert b'"order": 1,' in await stocked.records.body(str(number))
    stale = await stocked.desk.client.post(f"/letters/{number}/edit", data={**sent, "do": "save"})
    assert stale.status_code == 422
    assert "somebody else changed the draft" in stale.text
    assert "back to the original" in await stocked.post(f"/letters/{number}/edit", do="drop")


@pytest.mark.parametrize("name", ["order", "crlf", "odd json", "evil"])
async def test_what_nobody_touched_stays_byte_for_byte(stocked: Stocked, name: str) -> None:
    number = stocked.ids[name]
    page = (await stocked.desk.client.get(f"/letters/{number}/edit", headers=HTML)).text
    answer = await stocked.desk.client.post(f"/letters/{number}/edit", data={**fields(page), "do": "preview"})
    assert "Nothing: it would go as it is." in answer.text


async def test_what_a_field_would_change_is_not_typed(stocked: Stocked) -> None:
    page = await stocked.page(f"/letters/{stocked.ids['mixed']}/edit")
    assert "Not by typing" in page
    assert 'name="body"' not in page


async def test_a_bad_edit_says_why_and_keeps_what_was_typed(stocked: Stocked) -> None:
    number = stocked.ids["order"]
    sent = fields(await stocked.page(f"/letters/{number}/edit"))
    for wrong in ({"head": "{broken"}, {"program": ".body | <script>"}):
        answer = await stocked.desk.client.post(
            f"/letters/{number}/edit", data={**sent, **wrong, "do": "save"}
        )
        assert answer.status_code == 422
        assert "That cannot be kept" in answer.text
        assert next(iter(wrong.values())).replace("<", "&lt;").replace(">", "&gt;") in answer.text
    program = await stocked.desk.client.post(
        f"/letters/{number}/edit", data={**sent, "program": ".body.order = 5", "do": "preview"}
    )
    assert "+ .body.order: 5" in program.text


# -- search ----------------------------------------------------------------------------------------------
async def test_letters_are_found_by_qualifiers_words_and_jq(stocked: Stocked) -> None:
    for asked, told in (
        ("q=header.tenant:acme", "m-1"),
        ("q=origin:orders", "5 letters"),
        ("q=apples", "KeyError"),
        ("where=.body.order==3", "m-3"),
        ("q=" + quote('error:"no answer from bank-7"'), "m-5"),
    ):
        assert told in await stocked.page(f"/letters?{asked}")
    assert "m-2" not in await stocked.page("/letters?q=header.tenant:acme")
    assert "No letters like that" in await stocked.page("/letters?q=origin:nowhere")


async def test_a_search_that_is_none_says_what_there_is(stocked: Stocked) -> None:
    for said in ("quee:x", "since:never", "group:x", "state:gone", "queue:"):
        page = await stocked.page(f"/letters?q={quote(said)}")
        assert "That search is none" in page
    assert "That search is none" in await stocked.page(f"/letters?where={quote('.body |')}")


async def test_facets_lead_on_and_pieces_can_be_taken_away(stocked: Stocked) -> None:
    page = await stocked.page("/letters?q=origin:orders")
    assert 'aria-label="Without origin:orders"' in page
    assert "By group" in page
    group = re.search(r'href="/letters\?q=([^"]*group%3A\d+)"', page)
    assert group
    assert "5 letters" in await stocked.page(f"/letters?q={group[1]}")
    assert "How do they divide?" in await stocked.page("/letters?q=header.tenant:acme")
    assert "By origin" in await stocked.page("/letters?q=header.tenant:acme&facets=1")


async def test_some_letters_are_discarded_and_taken_back(stocked: Stocked) -> None:
    some = [str(stocked.ids["order"]), str(stocked.ids["evil"])]
    page = await stocked.post("/letters/discard", id=some, why="<b>tried</b>")
    assert "2 letters discarded" in page
    number = re.search(r'name="discard" value="(\d+)"', page)
    assert number
    page = await stocked.post("/letters/take-back", discard=number[1])
    assert "2 letters taken back" in page
    told = await stocked.page(f"/letters/{stocked.ids['order']}")
    assert "&lt;b&gt;tried" in told


async def test_the_whole_selection_and_not_only_the_page_is_taken(stocked: Stocked) -> None:
    page = await stocked.post("/letters/discard", whole="1", q="origin:orders", id="999")
    assert "5 letters discarded" in page
    left = await stocked.records.letters(LetterQuery(origin="orders", state=LetterState.DISCARDED))
    assert len(left.letters) == 5
    for path in ("/letters/discard", "/letters/selected"):
        answer = await stocked.desk.client.post(path, data={"do": "replay"}, headers=HTML)
        assert answer.status_code == 422


async def test_a_selection_goes_on_to_a_replay_or_a_file(stocked: Stocked) -> None:
    async def led(**said: str | list[str]) -> str:
        answer = await stocked.desk.client.post("/letters/selected", data=said)
        assert answer.status_code == 303
        return str(answer.headers["location"])

    assert await led(do="replay", id=["1", "2"]) == "/replays/new?id=1&id=2"
    assert await led(do="replay", whole="1", q="origin:orders") == "/replays/new?q=origin%3Aorders"
    where = await led(do="export", whole="1", q="origin:orders")
    answer = await stocked.desk.client.get(where)
    parser = ArchiveParser()
    pieces = [*parser.feed(answer.content), *parser.finish()]
    assert len([one for one in pieces if isinstance(one, ArchivedLetter)]) == 5
    assert isinstance(pieces[-1], ArchiveEnd)
    one = await stocked.desk.client.get(await led(do="export", id=[str(stocked.ids["order"])]))
    assert one.headers["content-disposition"].startswith("attachment")


# -- pure ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "said",
    [
        "queue:orders foo",
        'error:"a b" header.x:1',
        '"as it stands" x',
        'queue:"a\\"b"',
        "a::b",
        ":",
        '"',
        'x"',
    ],
)
def test_a_search_is_written_as_it_was_read(said: str) -> None:
    assert words(written(words(said))) == words(said)


def test_a_search_becomes_a_question() -> None:
    query = read('queue:q origin:o id:1 id:2 since:1h header.a:b* "x y" z state:any', now_ms=7_200_000)
    assert (query.queue, query.origin, query.ids, query.state) == ("q", "o", (1, 2), None)
    assert (query.died_from_ms, query.headers, query.text) == (3_600_000, (("a", "b*"),), '"x y" z')
    assert with_word("queue:a x", "queue", "b c") == 'x queue:"b c"'
    assert without_word("queue:a x", 0) == "x"
    for wrong in ("x" * 3_000, "nope:1"):
        with pytest.raises(UsageError):
            read(wrong, now_ms=0)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", '{"a"}', "[1 2]", "nul", "[}", '"a":1', "{1:2}", '{"a":}', "[,1]", "[1]2", "\x00"],
)
def test_what_is_no_json_has_no_tree(text: str) -> None:
    assert tree_of(text) is None


def test_a_tree_is_bounded_in_depth_and_number() -> None:
    deep = tree_of("[" * 100_000 + "]" * 100_000)
    assert deep is not None
    assert len(tree_html(deep)) < 50_000
    wide = tree_of("[" + "1," * 200_000 + "1]")
    assert wide is not None
    assert wide.left_out
    assert len(wide.children) < TREE_NODES
    assert "… more" in tree_html(wide)


def test_encodings_are_unpacked_or_said() -> None:
    assert unpacked(zlib.compress(b"x"), "deflate").data == b"x"
    assert unpacked(b"x", "br").note.endswith("not unpacked here")
    assert "and is not" in unpacked(b"x", "gzip").note
    assert unpacked(b"x", "").note == ""
    assert body_views.text_of("é".encode()[:1]) == ""
    assert body_views.text_of(b"\xff" + b"x" * 10) is None
    assert TREE_BYTES == 1_000_000
