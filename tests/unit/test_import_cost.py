"""What an application loads with the library and with an adapter, what a command does, and what not.

About `cli.main`, `cli.more_commands`, `cli.plain_words`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deadletter.cli.main import QUICK

NOT_FOR_APPLICATIONS = frozenset(
    {"cli", "config", "desk", "doctor", "drawing", "operations", "service", "store", "testing"}
)
OF_COMMANDS = frozenset({"click", "fastapi", "httpx", "rich", "sqlalchemy", "typer", "uvicorn"})
NOT_FOR_THE_WOKEN = OF_COMMANDS | {
    "anyio", "certifi", "email", "h11", "http", "httpcore", "importlib.metadata", "jq", "pydantic",
    "pydantic_core", "pygments", "tomllib", "yaml", "deadletter.cli.quick_options", "deadletter.config.files",
    "deadletter.config.settings", "deadletter.config.tables.file", "deadletter.core.deciding.policy",
    "deadletter.core.grouping.grouping_rules",
}  # fmt: skip
"""What five commands were made to do without, up to their first letter. None of it is needed to move one."""
CLOSED = "127.0.0.1:1"
WOKEN = {
    "move": ["move", "a", "b", "--url", f"amqp://{CLOSED}", "--limit", "5"],
    "check": ["check", "--dlq", "a", "--target", "b", "--url", f"amqp://{CLOSED}"],
    "peek": ["peek", "a", "--url", f"amqp://{CLOSED}"],
    "doctor": ["doctor", "--api", f"http://{CLOSED}"],
    "sweep": ["sweep", "--at", CLOSED],
}


@pytest.mark.parametrize(
    "code",
    [
        "import deadletter; deadletter.Consumer",
        "import deadletter; deadletter.Consumer('amqp://localhost')",
        "import deadletter.adapters.pika",
    ],
)
def test_an_application_loads_no_test_double_and_no_command(code: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = [name.split(".") for name in told.stdout.splitlines()]
    ours = {name[1] for name in loaded if name[0] == "deadletter" and len(name) > 1}
    assert "consumer" in ours
    assert not ours & NOT_FOR_APPLICATIONS
    assert not {name[0] for name in loaded} & OF_COMMANDS


def test_the_package_alone_loads_nothing() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import deadletter, sys\nprint(*sys.modules, sep='\\n')"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert [name for name in told.stdout.splitlines() if name.startswith("deadletter.")] == []


@pytest.mark.parametrize("command", sorted(QUICK))
def test_who_was_woken_does_not_wait_for_the_other_commands(command: str) -> None:
    code = (
        "import atexit, sys\nfrom deadletter.cli.main import main\n"
        "atexit.register(lambda: print(*sys.modules, sep='\\n'))\n"
        f"sys.argv = ['dlq', '{command}', '--help']\nmain()"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert f"dlq {command}" in told.stdout
    loaded = set(told.stdout.splitlines())
    assert not {"deadletter.cli.more_commands", "deadletter.cli.replays", "rich"} & loaded


@pytest.mark.parametrize("command", WOKEN)
def test_the_first_letter_waits_for_no_library_it_does_not_need(command: str, tmp_path: Path) -> None:
    """As it is typed, up to a broker that is not there; then what it would load once one is."""
    code = (
        "import sys\nfrom deadletter.cli.main import main\n"
        f"sys.argv = {['dlq', *WOKEN[command]]}\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 3, end.code\n"
        "if sys.argv[1] != 'sweep': import deadletter.broker.live_topology, deadletter.http.plain_http\n"
        "print(*sys.modules, sep='\\n')"
    )
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DLQ_") and not name.lower().endswith("_proxy")
    }
    told = subprocess.run(
        [sys.executable, "-c", code],
        check=True, capture_output=True, text=True, cwd=tmp_path, env={**plain, "HOME": str(tmp_path)},
    )  # fmt: skip
    loaded = set(told.stdout.splitlines())
    assert f"deadletter.cli.{command}_command" in loaded
    assert not loaded & NOT_FOR_THE_WOKEN
