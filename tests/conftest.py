"""Fixtures for every test. Nothing here starts a broker until a test asks for one.

`broker` is one private RabbitMQ for the whole run: `pytest --broker 4.3`, or DLQ_TEST_BROKER=4.3, or what is
installed. A broker that cannot be started is an error, never a skip: a green run has really met RabbitMQ.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# With --import-mode=importlib nothing puts the checkout on the path, and tests share `tests.brokers`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.brokers import Vhost, fresh_vhost
from tests.postgres import PrivatePostgres, private_postgres

from deadletter.testing.node.private import PrivateBroker, private_broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        default=os.environ.get("DLQ_TEST_BROKER") or None,
        metavar="VERSION",
        help="RabbitMQ for the broker tests: 3.10, 4.0, 4.3 or a root's path (default: the installed one)",
    )


def pytest_configure() -> None:
    # Who starts the tests in the background, or under nohup, has these ignored, and every command under test
    # would inherit that.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    # Somebody who works with `dlq` has these set, to a broker that no test may ever touch.
    for name in ("DLQ_URL", "DLQ_API", "DLQ_STORE", "DLQ_CONFIG"):
        os.environ.pop(name, None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a real part is marked with its name: `-m "not rabbitmq and not postgresql"`."""
    for item in items:
        asks = set(getattr(item, "fixturenames", ()))
        if asks & {"broker", "broker_version"}:
            item.add_marker("rabbitmq")
        if "postgres" in asks:
            item.add_marker("postgresql")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was too late and was run once more (see pyproject.toml), with all it said: it may be a fault."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"late once: {report.nodeid}")
        terminalreporter.line(report.longreprtext)
        terminalreporter.line(report.capstdout[-8000:])


@pytest.fixture(scope="session")
def broker_version(request: pytest.FixtureRequest) -> str | None:
    """Which version was asked for; None means what is there."""
    wish = request.config.getoption("--broker")
    assert wish is None or isinstance(wish, str)
    return wish


@pytest.fixture(scope="session")
def broker(broker_version: str | None) -> Iterator[PrivateBroker]:
    """One private broker for the session. Tests may restart or kill it, and leave it running."""
    with private_broker(broker_version) as running:
        yield running


@pytest.fixture
def vhost(broker: PrivateBroker) -> Iterator[Vhost]:
    """A fresh vhost of that broker."""
    with fresh_vhost(broker) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """One server for the session. Tests may stop it, and leave it running."""
    with private_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store that nobody prepared, on each backend."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'letters.db'}"
    server: PrivatePostgres = request.getfixturevalue("postgres")
    return server.fresh_database()
