"""What an application loads with the library and with an adapter, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
