"""The frame of the page: safe headers, files that may be kept, what was just said, errors as pages.

About `desk.page.frame`, `desk.page.pages`, `desk.page.sections`, `desk.page.static_files`, `desk.page.said`,
`desk.page.forms`, `desk.page.whoever`, `desk.page.shown`, `desk.page.charts`, `desk.problems`.
"""

from __future__ import annotations

import re

import pytest
from markupsafe import Markup
from tests.web.conftest import Desk

from deadletter.core.access.rights import Role
from deadletter.core.grouping.group_states import GroupState
from deadletter.desk.access.person import OWNER, Person
from deadletter.desk.page import charts, shown
from deadletter.desk.page.forms import Form
from deadletter.desk.page.said import COOKIE, Said, as_it_was, back_to, before
from deadletter.desk.page.sections import SECTIONS, section_at
from deadletter.desk.page.static_files import static_files, static_url
from deadletter.desk.page.whoever import Mays
from deadletter.errors import UsageError

HTML = {"accept": "text/html"}
MOST_BYTES = 100_000


async def test_a_page_says_what_it_may_load(desk: Desk) -> None:
    page = await desk.client.get("/", headers=HTML)
    policy = page.headers["content-security-policy"]
    nonces = set(re.findall(r"'nonce-([^']+)'", policy))
    assert len(nonces) == 1
    assert set(re.findall(r'nonce="([^"]+)"', page.text)) == nonces
    for wanted in ("default-src 'none'", "require-trusted-types-for 'script'", "frame-ancestors 'none'"):
        assert wanted in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?![^>]*nonce=)|\sstyle=|\son[a-z]+=", page.text)


async def test_a_nonce_is_used_once(desk: Desk) -> None:
    one, two = [(await desk.client.get("/")).headers["content-security-policy"] for _ in range(2)]
    assert one != two


async def test_who_asks_again_hears_that_nothing_changed(desk: Desk) -> None:
    page = await desk.client.get("/")
    again = await desk.client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert again.status_code == 304
    assert not again.content


async def test_all_scripts_and_styles_are_small() -> None:
    assert sum(map(len, static_files().values())) < MOST_BYTES


async def test_static_files_are_kept_as_long_as_they_are_the_same(desk: Desk) -> None:
    page = await desk.client.get("/")
    for url in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        found = await desk.client.get(url)
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
    old = await desk.client.get("/static/0000/desk.css")
    assert old.headers["cache-control"] == "no-store"
    assert (await desk.client.get("/static/0000/../frame.py")).status_code == 404
    with pytest.raises(KeyError):
        static_url("none.css")


async def test_what_is_not_there_is_a_page_for_people_and_a_problem_for_programs(desk: Desk) -> None:
    page = await desk.client.get("/nothing/<b>", headers=HTML)
    assert page.status_code == 404
    assert "text/html" in page.headers["content-type"]
    assert "&lt;b&gt;" in page.text or "%3Cb%3E" in page.text
    for path in ("/nothing", "/api/nothing"):
        told = await desk.client.get(path, headers={"accept": "application/json"})
        assert told.headers["content-type"] == "application/problem+json"
    told = await desk.client.get("/api/nothing", headers=HTML)
    assert told.headers["content-type"] == "application/problem+json"


async def test_the_colours_are_chosen_without_scripts(desk: Desk) -> None:
    answer = await desk.client.post("/theme", data={"theme": "dark", "back": "/groups?state=muted"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/groups?state=muted")
    page = await desk.client.get("/")
    assert 'data-theme="dark"' in page.text
    answer = await desk.client.post("/theme", data={"theme": "<b>", "back": "//elsewhere.example/"})
    assert answer.headers["location"] == "/"
    assert 'data-theme="dark"' in (await desk.client.get("/")).text


async def test_a_form_of_another_sites_page_is_refused(desk: Desk) -> None:
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://elsewhere.example"}):
        answer = await desk.client.post("/sweeps", data={"back": "/"}, headers=headers)
        assert answer.status_code == 403
    assert desk.office.asked == []


async def test_a_sweep_is_asked_for_and_told_once(desk: Desk) -> None:
    answer = await desk.client.post("/sweeps", data={"back": "/"})
    assert answer.status_code == 303
    assert desk.office.asked == [[]]
    page = await desk.client.get("/")
    assert "1 queue swept: 3 letters moved" in page.text
    assert COOKIE not in desk.client.cookies


def test_what_was_said_comes_back_or_nothing_does() -> None:
    said = Said(text="<b>\u202e", discard=7, groups=(as_it_was(3, GroupState.SNOOZED, 99),))
    assert Said.unpacked(said.packed()) == said
    for forged in ("", "x", "e30=", "W10=", "eyJ0IjoxfQ==", "!" * 9_000):
        assert Said.unpacked(forged) is None
    assert before("3:snoozed:99") == (3, GroupState.SNOOZED, 99)
    assert before("3:gone:0") is None
    for elsewhere in ("//x.example", "/\\x.example", "https://x.example", "", "javascript:alert(1)"):
        assert back_to(elsewhere).headers["location"] == "/"


def test_a_form_is_bounded() -> None:
    form = Form((("a", "1"), ("a", "x"), ("b", "y" * 20)))
    assert form.text("a") == "1"
    assert form.text("none") == ""
    for wrong in (lambda: form.numbers("a"), lambda: form.text("b", 10)):
        with pytest.raises(UsageError):
            wrong()


def test_every_section_is_found_by_its_pages() -> None:
    assert len({one.key for one in SECTIONS}) == len(SECTIONS)
    assert section_at("/") == SECTIONS[0]
    found = section_at("/groups/12")
    assert found is not None
    assert found.name == "Groups"
    assert section_at("/groupsx") is None


def test_templates_ask_what_somebody_may() -> None:
    assert Mays(OWNER).discard
    assert not Mays(Person(name="v", role=Role.VIEWER)).discard
    with pytest.raises(AttributeError):
        _ = Mays(OWNER).fly


def test_nothing_hides_in_a_value() -> None:
    assert shown.value("a\u202eb<i>") == Markup('<bdi>a<span class="odd">[U+202E]</span>b&lt;i&gt;</bdi>')
    assert shown.block("a\nb\x07") == Markup('a\nb<span class="odd">[U+0007]</span>')
    assert shown.finalized("x\u200by\n") == "x[U+200B]y[U+000A]"
    assert shown.finalized(None) == ""
    assert "9 characters" in shown.value("123456789", 5)
    assert shown.command_line("show", "a b") == "dlq show 'a b'"
    assert shown.command_line("show", "a\x1b") == ""
    assert shown.query_text({"q": "a b", "none": None}, state=["x", "y"]) == "?q=a+b&state=x&state=y"


def test_times_and_sizes_are_told_as_people_say_them() -> None:
    assert shown.ago(0, 61_000) == "1 min ago"
    assert shown.ago(7_200_000, 0) == "in 2 h"
    assert shown.ago(5, 5) == "now"
    assert shown.iso_time(10**20) == ""
    assert shown.exact_time(0) == "1970-01-01 00:00:00 UTC"
    assert [shown.size(one) for one in (1, 1_500, 2_000_000, 5_000_000_000)] == [
        "1 bytes",
        "1.5 kB",
        "2.0 MB",
        "5000.0 MB",
    ]


def test_charts_hold_what_is_drawn() -> None:
    drawn = charts.bars([0, 1, 1_000])
    assert drawn.path.count("M") == 2
    assert drawn.most == 1_000
    assert charts.bars([]).path == ""
    assert charts.line([1]).line == ""
    assert charts.line([0, 0, 0]).line.count("L") == 2
