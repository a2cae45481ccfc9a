"""The part of `dlq demo` in which letters are repaired and sent back.

A release of the shop writes the amounts of refunds as text, and the application that pays them puts every
one aside. The service keeps them in a store. A jq program that repairs them is tried on all; then they are
sent back: one first, then ten, then the rest, each step when the application is done with the one before.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from rich.console import Console

from deadletter import Consumer
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.cli.demo.demo_service import serving
from deadletter.cli.replays.edit_trial import TRIED_MOST, trial_lines, tried
from deadletter.cli.replays.replay_text import before_text, detail_text
from deadletter.cli.terminal.units import count
from deadletter.consumer.events import Event, Ready
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import message
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.replaying.replay_pace import Canary
from deadletter.operations.records.store_records import StoreRecords, opened_records
from deadletter.operations.replays.before_replay import broker_look
from deadletter.operations.replays.replay_told import EditWish, ReplayDetail, ReplayWish
from deadletter.operations.replays.store_replays import StoreReplays

QUEUE: Final = "refunds"
LETTERS: Final = 25
REPAIR: Final = '.body.amount |= (gsub(","; ".") | tonumber)'
PATIENCE_S: Final = 60.0
SETTINGS: Final = """
[broker]
url = "{url}"
api = "{api}"

[serve]
listen = "off"

[desk]
ingest = true

[[desk.queues]]
name = "refunds__dlq"

[[watches]]
dlq = "refunds__dlq.none"
mode = "manual"
"""


class Refund(BaseModel):
    """What the handler's annotation asks for."""

    number: int
    amount: float


def application(url: str, api: str, paid: list[float]) -> Consumer:
    app = Consumer(url, api=api, service="refunds", release="2.0.0")

    @app.queue(QUEUE, layout="ladder", retries=0)
    async def pay(refund: Refund) -> None:
        paid.append(refund.amount)

    return app


async def show(console: Console, *, url: str, api: str) -> bool:
    """Whether everything came out right."""
    paid: list[float] = []
    app = application(url, api, paid)
    ready = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Ready):
            ready.set()

    app.listen(listen)
    consuming = asyncio.create_task(app.serve())
    with tempfile.TemporaryDirectory(prefix="dlq-demo-") as folder:
        store_url = f"sqlite:///{Path(folder) / 'desk.db'}"
        try:
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
                await _publish(url)
                async with (
                    serving(SETTINGS.format(url=url, api=api), store_url=store_url) as settings,
                    opened_records(store_url) as records,
                ):
                    replays = StoreReplays(
                        records.opened,
                        records.programs,
                        look_at=broker_look(lambda: settings),
                        attended=True,
                    )
                    return await _repair(console, records, replays, paid)
        except TimeoutError:
            console.print(f"{PATIENCE_S:g} s went by without an end.")
            return False
        finally:
            app.stop("the demo is over")
            await consuming


async def _publish(url: str) -> None:
    connection = await connect(parse_addresses(url)[0], name="dlq demo shop")
    channel = await connection.channel()
    await channel.select_confirms()
    properties = message.encode(View(content_type="application/json", delivery_mode=2))
    bodies = (b'{"number": %d, "amount": "%d,90"}' % (number, number) for number in range(LETTERS))
    await publish_all(channel, "", QUEUE, (RawMessage(properties, body) for body in bodies))
    await connection.close()


async def _repair(console: Console, records: StoreRecords, replays: StoreReplays, paid: list[float]) -> bool:
    found = (await records.groups(GroupQuery())).groups
    while not found or found[0].open < LETTERS:
        await asyncio.sleep(0.1)
        found = (await records.groups(GroupQuery())).groups
    group = found[0]
    console.print(f"{count(LETTERS)}, one group: [b]{group.title}[/]\n", soft_wrap=True)
    selection, edit = LetterQuery(group=group.id), EditWish(program=REPAIR)
    wish = ReplayWish(
        selection=selection,
        edit=edit,
        pace=Canary(steps=(1, 10, 100), wait_s=20.0),
        outcome_ms=30_000,
        resolves=True,
    )
    console.print(f"[b]dlq replay --group {group.id} --edit '{REPAIR}'[/] tells what would happen:\n")
    trial = await tried(replays, selection, edit, most=TRIED_MOST, quiet=True)
    told = await replays.preflight(wish)
    now_ms = time.time_ns() // 1_000_000
    before = before_text(wish, told, trial_lines(trial), now_ms=now_ms, width=console.width)
    console.print(before, markup=False, soft_wrap=True)
    begun = await replays.start(wish, who="demo", why="amounts are numbers again")
    console.print("\nWith [b]--yes --watch[/] it begins, and stops by itself if they come back:\n")
    detail: ReplayDetail = await replays.replay(begun.id)
    while detail.replay.ended_ms is None:
        await asyncio.sleep(0.2)
        detail = await replays.replay(begun.id)
    now_ms = time.time_ns() // 1_000_000
    console.print(detail_text(detail, now_ms=now_ms), markup=False, soft_wrap=True)
    after = (await records.group(str(group.id))).group
    console.print(f"\nPaid: {len(paid)}, each once. The group is [b]{after.state.value}[/].")
    wanted = sorted(number + 0.9 for number in range(LETTERS))
    return sorted(paid) == wanted and after.state is GroupState.RESOLVED
