"""Groups and letters on a terminal: aligned, cut to its width, and nothing foreign acts on it.

About `cli.letters.groups_text`, `cli.letters.show_text`, `cli.letters.small_pictures`, `cli.letters.asking`,
`cli.letters.letter_filters`, `cli.letters.letters_command`, `cli.terminal.widths`, `cli.terminal.progress`,
`core.letter.moments`.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import HOSTILE, parked
from tests.unit.operations.records.test_letter_told import NOW, told

from deadletter.cli.letters.asking import age_text, at_text
from deadletter.cli.letters.groups_text import detail_text, letters_table, page_text, why_text
from deadletter.cli.letters.letter_filters import LetterFilters, StateFilters
from deadletter.cli.letters.letters_command import facets_text, found_text
from deadletter.cli.letters.record_options import ChangeWish
from deadletter.cli.letters.show_text import body_text, indented, letter_text
from deadletter.cli.letters.small_pictures import sparkline
from deadletter.cli.terminal.progress import GrowingCount
from deadletter.cli.terminal.widths import cells, fit
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterState
from deadletter.core.letter.moments import future_ms, past_ms
from deadletter.core.text.safe_text import is_plain
from deadletter.errors import UsageError
from deadletter.operations.records.letter_told import body_told
from deadletter.operations.records.records import GroupLine, GroupPage, LettersFound
from deadletter.store.letters.letter_views import (
    Facet,
    Facets,
    GroupDetail,
    GroupNote,
    GroupTag,
    LetterRow,
)

GROUP = GroupLine(
    id=12,
    key="0123abcd",
    origin="orders",
    title="PaymentTimeout: no answer from <host> after <duration>, and so on and on and on for a while",
    culprit="orders/pay:charge",
    error_type="PaymentTimeout",
    category=Category.TRANSIENT,
    category_by=By.GUESS,
    category_why="its error is a PaymentTimeout",
    state=GroupState.OPEN,
    until_ms=None,
    first_ms=NOW - 3 * 86_400_000,
    last_ms=NOW - 120_000,
    total=4_210,
    open=1_204,
    reopened_ms=None,
    reopened_release="",
    hours=(0,) * 20 + (1, 5, 100, 0),
    release="1.4.2",
)
EVIL = replace(
    GROUP, id=13, origin=HOSTILE, title=f"{HOSTILE}\n99 open\t{HOSTILE}", culprit=HOSTILE, release=HOSTILE
)
ROW = LetterRow(
    id=812,
    letter_id="ab" * 16,
    vhost="/",
    queue="deadletter.parked",
    origin="orders",
    group=12,
    state=LetterState.OPEN,
    cause="retries-exhausted",
    attempt=3,
    died_ms=NOW - 5_000,
    stored_ms=NOW,
    bytes=1_234,
    message_id="",
    type="",
    routing_key="",
    error="PaymentTimeout: no answer from bank-7 after 30 s, and so on and on and on",
    copies=0,
)


def safe(text: str) -> bool:
    return all(is_plain(line) for line in text.split("\n"))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_list_of_groups_fits_the_terminal(width: int) -> None:
    shown = page_text(GroupPage(groups=(GROUP, EVIL), more=25), now_ms=NOW, width=width, blocks=True)
    assert safe(shown)
    rows = shown.split("\n")
    assert len(rows) == 1 + 2 * 2 + 1, "whatever stands in a title, a group has two lines"
    if width >= 80:
        assert max(map(cells, rows)) <= width
    assert rows[1].startswith("12  1,204/4,210  ")
    assert "2 min" in rows[1]
    assert "3 d" in rows[1]
    assert rows[-1] == "there are more: --after 25"


def test_in_a_pipe_nothing_is_cut() -> None:
    shown = page_text(GroupPage(groups=(GROUP,), more=None), now_ms=NOW, width=None, blocks=True)
    assert GROUP.title in shown
    assert "orders  in orders/pay:charge  transient  release 1.4.2" in shown


def test_a_state_that_is_not_open_is_said() -> None:
    def second(**change: object) -> str:
        group = replace(GROUP, **change)  # type: ignore[arg-type]
        page = GroupPage(groups=(group,), more=None)
        return page_text(page, now_ms=NOW, width=None, blocks=True).split("\n")[2].strip()

    assert second(state=GroupState.MUTED).startswith("MUTED  orders")
    assert second(state=GroupState.SNOOZED, until_ms=NOW).startswith("SNOOZED until 2025-06-15 15:06:40 UTC")
    assert second(reopened_ms=NOW - 60_000, reopened_release="1.5").endswith(
        "FAILS AGAIN (1 min, since release 1.5)"
    )
    assert page_text(GroupPage(groups=(), more=None), now_ms=NOW, width=80, blocks=True).startswith(
        "no groups"
    )


def test_one_group_whole_and_why_it_is_one() -> None:
    detail = GroupDetail(
        group=EVIL,
        parts=(("origin", HOSTILE, True), ("frame", "httpx/_client:send", False), ("mask", "host", False)),
        notes=(GroupNote(at_ms=NOW, author=HOSTILE, text=f"first\n{HOSTILE}"),),
        tags=(GroupTag(kind="release", value=HOSTILE, letters=3, first_ms=NOW, last_ms=NOW),),
        minutes=(),
        samples=(replace(ROW, error=HOSTILE, origin=HOSTILE),),
        merged=("ffff",),
    )
    assert safe(detail_text(detail, now_ms=NOW))
    why = why_text(detail)
    assert safe(why)
    marked = [line for line in why.split("\n")[2:] if "●" in line]
    assert len(marked) == 1
    assert "origin" in marked[0]
    assert "*" in why_text(detail, ascii_only=True)
    assert "ffff" in why


def test_letters_one_a_line_that_fits() -> None:
    rows = (
        ROW,
        replace(ROW, id=9, copies=2, state=LetterState.DISCARDED, origin="x" * 200),
        replace(ROW, id=10, error=f"{HOSTILE}\n{HOSTILE}", origin=HOSTILE),
    )
    shown = letters_table(rows, now_ms=NOW, width=80)
    assert safe(shown)
    assert len(shown.split("\n")) == 4
    assert max(map(cells, shown.split("\n"))) <= 80
    assert "DISCARDED (3 copies) Payment" in letters_table(rows, now_ms=NOW, width=None)


def test_a_search_that_was_cut_short_says_so_and_how_to_go_on() -> None:
    found = LettersFound(letters=(ROW,), more=700, looked_at=12_000, unanswered=2)
    shown = found_text(found, limit=25, now_ms=NOW, width=80)
    assert "cut short: 12,000 letters looked into; go on with --after 700" in shown
    assert "of 2 letters the jq program could say nothing" in shown
    full = found_text(replace(found, unanswered=0), limit=1, now_ms=NOW, width=80)
    assert full.endswith("there are more: --after 700")
    assert (
        found_text(
            LettersFound(letters=(), more=None, looked_at=0, unanswered=0), limit=1, now_ms=NOW, width=80
        )
        == "no letters like that"
    )


def test_facets() -> None:
    some = (Facet(value=HOSTILE, letters=1_200), Facet(value="", letters=3))
    shown = facets_text(Facets(by={"queue": some}, exact=False, total=1_203))
    assert safe(shown)
    assert shown.startswith("the newest 1,203 letters that match, by\nqueue\n   1,200  boom")
    assert shown.endswith("3      (none)")


# -- one letter ------------------------------------------------------------------------------------------
def test_a_hostile_letter_is_shown_in_lines_of_its_own() -> None:
    evil = parked(
        b'{"a": "\x1b[2J\xe2\x80\xae"}',
        now_ms=NOW,
        number=1,
        error=HOSTILE,
        message=f"{HOSTILE}\nletter 1: all is well",
        stack=HOSTILE,
        headers={f"{HOSTILE}\nproperties": f"{HOSTILE}\n   forged  line"},
        message_id=HOSTILE,
    )
    shown = letter_text(told(evil.letter), now_ms=NOW, body_bytes=4_000)
    assert safe(shown)
    assert "\nletter 1" not in shown, "a line of an error does not begin as one of ours"
    assert not [line for line in shown.split("\n") if line.strip().startswith("forged")]
    assert "\n\nproperties\n" in shown


def test_a_frame_of_the_application_is_marked() -> None:
    shown = letter_text(told(parked(b"{}", now_ms=NOW, number=1).letter), now_ms=NOW, body_bytes=4_000)
    assert "     ► orders/pay:charge    raise PaymentTimeout" in shown
    assert "       httpx/_client:send    raise exc" in shown
    plain = letter_text(
        told(parked(b"{}", now_ms=NOW, number=1).letter), now_ms=NOW, body_bytes=4_000, ascii_only=True
    )
    assert "     > orders/pay:charge" in plain


def test_headers_of_the_application_come_first() -> None:
    shown = letter_text(
        told(parked(b"{}", now_ms=NOW, number=1, headers={"tenant": "acme"}).letter), now_ms=NOW, body_bytes=0
    )
    assert "\nheaders\n   tenant  " in shown


def test_json_keeps_every_token() -> None:
    body = b'{"n":12345678901234567890.10,"n":2,"empty":{},"none":[ ],"s":"a\\"b{,}:","l":[1,{"x":null}]}'
    assert body_text(body_told(body), 4_000).split("\n") == [
        "   {",
        '     "n": 12345678901234567890.10,',
        '     "n": 2,',
        '     "empty": {},',
        '     "none": [],',
        '     "s": "a\\"b{,}:",',
        '     "l": [',
        "       1,",
        "       {",
        '         "x": null',
        "       }",
        "     ]",
        "   }",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_indented_json_is_the_same_json(value: object) -> None:
    assert json.loads(indented(json.dumps(value))) == value
    assert json.loads(indented(json.dumps(value, ensure_ascii=False))) == value


@given(st.text())
def test_whatever_begins_like_json_ends(text: str) -> None:
    assert isinstance(indented("{" + text), str)


def test_text_hex_and_what_is_left_out() -> None:
    assert body_text(body_told(b"{broken\n\tx"), 4_000) == "   {broken\n       x"
    assert (
        body_text(body_told(b"abcdef"), 3)
        == "   abc\n   … 3 bytes more (--body-bytes, or --raw for all of it)"
    )
    assert body_text(body_told(b"\x00\xffAB"), 4_000).split("\n") == [
        f"   000000  {'00 ff 41 42':<48} ..AB",
    ]
    assert "more" in body_text(body_told(b"\xff" * 100_000), 65_536)
    assert body_text(body_told(b""), 4_000).strip() == ""


# -- small things ----------------------------------------------------------------------------------------
def test_a_small_picture() -> None:
    assert sparkline([0, 1, 50, 100], width=4) == "·▁▄█"
    assert sparkline([0, 1, 50, 100], width=4, blocks=False) == ".:+@"
    assert sparkline([1, 0, 0, 1] * 6, width=12) == "█" * 12, "two hours a block"
    assert sparkline([0] * 24, width=24) == "·" * 24
    assert sparkline([-3, 5], width=2) == "·█"


def test_wide_characters_take_two_columns() -> None:
    assert cells("注文e\u0301") == 5
    assert fit("注文注文", 5) == "注文…"
    assert cells(fit("注文注文", 4)) <= 4
    assert fit("abc", 3) == "abc"
    assert fit("abcd", 3) == "ab…"


@given(st.text(max_size=30), st.integers(0, 20))
def test_nothing_is_wider_than_it_may_be(text: str, width: int) -> None:
    assert cells(fit(text, width)) <= width


def test_times_and_ages() -> None:
    ages = [age_text(NOW - ago, NOW) for ago in (0, 90_000, 5_400_000, -5)]
    assert ages == ["now", "1 min", "1.5 h", "now"]
    assert at_text(None) == "–"
    assert at_text(2**62) == f"{2**62} ms"
    assert past_ms("--since", "2h", NOW) == NOW - 7_200_000
    assert past_ms("--since", "2025-06-15T15:06:40", NOW) == NOW
    assert past_ms("--since", "2025-06-15T17:06:40+02:00", NOW) == NOW
    assert future_ms("--until", "4h", NOW) == NOW + 14_400_000
    with pytest.raises(UsageError, match="--since: expected a span such as 2h"):
        past_ms("--since", "yesterday", NOW)


def test_whoever_asks_has_a_name() -> None:
    assert "@" in ChangeWish().named
    assert ChangeWish(who="anna").named == "anna"
    with pytest.raises(UsageError, match="--as"):
        assert ChangeWish(who=" ").named


def test_filters_that_say_nothing() -> None:
    assert LetterFilters().says_nothing
    assert StateFilters().says_nothing
    assert not StateFilters(state="open").says_nothing
    assert not LetterFilters(older_than="30d").says_nothing


def test_a_count_that_no_terminal_shows_costs_nothing() -> None:
    with GrowingCount("looking", 3) as shown:
        shown.count(2)
