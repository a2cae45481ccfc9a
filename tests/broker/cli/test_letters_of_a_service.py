"""A running `dlq serve` answers the commands about stored letters, and ends in good order.

About `cli.serve_command`, `operations.records.at_hand`, `operations.records.store_records`,
`desk.api.letter_api`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.brokers import Vhost
from tests.commanding import command
from tests.recorded import filled
from tests.serving import Served

from deadletter.store.letters.letter_store import open_letters

SETTINGS = """
[[watches]]
dlq = "*.dlq"
"""


async def fill(url: str) -> None:
    async with open_letters(url) as store:
        await filled(store, int(time.time() * 1000))


def test_the_service_answers_and_without_it_the_store_does(vhost: Vhost, tmp_path: Path) -> None:
    one = Served(vhost, tmp_path, SETTINGS)
    try:
        answers(one, tmp_path)
    finally:
        one.close()


def answers(served: Served, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'one' / 'store.db'}"
    asyncio.run(fill(store))
    served.start()
    address = served.get("/api/v1/store")["address"]
    assert address == store, "the commands know it by its path"
    arguments = ("--config", str(served.config), "--json")
    home = {"HOME": str(served.home)}
    through = command("groups", *arguments, environment=home)
    assert through.returncode == 0, through.stderr
    done = command("discard", "1", "--yes", "--as", "anna", "--config", str(served.config), environment=home)
    assert done.stdout.startswith("discarded 1 letter"), done.stderr
    assert served.get("/api/v1/letters/1")["timeline"][-1]["who"] == "anna"
    assert served.end() == 0
    alone = command("show", "1", *arguments, environment=home)
    assert alone.returncode == 0, alone.stderr
    assert '"who": "anna"' in alone.stdout
