"""`dlq broker` and `dlq demo`: a private RabbitMQ of their own, gone when they end.

About `cli.broker_command`, `cli.demo.demo`, `cli.demo.demo_serve`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect


def dlq(*arguments: str, version: str | None) -> list[str]:
    asked = [] if version is None else ["--version", version]
    return [sys.executable, "-m", "deadletter.cli.main", *arguments, *asked]


async def version_at(url: str) -> str:
    connection = await connect(parse_addresses(url)[0])
    await connection.close()
    return connection.server_version


def test_a_broker_until_ctrl_c(broker_version: str | None) -> None:
    begun = dlq("broker", "--json", version=broker_version)
    with subprocess.Popen(begun, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert asyncio.run(version_at(told["url"])) == told["version"]
        finally:
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")


def test_every_scene_of_the_demo_ends_as_it_says(broker_version: str | None) -> None:
    """It counts for itself: its exit code is 0 when no order was lost and every scene went as told."""
    shown = dlq("demo", "--letters", "200", version=broker_version)
    done = subprocess.run(shown, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    scenes = [line for line in done.stdout.splitlines() if line.startswith("─") and ". " in line]
    assert len(scenes) == 11, done.stdout
    assert "gone again, without a trace" in done.stdout
