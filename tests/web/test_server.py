"""The server inside somebody else's event loop: it begins, ends and fails in good order.

About `desk.server`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import pytest
from tests.ports import free_port
from tests.web.conftest import Opened

from deadletter.desk.server import serve
from deadletter.errors import UsageError


async def test_signals_stay_with_the_service(opened: Opened) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with opened() as desk:
        assert (await desk.client.get("/health/live")).status_code == 200
        assert {number: signal.getsignal(number) for number in before} == before


async def test_cancelled_it_ends_and_its_port_is_free(opened: Opened) -> None:
    async with opened() as desk:
        await desk.client.get("/health/live")  # a connection stays open behind this
        desk.task.cancel()
        await asyncio.wait({desk.task}, timeout=60)
        assert desk.task.cancelled()
        port = int(desk.url.rpartition(":")[2])
    async with opened(listen=f"127.0.0.1:{port}") as desk:
        assert (await desk.client.get("/health/live")).status_code == 200


async def test_a_request_that_does_not_end_does_not_keep_it(opened: Opened) -> None:
    async with opened() as desk:
        desk.office.hold.clear()
        asking = asyncio.create_task(desk.client.post("/api/sweeps", json={}))
        while not desk.office.asked:  # noqa: ASYNC110 -- there is no event in the office for this
            await asyncio.sleep(0.01)
        desk.task.cancel()
        await asyncio.wait({desk.task}, timeout=60)
        assert desk.task.done()
        await asyncio.wait({asking}, timeout=60)
        assert asking.done()
        asking.exception()


async def test_a_port_that_is_taken_is_one_clear_sentence(opened: Opened) -> None:
    async with opened() as desk:
        listen = desk.url.removeprefix("http://")
        with pytest.raises(UsageError, match=r"\[serve\] listen: .*free.*another process") as error:
            async with opened(listen=listen):
                pass
        assert listen in str(error.value)


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("192.0.2.1:8025", "an address of this machine"),
        ("no.such.host.invalid:8025", "a host of this machine"),
        ("8025", "host:port"),
        ("127.0.0.1:99999", "host:port"),
        ("127.0.0.1:", "host:port"),
        (":8025", "host:port"),
    ],
)
async def test_an_address_that_cannot_be_is_said(opened: Opened, listen: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"^\[serve\] listen: expected {said}"):
        async with opened(listen=listen):
            pass


async def test_localhost_is_all_its_addresses(opened: Opened) -> None:
    port = free_port()
    async with opened(listen=f"localhost:{port}") as desk:
        assert desk.url == f"http://localhost:{port}"
        for host in {found[4][0] for found in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}:
            url = f"http://[{host}]:{port}" if ":" in str(host) else f"http://{host}:{port}"
            assert (await desk.client.get(f"{url}/health/live")).status_code == 200


async def test_an_app_that_cannot_start_is_no_silent_end() -> None:
    def refuse(_url: str) -> None:
        raise RuntimeError("no")

    async def app(scope: object, receive: object, send: object) -> None:
        pass

    with pytest.raises(RuntimeError, match="no"):
        await serve(app, "127.0.0.1:0", on_ready=refuse)


def test_nobody_else_pays_for_the_libraries_of_the_desk() -> None:
    program = (
        "import sys\n"
        "import deadletter.cli.main, deadletter.cli.sweep_command\n"
        "from deadletter.service.telling import logs, service_health, service_metrics, systemd, tracing\n"
        "heavy = {'fastapi', 'uvicorn', 'starlette', 'opentelemetry', 'deadletter.desk'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
