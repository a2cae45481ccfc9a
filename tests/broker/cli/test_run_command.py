"""`dlq run` as a process with processes: a broker gives it messages, signals end it, kills do not.

About `cli.running.run_command`, `cli.running.run_options`, `cli.running.worker`,
`cli.running.worker_process`, `cli.running.run_health`, `cli.running.found_app`, `cli.running.changed_files`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.letters import letter
from tests.ports import free_port

SHOP = """
import asyncio, os
from pathlib import Path
from deadletter import Consumer, fixed

app = Consumer(os.environ["SHOP_URL"], api=os.environ["SHOP_API"], grace=20)
log = Path(__file__).with_name("log")


@app.queue("orders", layout="return", retries=1, backoff=fixed(1), prefetch=1, concurrency=1)
async def handle(body: bytes) -> None:
    with log.open("a") as file:
        file.write(f"{os.getpid()} {body.decode()}\\n")
    if body == b"die":
        os.kill(os.getpid(), 9)
    await asyncio.sleep(0.1)
"""


class Run:
    """One `dlq run`, and what it says."""

    def __init__(self, vhost: Vhost, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self.said_file = folder / "said"
        self.log = folder / "log"
        listen = ("--listen", f"127.0.0.1:{self.port}")
        with self.said_file.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deadletter.cli.main", "run", *arguments, *listen],
                cwd=folder,
                stdout=said,
                stderr=said,
                env={**os.environ, "SHOP_URL": vhost.url, "SHOP_API": vhost.api},
            )

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def health(self) -> dict[str, Any]:
        status, text = self.get("/health/ready")
        return {"status": status, **(json.loads(text) if status else {})}

    def until_ready(self) -> None:
        postbox.wait_for(lambda: self.health()["status"] == 200 or self.process.poll() is not None, "ready")
        assert self.process.poll() is None, self.said()

    def said(self) -> str:
        return self.said_file.read_text()

    def handled(self) -> list[tuple[int, str]]:
        if not self.log.exists():
            return []
        lines = [line.split(" ", 1) for line in self.log.read_text().splitlines()]
        return [(int(pid), body) for pid, body in lines]


@contextmanager
def running(vhost: Vhost, folder: Path, *arguments: str, shop: str = SHOP) -> Iterator[Run]:
    (folder / "shop.py").write_text(shop)
    run = Run(vhost, folder, *arguments)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait(60)


def post(vhost: Vhost, *bodies: bytes) -> None:
    """Whoever consumes the queue may have them at once."""
    postbox.publish_raw(vhost.url, "orders", *map(letter, bodies))


def total(metrics: str, name: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(name))


def test_several_processes_share_the_work_and_are_counted_in_one_place(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    with running(vhost, tmp_path, "shop:app", "--workers", "3") as run:
        run.until_ready()
        assert run.health() == {"status": 200, "ok": True, "workers": 3, "ready": 3, "restarts": 0}
        post(vhost, *[b"%d" % number for number in range(60)])
        postbox.wait_for(lambda: len(run.handled()) == 60, "sixty messages")
        assert len({pid for pid, _ in run.handled()}) == 3, "each of them had some"
        done = 'deadletter_consumer_messages_total{fate="done",queue="orders"}'
        postbox.wait_for(lambda: total(run.get("/metrics")[1], done) == 60, "all of them counted")
        assert total(run.get("/metrics")[1], "deadletter_run_workers_ready") == 3
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0, run.said()
    assert "takes messages in 3 processes" in run.said()
    assert postbox.depth(vhost.url, "orders") == 0


def test_a_process_that_dies_is_started_again(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    with running(vhost, tmp_path, "shop", "--workers", "2") as run:
        run.until_ready()
        post(vhost, *[b"die"])
        postbox.wait_for(lambda: run.health().get("restarts", 0) >= 2, "restarts")
        post(vhost, *[b"live"])
        postbox.wait_for(lambda: any(body == "live" for _, body in run.handled()), "the other one")
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(90) == 0, run.said()
    assert re.search(r"process \d ended by SIGKILL after .*; it is started again in ", run.said())


def test_when_it_is_killed_its_processes_end_too(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    with running(vhost, tmp_path, "shop:app", "--workers", "2") as run:
        run.until_ready()
        run.process.kill()
        run.process.wait(30)

        def consumers() -> int:
            return int(vhost.get("queues", "orders").get("consumers", 0))

        postbox.wait_for(lambda: consumers() == 0, "no consumer is left")


def test_a_change_begins_anew_and_a_mistake_in_it_is_waited_out(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    with running(vhost, tmp_path, "shop:app", "--reload", "--workers", "2") as run:
        run.until_ready()
        (tmp_path / "shop.py").write_text("import nothing_of_that_name\n")
        postbox.wait_for(lambda: run.said().count("cannot be imported") == 2, "both say what is wrong")
        assert run.process.poll() is None
        (tmp_path / "shop.py").write_text(SHOP.replace("body.decode()", "'anew ' + body.decode()"))
        run.until_ready()
        post(vhost, *[b"one"])
        postbox.wait_for(lambda: any(body == "anew one" for _, body in run.handled()), "the new code")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nosuch:app", "expected a module 'nosuch'"),
        ("shop:other", "expected a Consumer called 'other' in shop, got none; there is app"),
        ("shop:log", "expected a deadletter.Consumer, got PosixPath"),
        ("shop/x.py", "expected MODULE:APP, as in shop.worker:app"),
    ],
)
def test_what_is_no_application_is_said_and_ends_it(
    vhost: Vhost, tmp_path: Path, where: str, said: str
) -> None:
    with running(vhost, tmp_path, where) as run:
        assert run.process.wait(60) == 2
    assert said in run.said()


def test_a_broker_that_refuses_us_ends_it(vhost: Vhost, tmp_path: Path) -> None:
    shop = SHOP.replace(
        'os.environ["SHOP_URL"]', '"amqp://nobody:wrong@" + os.environ["SHOP_URL"].partition("@")[2]'
    )
    with running(vhost, tmp_path, "shop:app", shop=shop) as run:
        assert run.process.wait(90) == 1
    assert "nobody" in run.said()
