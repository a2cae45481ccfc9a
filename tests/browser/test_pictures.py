"""Pictures of each page for the style guide: taken where DLQ_PICTURES=1, into docs/design/pictures.

About `desk.page.pages`, `desk.page.frame`.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser
from tests.browser.conftest import Seat, seated
from tests.paths import ROOT
from tests.web.conftest import Opened

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import ReplayStage
from deadletter.operations.replays.replay_told import DraftWish, EditWish, ReplayWish
from deadletter.operations.replays.store_replays import StoreReplays
from deadletter.store.replays.recipe_table import Recipe
from deadletter.store.replays.replay_store import ReplayStore

FOLDER = ROOT / "docs/design/pictures"
PICTURED = {
    "overview": "/",
    "groups": "/groups",
    "group": "/groups/2",
    "letters": "/letters?q=origin:orders",
    "letter": "/letters/3",
    "edit": "/letters/3/edit",
    "replays": "/replays",
    "replay-new": "/replays/new?group=2",
    "replay": "/replays/1",
    "recipes": "/replays/recipes?letter=3",
    "deploys": "/replays/deploys",
    "waiting": "/waiting?look=100",
    "policies": "/policies?letter=3",
    "doctor": "/doctor",
    "topology": "/topology",
    "audit": "/audit",
}
"""By the name of the picture."""
LOOKS: dict[str, dict[str, Any]] = {
    "light": {
        "viewport": {"width": 1440, "height": 900},
        "color_scheme": "light",
        "device_scale_factor": 0.7,
    },
    "phone": {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark", "device_scale_factor": 0.8},
}
MOST_BYTES = 150_000


async def worked(seat: Seat) -> None:
    """Something was done, so that there is something to see: a repair, a replay, a release, a look."""
    client, store = seat.desk.client, ReplayStore(seat.records.opened)
    replays = StoreReplays(seat.records.opened, seat.records.programs)
    await replays.save_draft(
        "3", DraftWish(edit=EditWish(program='.body.customer.tier = "gold"')), who="anna"
    )
    await replays.save_recipe(
        Recipe(name="gold", program='.body.customer.tier = "gold"', note="they paid for it"), who="anna"
    )
    await replays.deployed("shop", "3.2.0", who="pipeline")
    wish = ReplayWish(selection=LetterQuery(origin="orders"), resolves=True)
    number = (await replays.start(wish, who="anna", why="release 3.2.0")).id
    while await store.freeze_some(number):
        pass
    now_ms = int(time.time() * 1000)
    await store.leased("desk-1", now_ms=now_ms, lease_ms=600_000)
    for letters, step in (
        (1, ReplayStage(began_ms=now_ms)),
        (10, ReplayStage(number=1, began_ms=now_ms, gone=1)),
    ):
        some = await store.next_portion(number, letters, stage=step)
        rows = [one.row for one in some]
        await store.settled(number, rows[:9], dict.fromkeys(rows[9:], "the queue is full"), at_ms=now_ms)
        await store.done_by_consumer([(one.letter_id, number, now_ms) for one in some[:5]])
    await store.tell(number, "step 2: the outcome of 4 is not known yet")
    await client.post("/doctor/look", data={"back": "/doctor"})


@pytest.mark.skipif(os.environ.get("DLQ_PICTURES") != "1", reason="DLQ_PICTURES=1 takes the pictures anew")
async def test_pictures_are_taken(opened: Opened, chromium: Browser, tmp_path: Path) -> None:
    FOLDER.mkdir(exist_ok=True)
    for look, said in LOOKS.items():
        async with seated(opened, chromium, tmp_path / f"{look}.db", **said) as seat:
            await worked(seat)
            for name, path in PICTURED.items():
                await seat.open(path)
                await seat.page.screenshot(path=FOLDER / f"{name}-{look}.png")


def test_every_page_has_its_pictures_in_the_style_guide() -> None:
    told = (ROOT / "docs/design/page.md").read_text()
    for name in PICTURED:
        for look in LOOKS:
            picture = FOLDER / f"{name}-{look}.png"
            assert f"pictures/{picture.name}" in told
            assert 2_000 < picture.stat().st_size < MOST_BYTES
    assert {path.name for path in FOLDER.iterdir()} == set(re.findall(r"pictures/([a-z-]+\.png)", told))
