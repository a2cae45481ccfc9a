"""What systemd hears, on a real socket.

About `service.telling.systemd`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadletter.service.telling.service_events import Confirmed, LifeChanged, Recovered, Stage, Trouble
from deadletter.service.telling.systemd import Notifier


class Systemd:
    """The other side."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(10)
        self.environ = {"NOTIFY_SOCKET": address.replace("\0", "@")}

    def heard(self) -> list[str]:
        return self.socket.recv(65536).decode().split("\n")

    def silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(65536)
        except BlockingIOError:
            return True
        return False


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    address = str(tmp_path / "notify") if request.param == "path" else f"\0deadletter-test-{os.getpid()}"
    other = Systemd(address)
    yield other
    other.socket.close()


def never(why: str) -> None:
    pytest.fail(why)


def test_life_is_told(systemd: Systemd) -> None:
    notifier = Notifier(systemd.environ, on_trouble=never)
    notifier(LifeChanged(stage=Stage.STARTING))
    assert systemd.heard() == ["STATUS=starting"]
    notifier(LifeChanged(stage=Stage.READY, why="3 watches"))
    assert systemd.heard() == ["READY=1", "STATUS=ready: 3 watches"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    reloading, monotonic = systemd.heard()
    assert reloading == "RELOADING=1"
    name, _, usec = monotonic.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(usec) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier(LifeChanged(stage=Stage.RELOADED))
    assert systemd.heard() == ["READY=1", "STATUS=reloaded"]
    notifier(LifeChanged(stage=Stage.STOPPING, why="SIGTERM"))
    assert systemd.heard() == ["STOPPING=1", "STATUS=stopping: SIGTERM"]
    notifier(LifeChanged(stage=Stage.STOPPED))
    assert systemd.heard() == ["STATUS=stopped"]


def test_trouble_is_a_status_of_one_line_and_letters_are_not_told(systemd: Systemd) -> None:
    notifier = Notifier(systemd.environ, on_trouble=never)
    notifier(LifeChanged(stage=Stage.READY))
    notifier(Confirmed(fates={}))
    notifier(Trouble(what="broker", why="refused\nREADY=0" + "x" * 1000))
    notifier(Recovered(what="broker"))
    assert systemd.heard() == ["READY=1", "STATUS=ready"]
    (status,) = systemd.heard()
    assert status.startswith("STATUS=ready; broker: refused\\nREADY=0xxx")
    assert len(status) == len("STATUS=") + 300
    assert systemd.heard() == ["STATUS=ready; broker works again"]


async def test_the_watchdog_is_fed_while_alive(systemd: Systemd) -> None:
    environ = {**systemd.environ, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid())}
    alive = True
    feeding = asyncio.create_task(Notifier(environ, on_trouble=never).run(lambda: alive))
    for _ in range(3):
        assert await asyncio.to_thread(systemd.heard) == ["WATCHDOG=1"]
    alive = False
    await asyncio.sleep(0.05)
    while not systemd.silent():
        pass
    await asyncio.sleep(0.05)
    assert systemd.silent(), "who is not alive does not feed it"
    feeding.cancel()


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"}],
)
async def test_a_watchdog_that_is_not_ours_is_not_fed(systemd: Systemd, environ: dict[str, str]) -> None:
    await asyncio.wait_for(Notifier({**systemd.environ, **environ}, on_trouble=never).run(), 60)
    assert systemd.silent()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
async def test_without_systemd_nothing_is_sent(environ: dict[str, str]) -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000", **environ}, on_trouble=never)
    notifier(LifeChanged(stage=Stage.READY))
    notifier.reloading()
    await asyncio.wait_for(notifier.run(), 60)


def test_a_socket_that_is_gone_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}, on_trouble=said.append)
    notifier(LifeChanged(stage=Stage.READY))
    notifier(LifeChanged(stage=Stage.STOPPING))
    assert len(said) == 1
    assert "gone" in said[0]


def test_a_manager_that_does_not_read_holds_up_nobody(systemd: Systemd) -> None:
    said: list[str] = []
    notifier = Notifier(systemd.environ, on_trouble=said.append)
    for _ in range(2000):
        notifier(LifeChanged(stage=Stage.READY))
    assert len(said) == 1


def test_no_password_is_told(systemd: Systemd) -> None:
    Notifier(systemd.environ, on_trouble=never)(Trouble(what="broker", why="amqp://u:hunter2@h: refused"))
    assert systemd.heard() == ["STATUS=starting; broker: amqp://u:***@h: refused"]
