"""`dlq queues` on a real broker: what it tells, what it says it does not know, and without the API.

About `cli.queues_command`, `cli.queues_options`, `operations.queue_list`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.commanding import command


def queues(vhost: Vhost, folder: Path, *arguments: str, api: str | None = None, code: int = 0) -> str:
    environment = {
        **os.environ,
        "DLQ_URL": vhost.url,
        "DLQ_API": api or vhost.api,
        "DLQ_SERVE_LISTEN": "off",
        "DLQ_STORE": f"sqlite:///{folder / 'letters.db'}",
    }
    done = command("queues", *arguments, environment=environment, directory=folder)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def told(
    vhost: Vhost, folder: Path, *arguments: str, api: str | None = None, code: int = 0
) -> dict[str, Any]:
    found = json.loads(queues(vhost, folder, *arguments, "--json", api=api, code=code))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def shop(vhost: Vhost, tmp_path: Path) -> Vhost:
    postbox.declare(vhost.url, "orders.dlq", "other")
    postbox.declare(
        vhost.url, "orders", x_dead_letter_exchange="", x_dead_letter_routing_key="orders.dlq", kind="quorum"
    )
    postbox.fill(vhost.url, "orders.dlq", [b"x"] * 7, dead=False, timestamp=int(time.time()) - 7200)
    (tmp_path / "deadletter.toml").write_text('[[watches]]\ndlq = "*.dlq"\nmode = "manual"\n')
    deadline = time.monotonic() + 60
    while vhost.depth("orders.dlq") != 7:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return vhost


def test_the_table(shop: Vhost, tmp_path: Path) -> None:
    found = told(shop, tmp_path)
    lines = {one["name"]: one for one in found["queues"]}
    assert list(lines) == ["orders", "orders.dlq", "other"]
    dlq = lines["orders.dlq"]
    assert (dlq["ready"], dlq["messages"], dlq["consumers"], dlq["type"]) == (7, 7, 0, "classic")
    assert (dlq["dead"], dlq["dead_from"], dlq["watch"], dlq["watch_mode"]) == (True, ["orders"], 1, "manual")
    assert (lines["other"]["dead"], lines["other"]["dead_from"], lines["other"]["watch"]) == (False, [], None)
    assert dlq["growing_since"] is None
    assert any("since when they grow is known to a running dlq serve" in note for note in found["notes"])
    text = queues(shop, tmp_path, "--dead")
    assert "orders.dlq" in text
    assert "other" not in text
    assert "dead letters of orders; watched by [[watches]] 1 (manual)" in text
    assert "7 letters in 1 queue" in text


def test_the_age_says_where_it_is_from(shop: Vhost, tmp_path: Path) -> None:
    """Not every version tells it of every queue, and some tell it a moment late: two looks may differ."""
    (one,) = told(shop, tmp_path, "orders.dlq")["queues"]
    if one["oldest_s"] is None:
        assert one["oldest_by"] == "unknown"
    else:
        assert 7100 < one["oldest_s"] < 7800
        assert one["oldest_by"] == "estimated"
    heading, row = queues(shop, tmp_path, "orders.dlq").splitlines()[:2]
    assert row[heading.index("age") :].startswith(("?  ", "~2")), row


def test_what_the_desk_takes_and_what_is_in_the_store(shop: Vhost, tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text(
        '[desk]\ningest = true\n[[desk.queues]]\nname = "orders.dlq"\n[[desk.queues]]\nname = "gone.dlq"\n'
    )
    found = told(shop, tmp_path)
    (line,) = (one for one in found["queues"] if one["name"] == "orders.dlq")
    assert (line["taken"], line["stored"], line["dead"]) == (True, None, True)
    assert any("not known: no letters are stored yet" in note for note in found["notes"])
    assert "[desk] takes letters of gone.dlq, which is not there" in found["notes"]
    assert not (tmp_path / "letters.db").exists()
    dlq("export", "a.dlq", "--from-queue", "orders.dlq", vhost=shop, folder=tmp_path)
    dlq("import", "a.dlq", "--to-store", vhost=shop, folder=tmp_path)
    lines = {one["name"]: one for one in told(shop, tmp_path)["queues"]}
    assert lines["orders.dlq"]["stored"] == 1, "seven equal letters: one, and its copies"
    assert (lines["other"]["taken"], lines["other"]["stored"]) == (False, 0)
    text = queues(shop, tmp_path, "--dead")
    assert text.splitlines()[0].split("  ")[-2:] == ["in the store", "what it is"]
    assert "1             dead letters of orders; into the store, by [desk]" in text
    assert "nobody watches it" not in text
    assert (
        "got both"
        in command("queues", "--at", "x", "--store", "sqlite:///y", environment={**os.environ}).stderr
    )


def dlq(*arguments: str, vhost: Vhost, folder: Path) -> None:
    environment = {
        **os.environ, "DLQ_URL": vhost.url, "DLQ_STORE": f"sqlite:///{folder / 'letters.db'}",
        "DLQ_SERVE_LISTEN": "off",
    }  # fmt: skip
    done = command(*arguments, environment=environment, directory=folder)
    assert done.returncode == 0, done.stderr


def test_two_looks_tell_how_it_grows(shop: Vhost, tmp_path: Path) -> None:
    over = threading.Event()

    def add() -> None:
        while not over.wait(0.3):
            postbox.fill_one(shop.url, "other", b"x")

    adding = threading.Thread(target=add)
    adding.start()
    try:
        found = {one["name"]: one for one in told(shop, tmp_path, "--watch", "4s")["queues"]}
    finally:
        over.set()
        adding.join()
    assert found["other"]["growth"]["letters"] > 0
    assert found["orders.dlq"]["growth"]["letters"] == 0
    assert found["other"]["growth"]["seconds"] >= 4


def test_without_the_api_what_amqp_tells(shop: Vhost, tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text('[[watches]]\ndlq = "orders.dlq"\nmode = "manual"\n')
    found = told(shop, tmp_path, "orders", "orders.dlq", "nowhere", api="http://127.0.0.1:1", code=1)
    lines = {one["name"]: one for one in found["queues"]}
    assert list(lines) == ["orders", "orders.dlq"]
    assert lines["orders.dlq"]["ready"] == 7
    assert lines["orders.dlq"]["in_per_s"] is None
    assert lines["orders.dlq"]["dead_from"] is None
    assert found["missing"] == ["nowhere"]
    assert "the management API does not answer" in found["notes"][0]
    text = queues(shop, tmp_path, api="http://127.0.0.1:1")
    assert "?" in text.splitlines()[1]


def test_order_and_names(shop: Vhost, tmp_path: Path) -> None:
    names = [one["name"] for one in told(shop, tmp_path, "--sort", "depth")["queues"]]
    assert names[0] == "orders.dlq"
    assert [one["name"] for one in told(shop, tmp_path, "o*s*")["queues"]] == ["orders", "orders.dlq"]
    assert told(shop, tmp_path, "nowhere", code=1)["missing"] == ["nowhere"]
    queues(shop, tmp_path, "--sort", "colour", code=2)
