"""A desk with everything on it: a real SQLite store with letters, replays, samples, and a broker that is
made up, because no route needs a real one to be asked rightly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.recorded import make

from deadletter import config
from deadletter.config.settings import Settings
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import AllAtOnce
from deadletter.core.topology.vhost import Binding, Exchange, Queue, topology
from deadletter.desk.answers.news import News
from deadletter.desk.api.sources import MoreSources
from deadletter.doctor.finding import Finding, Harm, Severity
from deadletter.drawing.graph import graph
from deadletter.drawing.mermaid import mermaid
from deadletter.drawing.svg import svg
from deadletter.errors import UsageError
from deadletter.operations.journal.store_journal import LateJournal
from deadletter.operations.outlook.outlook import (
    Drawing,
    FindingsTold,
    QueuePage,
    QueueQuery,
    QueueTold,
    TopologyTold,
    WaitingTold,
)
from deadletter.operations.records.store_records import LateRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.replay_told import DraftWish, EditWish, ReplayWish
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.operations.rulebook.store_rulebook import StoreRulebook
from deadletter.operations.waiting import LetOut, WaitingChoice, WaitingKind, WaitingQueue, Waits
from deadletter.store.journal.instances import InstanceSeen
from deadletter.store.journal.journal_store import JournalStore
from deadletter.store.journal.samples import QueueSample
from deadletter.store.replays.recipe_table import Recipe

SHAPE = topology(
    vhost="/",
    exchanges=[Exchange(name="shop"), Exchange(name="dlx", type="fanout")],
    queues=[Queue(name="orders", arguments={"x-dead-letter-exchange": "dlx"}), Queue(name="orders.dlq")],
    bindings=[
        Binding(source="shop", destination="orders", routing_key="order.placed"),
        Binding(source="dlx", destination="orders.dlq"),
    ],
)
FINDING = Finding(
    rule="missing-dlx",
    harm=Harm.LOST,
    severity=Severity.ERROR,
    subject="stock",
    path=("queue stock", "rejected", "exchange gone"),
    why="Letters that are rejected vanish.",
    fix="rabbitmqadmin declare exchange name=gone type=fanout",
)


@dataclass
class MadeUpOutlook:
    """A broker with one vhost, of which everything is known."""

    let: list[tuple[WaitingChoice, str | None]] = field(default_factory=list)
    seen: FindingsTold | None = None

    def vhosts(self) -> tuple[str, ...]:
        return ("/",)

    def _is_known(self, vhost: str) -> None:
        if vhost not in ("", "/"):
            raise UsageError(f"vhost: expected one that the service looks after ('/'), got {vhost!r}")

    async def waiting(self, choice: WaitingChoice, *, vhost: str, most: int) -> WaitingTold:
        self._is_known(vhost)
        kind = WaitingKind(
            origin="orders",
            waits=Waits.DELAY,
            why="",
            attempt=2,
            letters=3,
            due_from_ms=1_790_812_800_000,
            due_until_ms=1_790_812_860_000,
        )
        queue = WaitingQueue(name="deadletter.delay.60000", waits=Waits.DELAY, letters=3)
        kinds = (kind,) if most and choice.waits in (None, Waits.DELAY) else ()
        return WaitingTold(
            vhost="/",
            at_ms=1_790_812_790_000,
            letters=3,
            queues=(queue,),
            kinds=kinds,
            looked_at=3 if most else 0,
        )

    async def let_out(self, choice: WaitingChoice, *, vhost: str, park: str | None) -> LetOut:
        self._is_known(vhost)
        self.let.append((choice, park))
        released, parked = (3, 0) if park is None else (0, 3)
        return LetOut(released=released, parked=parked, left=0, failed=0, reasons={}, maybe_twice=0)

    async def queues(self, query: QueueQuery) -> QueuePage:
        self._is_known(query.vhost)
        told = QueueTold(
            name="orders.dlq",
            type="quorum",
            ready=7,
            unacked=0,
            messages=7,
            consumers=1,
            oldest_s=42.0,
            in_per_s=0.4,
            out_per_s=0.0,
            dead_from=("orders",),
            ours=False,
            watch=1,
            watch_mode="consume",
            taken=False,
            stored=5,
            growing_since=None,
            growth=None,
            dead=True,
        )
        return QueuePage(vhost="/", queues=(told,), notes=(), more=None)

    async def findings(self, *, vhost: str) -> FindingsTold:
        self._is_known(vhost)
        return self.seen or FindingsTold(
            vhost="/", at_ms=None, seconds=0, version="", queues=0, exchanges=0, bindings=0, findings=()
        )

    async def examine(self, *, vhost: str) -> FindingsTold:
        self._is_known(vhost)
        self.seen = FindingsTold(
            vhost="/",
            at_ms=1_790_812_800_000,
            seconds=0.1,
            version="4.3.0",
            queues=2,
            exchanges=2,
            bindings=2,
            findings=(FINDING,),
        )
        return self.seen

    async def topology(self, *, vhost: str, around: tuple[str, ...]) -> TopologyTold:
        self._is_known(vhost)
        picture = graph(SHAPE, around=around)
        return TopologyTold(vhost="/", version="4.3.0", nodes=picture.nodes, arrows=picture.arrows)

    async def drawn(self, *, vhost: str, around: tuple[str, ...], form: Drawing) -> str:
        self._is_known(vhost)
        picture = graph(SHAPE, around=around)
        return svg(picture, title="vhost /") if form is Drawing.SVG else mermaid(picture)


@dataclass(kw_only=True)
class Everything:
    """All that `create_app` wants beside the office."""

    records: LateRecords
    replays: LateReplays
    more: MoreSources
    outlook: MadeUpOutlook
    news: News
    url: str


@asynccontextmanager
async def everything(path: Path) -> AsyncIterator[Everything]:
    """On a store in this file: nine letters, a replay, a draft, a recipe, a row, samples."""
    now_ms = int(time.time() * 1000)
    url = await make(path, now_ms)
    settings: Settings = config.load(
        options={"store.url": url}, environment={}, directory=path.parent, home=path.parent
    )
    records = LateRecords(url)
    replays = LateReplays(records, look_at=None, schemas=BodySchemas)
    journal = LateJournal(records)
    news = News(journal)
    outlook = MadeUpOutlook()
    rulebook = StoreRulebook(url, lambda: settings, records, journal)
    watching = asyncio.create_task(news.run())
    try:
        await _fill(records, replays, rulebook, now_ms)
        yield Everything(
            records=records,
            replays=replays,
            more=MoreSources(journal=journal, outlook=outlook, rulebook=rulebook, news=news),
            outlook=outlook,
            news=news,
            url=url,
        )
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        await journal.close()
        await records.close()


async def _fill(records: LateRecords, replays: LateReplays, rulebook: StoreRulebook, now_ms: int) -> None:
    store = (await records()).opened
    minute = now_ms // 60_000
    await JournalStore(store).put_samples(
        [
            QueueSample(
                vhost="/",
                queue="orders.dlq",
                minute=minute - ago,
                depth=ago,
                depth_most=ago + 1,
                consumers=1,
                oldest_s=float(ago),
                in_per_s=0.5,
                out_per_s=0.25,
            )
            for ago in range(30)
        ]
    )
    await JournalStore(store).put_instance(
        InstanceSeen(
            name="worker-1",
            broker="rabbit:5672",
            broker_version="4.3.0",
            version="0.1.0",
            stage="ready",
            started_ms=now_ms - 3_600_000,
            seen_ms=now_ms,
        )
    )
    asked = await replays()
    await asked.start(
        ReplayWish(selection=LetterQuery(origin="stock"), pace=AllAtOnce()), who="ann", why="", careful=False
    )
    await asked.save_draft("1", DraftWish(edit=EditWish(program=".body.order = 99")), who="ann")
    await asked.save_recipe(Recipe(name="to-99", program=".body.order = 99"), who="ann")
    await asked.deployed("shop", "1.5.0", who="ann")
    await rulebook.set_row("order.placed", 3, who="ann")
    await (await records()).note("1", "asked the bank", who="ann")
