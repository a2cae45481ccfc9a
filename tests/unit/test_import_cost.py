"""What an application loads with the library and with an adapter, what a command does, and what not.

About `cli.main`, `cli.more_commands`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from deadletter.cli.main import QUICK

NOT_FOR_APPLICATIONS = frozenset(
    {"cli", "config", "desk", "doctor", "drawing", "operations", "service", "store", "testing"}
)
OF_COMMANDS = frozenset({"click", "fastapi", "httpx", "rich", "sqlalchemy", "typer", "uvicorn"})


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
