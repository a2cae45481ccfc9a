"""The part of `dlq demo` in which parked letters come into a store: why did they fail, and is it one cause?

The store is a file that is gone afterwards. In a service `[desk] ingest = true` brings letters there.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from deadletter.amqp.address import parse_addresses
from deadletter.cli.letters.groups_text import page_text, why_text
from deadletter.cli.terminal.units import count
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.move.courier import Courier, Leave, Letter, Verdict
from deadletter.operations.records.store_records import opened_records
from deadletter.store.letters.letter_store import open_letters

GROUPS: Final = 2
"""The application of the scene before put two shipments aside, each for a reason of its own."""


async def show(console: Console, *, url: str, queue: str) -> bool:
    """Whether everything came out right."""
    found: list[Letter] = []

    def look(letter: Letter) -> Verdict:
        found.append(letter)
        return Leave()

    await Courier(parse_addresses(url), source=queue, decide=look).run()
    now_ms = time.time_ns() // 1_000_000
    with tempfile.TemporaryDirectory(prefix="dlq-demo-") as folder:
        store_url = f"sqlite:///{Path(folder) / 'desk.db'}"
        async with open_letters(store_url) as store:
            stored = await store.ingest([stored_letter(letter, now_ms=now_ms) for letter in found])
        console.print(
            f"{count(stored.new)} of [b]{queue}[/] in a store, as [b]\\[desk] ingest[/] does it. "
            "[b]dlq groups[/] says what failed, where, and since when:\n"
        )
        async with opened_records(store_url) as records:
            page = await records.groups(GroupQuery())
            text = page_text(page, now_ms=now_ms, width=console.width, blocks=True)
            console.print(text, markup=False, soft_wrap=True)
            if page.groups:
                group = page.groups[-1]
                console.print(f"\n[b]dlq groups --why {group.id}[/] says what makes letters one group:\n")
                console.print(why_text(await records.group(str(group.id))), markup=False, soft_wrap=True)
    return len(page.groups) == GROUPS == stored.new
