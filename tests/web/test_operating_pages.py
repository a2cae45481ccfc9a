"""Pages of how it works: what waits, policies, the doctor, topology, the audit; for whom, and safe to see.

About `desk.page.operating.waiting_pages`, `desk.page.operating.vhosts`, `desk.page.operating.policy_pages`,
`desk.page.operating.schedule_drawing`, `desk.page.operating.doctor_pages`,
`desk.page.operating.topology_pages`, `desk.page.operating.audit_pages`, `operations.outlook.letting_out`,
`operations.rulebook.file_rulebook`, `desk.page.taken_back`, `drawing.svg`, `desk.access.route_rights`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.recorded import HOSTILE
from tests.web.conftest import Opened
from tests.web.page_reading import HTML, Whole
from tests.web.whole_desk import FINDING, Everything, MadeUpOutlook, everything

from deadletter import config
from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.core.guards.gate import GateState
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.page.operating import doctor_pages
from deadletter.desk.page.operating.schedule_drawing import SHOWN, draw_schedule
from deadletter.drawing.graph import Arrow, DrawnLine, DrawnNode, DrawnShape
from deadletter.errors import StoreUnreachable, Unreachable
from deadletter.operations.outlook.letting_out import let_out_noted, let_out_words
from deadletter.operations.outlook.outlook import FindingsTold, TopologyTold
from deadletter.operations.rulebook.file_rulebook import FileRulebook
from deadletter.operations.rulebook.rulebook import TreatmentTold
from deadletter.operations.waiting import LetOut, WaitingChoice, Waits
from deadletter.service.telling.service_events import GateChanged

EVIL = f'"><script>x</script>{HOSTILE}'
PAGES = ("/waiting", "/waiting?look=10", "/policies", "/policies?letter=1", "/doctor", "/topology", "/audit")


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Everything]:
    async with everything(tmp_path / "letters.db") as found:
        yield found


@pytest.fixture
async def whole(opened: Opened, behind: Everything) -> AsyncIterator[Whole]:
    async with opened(records=behind.records, replays=behind.replays, more=behind.more) as desk:
        yield Whole(desk, behind)


# -- waiting ---------------------------------------------------------------------------------------------
async def test_what_waits_is_told_without_touching_a_letter(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    look = MadeUpOutlook.waiting

    async def counted(self: MadeUpOutlook, choice: WaitingChoice, *, vhost: str, most: int) -> Any:
        asked.append(most)
        return await look(self, choice, vhost=vhost, most=most)

    monkeypatch.setattr(MadeUpOutlook, "waiting", counted)
    page = await whole.page("/waiting")
    assert "deadletter.delay.60000" in page
    assert "data-still" not in page
    page = await whole.page("/waiting?look=100")
    assert "By origin, cause and time" in page
    assert 'data-still="1"' in page  # a page that looks again by itself would take letters every few seconds
    assert asked == [0, 100]
    await whole.page("/waiting?look=1000000", 422)


async def test_held_letters_are_told_with_their_guard(whole: Whole) -> None:
    why = f"9 of 10 came back <b>{HOSTILE}"
    whole.desk.emit(GateChanged(gate="o", origin="orders", guard="breaker", state=GateState.CLOSED, why=why))
    page = await whole.page("/waiting")
    assert "Held, and why" in page
    assert "9 of 10 came back <b>" in page


async def test_letters_are_let_out_or_parked_after_a_page_that_says_what(whole: Whole) -> None:
    page = await whole.page("/waiting/let-out?origin=orders&waits=held")
    assert "dlq waiting release --origin orders --for held" in page
    assert whole.behind.outlook.let == []
    page = await whole.post("/waiting/let-out", origin="orders", waits="held", do="release")
    assert "sent 3 letters home" in page
    page = await whole.post("/waiting/let-out", waits="delay", do="park", why="no bank")
    assert "parked 3 letters" in page
    assert whole.behind.outlook.let == [
        (WaitingChoice(origin="orders", waits=Waits.HELD), None),
        (WaitingChoice(waits=Waits.DELAY), "no bank"),
    ]
    audit = await whole.page("/audit?action=waiting+parked")
    assert "no bank" in audit
    assert "waiting released" not in audit.split("<tbody")[1]


async def test_all_that_waits_goes_only_where_somebody_says_all(whole: Whole) -> None:
    assert "expected which letters" in await whole.refused("/waiting/let-out", 422, do="release")
    await whole.refused("/waiting/let-out", 422, do="release", waits="forever")
    assert whole.behind.outlook.let == []
    await whole.post("/waiting/let-out", do="release", everything="1")
    assert whole.behind.outlook.let == [(WaitingChoice(), None)]


class AwayStore:
    """A journal that cannot be opened, or that fails when it is written to."""

    def __init__(self, *, opens: bool) -> None:
        self.opens = opens

    async def __call__(self) -> Any:
        if not self.opens:
            raise StoreUnreachable("the store does not answer")
        return self

    async def noted(self, *_told: object) -> None:
        raise StoreUnreachable("the store went away")


@pytest.mark.parametrize("opens", [True, False])
async def test_letters_that_went_are_said_to_have_gone_while_the_store_is_away(
    opened: Opened, opens: bool
) -> None:
    outlook = MadeUpOutlook()
    away = AwayStore(opens=opens)
    done = await let_out_noted(outlook, away, WaitingChoice(origin="orders"), vhost="/", park=None, who="ann")
    assert (done.released, done.parked) == (3, 0)
    done = await let_out_noted(outlook, away, WaitingChoice(origin="orders"), vhost="/", park="x", who="ann")
    assert (done.released, done.parked) == (0, 3)
    async with opened(more=MoreSources(outlook=outlook, journal=away)) as desk:
        for path, body, told in (
            ("release", {"origin": "orders"}, {"released": 3, "parked": 0}),
            ("park", {"origin": "orders", "why": "no use"}, {"released": 0, "parked": 3}),
        ):
            answer = await desk.client.post(f"/api/v1/waiting/{path}", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.json() | told == answer.json()
        form = {"origin": "orders", "do": "release", "vhost": "/"}
        answer = await desk.client.post("/waiting/let-out", data=form, headers=HTML)
        assert answer.status_code == 303, answer.text
    assert [park for _, park in outlook.let] == [None, "x", None, "no use", None]


def test_what_became_of_them_in_words() -> None:
    nothing = LetOut(released=0, parked=0, left=0, failed=0, reasons={}, maybe_twice=0)
    assert let_out_words(nothing, parking=False) == ["nothing that waits was meant"]
    some = LetOut(released=1, parked=2, left=3, failed=4, reasons={"too large": 4}, maybe_twice=5)
    assert let_out_words(some, parking=False) == [
        "sent 1 letter home",
        "parked 2 letters: their origin is not there",
        "3 letters stayed: their origin refused them (is it full?)",
        "4 stayed: too large",
        "after a lost connection up to 5 letters may be there twice, same id",
    ]


# -- policies --------------------------------------------------------------------------------------------
async def test_policies_are_drawn_and_tried_on_a_letter(whole: Whole) -> None:
    page = await whole.page("/policies")
    assert '<svg class="schedule"' in page
    assert "order.placed" in page
    page = await whole.page("/policies?letter=1")
    assert "decides for letter 1" in page
    assert "if it goes back and fails every time" in page
    assert (
        page.count("<strong>retry after ") == 5
    )  # as often as the policy of the file says; then it is parked
    assert "That letter is not here" in await whole.page("/policies?letter=987654")
    assert "That letter is not here" in await whole.page(f"/policies?letter={quote(EVIL[:60])}")


async def test_rows_are_set_changed_and_removed_and_nobody_is_overwritten(whole: Whole) -> None:
    page = await whole.post("/policies/rows", routing_key="order.*", max_retries="1")
    assert "order.*: 1 retry, within seconds" in page
    (version,) = set(
        re.findall(r'value="order\.\*"><input type="hidden" name="version" value="([^"]+)"', page)
    )
    page = await whole.post("/policies/rows", routing_key="order.*", max_retries="7", version=version)
    assert "order.*: 7 retries" in page
    late = await whole.refused("/policies/rows", 412, routing_key="order.*", max_retries="9", version=version)
    assert "it has 7 retries now" in late
    await whole.refused("/policies/rows/remove", 412, routing_key="order.*", version=version)
    assert "the file decides again" in await whole.post("/policies/rows/remove", routing_key="order.*")
    await whole.refused("/policies/rows/remove", 404, routing_key="order.*")
    assert "order.*: the row is back" in await whole.post("/policies/rows/undo", name="order.*")
    assert (await whole.behind.more.rulebook.row("order.*")).max_retries == 7  # type: ignore[union-attr]
    await whole.refused("/policies/rows/undo", 412, name="order.*")
    await whole.refused("/policies/rows/undo", 404, name="never.there")
    for key, retries in (("\x1b", "3"), ("a", "-1"), ("a", "x"), ("a", "9" * 15)):
        await whole.refused("/policies/rows", 422, routing_key=key, max_retries=retries)


def test_a_schedule_is_drawn_to_its_end() -> None:
    told = TreatmentTold(
        error_types=(), retries=4, rungs_ms=((1_000,), (800, 1_200), (7_200_000,)), then="park", text="…"
    )
    drawn = draw_schedule(told)
    assert [one.label for one in drawn.waits] == ["1 s", "≈ 1 s", "2 h", "2 h"]
    assert [one.spread for one in drawn.waits] == [False, True, False, False]
    assert drawn.waits[2].end - drawn.waits[2].x > drawn.waits[0].end - drawn.waits[0].x
    assert all(one.end == after.x for one, after in zip(drawn.waits, drawn.waits[1:], strict=False))
    assert drawn.left_out == 0
    many = draw_schedule(replace(told, retries=1_000))
    assert (len(many.waits), many.left_out) == (SHOWN, 1_000 - SHOWN)
    none = draw_schedule(replace(told, retries=0, rungs_ms=()))
    assert (none.waits, none.left_out, none.then) == ((), 0, "park")


# -- the doctor ------------------------------------------------------------------------------------------
async def test_the_doctor_looks_when_somebody_asks_and_his_findings_stay(whole: Whole) -> None:
    assert "Nobody looked yet" in await whole.page("/doctor")
    page = await whole.post("/doctor/look", vhost="/")
    for said in (
        "1 finding",
        "missing-dlx",
        "queue stock",
        "Letters that are rejected vanish.",
        "rabbitmqadmin",
    ):
        assert said in page, said
    assert "missing-dlx" in await whole.page("/doctor")


async def test_a_long_look_is_told_while_it_goes(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = asyncio.Event()
    looks = 0
    examine = MadeUpOutlook.examine

    async def slow(self: MadeUpOutlook, *, vhost: str) -> FindingsTold:
        nonlocal looks
        looks += 1
        await goes_on.wait()
        return await examine(self, vhost=vhost)

    monkeypatch.setattr(MadeUpOutlook, "examine", slow)
    monkeypatch.setattr(doctor_pages, "PATIENCE_S", 0.05)
    for _ in range(3):
        assert "The doctor looks" in await whole.post("/doctor/look")
    assert looks == 1
    monkeypatch.setattr(doctor_pages, "PATIENCE_S", 30.0)
    goes_on.set()
    assert "missing-dlx" in await whole.post("/doctor/look")
    assert looks <= 2


async def test_a_look_that_fails_says_why(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_self: MadeUpOutlook, *, vhost: str) -> FindingsTold:
        raise Unreachable(f"rabbit at {vhost} did not answer")

    monkeypatch.setattr(MadeUpOutlook, "examine", broken)
    assert "did not answer" in await whole.refused("/doctor/look", 503)
    page = await whole.page("/doctor")
    assert "His last look came to nothing" in page
    assert "did not answer" in page


async def test_nothing_acts_in_a_finding(whole: Whole) -> None:
    bad = replace(
        FINDING, subject=f"queue {EVIL}", path=(EVIL,), why=EVIL, fix=f"rabbitmqctl eval {EVIL}\n{EVIL}"
    )
    whole.behind.outlook.seen = replace(await whole.behind.outlook.examine(vhost="/"), findings=(bad,))
    page = await whole.page("/doctor")
    assert "<script>x</script>" in page  # as text: `page` has read the entities
    assert not re.search(r'data-copy="rabbitmqctl', page)  # what cannot be typed as it stands is not copied


# -- topology --------------------------------------------------------------------------------------------
async def test_the_picture_brings_no_style_of_its_own(whole: Whole) -> None:
    page = await whole.page("/topology")
    assert '<svg xmlns="http://www.w3.org/2000/svg"' in page
    assert 'class="topology"' in page
    assert "orders.dlq" in page
    assert "queue=orders" in page
    assert "That cannot be drawn" in await whole.page("/topology?queue=nothing")


async def test_nothing_acts_in_a_picture(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (
        DrawnNode(id=f"queue {EVIL}", shape=DrawnShape.QUEUE, title=EVIL, lines=(EVIL,)),
        DrawnNode(id=f"exchange {EVIL}", shape=DrawnShape.HOLE, title=EVIL),
    )
    arrow = Arrow(source=nodes[0].id, target=nodes[1].id, line=DrawnLine.DEATH, label=EVIL)

    async def evil(_self: MadeUpOutlook, *, vhost: str, around: tuple[str, ...]) -> TopologyTold:
        return TopologyTold(vhost=EVIL, version="4.3", nodes=nodes, arrows=(arrow,))

    monkeypatch.setattr(MadeUpOutlook, "topology", evil)
    found = await whole.desk.client.get("/topology", headers=HTML)
    assert found.status_code == 200
    assert "<script>x" not in found.text
    assert "Letters vanish here" in found.text
    await whole.page("/topology")


# -- the audit -------------------------------------------------------------------------------------------
async def test_who_did_what_is_found(whole: Whole) -> None:
    page = await whole.page("/audit")
    for said in ("recipe saved", "policy set", "deployed", "order.placed"):
        assert said in page, said
    assert "deployed" not in (await whole.page("/audit?action=policy+set")).split("<tbody")[1]
    assert "recipe saved" not in (await whole.page("/audit?replay=1")).split("<tbody")[1]
    assert "Nothing like that was done" in await whole.page("/audit?who=nobody&since=1h")
    for said in ("since=never", "letter=x", "group=-1"):
        assert "That cannot be looked for" in await whole.page(f"/audit?{said}")
    await whole.page(f"/audit?who={quote(EVIL[:60])}&action={quote(EVIL[:60])}")


async def test_the_audit_goes_on_where_it_ended(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.desk.page.operating.audit_pages.PAGE", 2)
    seen: list[str] = []
    path: str | None = "/audit"
    while path is not None:
        page = await whole.page(path)
        seen += re.findall(r'<tr data-key="(\d+)">', page)
        found = re.search(r'rel="next" href="([^"]+)"', page)
        path = found[1] if found else None
    assert len(seen) == len(set(seen)) > 4


# -- for whom --------------------------------------------------------------------------------------------
TOKENS = {
    "victor": DeskToken(name="victor", role=Role.VIEWER, hash=hashed("dlq_victor")),
    "olga": DeskToken(name="olga", role=Role.OPERATOR, hash=hashed("dlq_olga")),
    "limited": DeskToken(name="limited", role=Role.OPERATOR, hash=hashed("dlq_limited"), queues=("orders",)),
    "elsewhere": DeskToken(
        name="elsewhere", role=Role.ADMIN, hash=hashed("dlq_elsewhere"), vhosts=("other",)
    ),
}
FORMS = (
    ("/replays", {"wish": "/replays/new?q=x"}),
    ("/replays/1/turn", {"to": "pause"}),
    ("/replays/1/pace", {"pace": "all"}),
    ("/replays/recipes", {"name": "x", "program": "."}),
    ("/replays/recipes/delete", {"name": "to-99"}),
    ("/replays/deploys", {"service": "a", "release": "b"}),
    ("/waiting/let-out", {"do": "release", "everything": "1"}),
    ("/policies/rows", {"routing_key": "a", "max_retries": "1"}),
    ("/policies/rows/remove", {"routing_key": "order.placed"}),
)


async def test_who_may_only_look_changes_nothing(opened: Opened, behind: Everything) -> None:
    async with opened(
        records=behind.records, replays=behind.replays, more=behind.more, tokens=lambda: list(TOKENS.values())
    ) as desk:
        headers = {**HTML, "authorization": "Bearer dlq_victor"}
        for path, fields in FORMS:
            answer = await desk.client.post(path, data=fields, headers=headers)
            assert answer.status_code == 403, path
        for path in ("/replays", "/replays/1", "/replays/recipes/to-99", "/policies", "/waiting"):
            page = await desk.client.get(path, headers=headers)
            assert page.status_code == 200, path
            for offer in (
                "New replay",
                "Change the pace",
                "Delete the recipe",
                "Set a row",
                "Let out…",
                "Park…",
            ):
                assert offer not in page.text, (path, offer)
        for path in ("/replays/new?group=1", "/audit", "/waiting/let-out?origin=orders"):
            assert (await desk.client.get(path, headers=headers)).status_code == 403, path
        assert behind.outlook.let == []


async def test_who_sees_some_queues_sees_no_others(opened: Opened, behind: Everything) -> None:
    async with opened(
        records=behind.records, replays=behind.replays, more=behind.more, tokens=lambda: list(TOKENS.values())
    ) as desk:
        headers = {**HTML, "authorization": "Bearer dlq_limited"}
        page = await desk.client.get("/waiting?look=10", headers=headers)
        assert page.status_code == 200
        assert "deadletter.delay.60000" not in page.text
        page = await desk.client.get("/waiting", headers=headers)
        assert "Look into them to see yours" in page.text
        assert "Nothing waits" not in page.text
        for letter, theirs in (("1", True), ("6", False)):
            page = await desk.client.get(f"/policies?letter={letter}", headers=headers)
            assert ("That letter is not here" in page.text) is not theirs, letter
        for fields in ({"everything": "1"}, {"origin": "stock"}, {"origin": "*"}, {"waits": "held"}):
            answer = await desk.client.post(
                "/waiting/let-out", data={"do": "release", **fields}, headers=headers
            )
            assert answer.status_code == 403, fields
        answer = await desk.client.post(
            "/waiting/let-out", data={"do": "release", "origin": "orders"}, headers=headers
        )
        assert answer.status_code == 303
        assert behind.outlook.let == [(WaitingChoice(origin="orders"), None)]
        for path in ("/doctor", "/topology", "/audit"):
            assert (await desk.client.get(path, headers=headers)).status_code == 403, path


async def test_who_sees_another_vhost_sees_nothing_of_this_one(opened: Opened, behind: Everything) -> None:
    async with opened(
        records=behind.records, replays=behind.replays, more=behind.more, tokens=lambda: list(TOKENS.values())
    ) as desk:
        headers = {**HTML, "authorization": "Bearer dlq_elsewhere"}
        for path in ("/waiting", "/waiting?vhost=/", "/doctor", "/topology?vhost=/"):
            assert (await desk.client.get(path, headers=headers)).status_code == 403, path


async def test_a_desk_without_store_or_broker_says_so(opened: Opened) -> None:
    async with opened() as desk:
        for path in (
            "/replays",
            "/replays/recipes",
            "/policies",
            "/audit",
            "/waiting",
            "/doctor",
            "/topology",
        ):
            page = await desk.client.get(path, headers=HTML)
            assert page.status_code == 503, path
            assert "text/html" in page.headers["content-type"]


async def test_without_a_store_the_policies_of_the_file_are_told(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text(
        '[[policies]]\nname = "slowly"\nmatch.queue = "orders"\nretries = 2\n'
    )
    settings = config.load(environment={}, directory=tmp_path, home=tmp_path)
    async with opened(more=MoreSources(rulebook=FileRulebook(lambda: settings))) as desk:
        page = await desk.client.get("/policies", headers=HTML)
        assert page.status_code == 200, page.text
        assert "slowly" in page.text
        assert "has no store" in page.text
        assert "Set a row" not in page.text
        assert "Try it on a letter" not in page.text
        form = {"routing_key": "a", "max_retries": "1"}
        assert (await desk.client.post("/policies/rows", data=form, headers=HTML)).status_code == 503


@pytest.mark.parametrize("path", PAGES)
async def test_who_asks_again_hears_that_nothing_changed(whole: Whole, path: str) -> None:
    page = await whole.desk.client.get(path, headers=HTML)
    again = await whole.desk.client.get(path, headers={**HTML, "if-none-match": page.headers["etag"]})
    assert again.status_code == 304
