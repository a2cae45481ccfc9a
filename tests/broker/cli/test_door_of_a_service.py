"""The door of a running `dlq serve`: its owner's commands, the address it prints, tokens that come and go.

About `cli.serve_command`, `cli.access.service_door`, `desk.door.doorman`, `operations.home_key`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from tests.brokers import Vhost
from tests.commanding import command
from tests.serving import Served

from deadletter.core.access.token_hash import hashed

WATCH = '[[watches]]\ndlq = "*.dlq"\n'
OLGA = f'[[desk.tokens]]\nname = "olga"\nrole = "viewer"\nhash = "{hashed("dlq_olga")}"\n'


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_who_started_it_is_let_in_and_nobody_else(vhost: Vhost, tmp_path: Path) -> None:
    one = Served(vhost, tmp_path, WATCH + OLGA)
    try:
        one.start()
        address = f"http://127.0.0.1:{one.port}/?token={one.token}"
        said = one.log.read_text()
        assert f"the page: {address}\n" in said
        assert said.count(one.token) == 1, "no line of the log has it"
        at = ("--at", f"http://127.0.0.1:{one.port}")
        own = command("sweep", *at, environment={"HOME": str(one.home)})
        assert own.returncode == 0, own.stderr
        other = command("sweep", *at, environment={"HOME": str(tmp_path / "somebody")})
        assert other.returncode == 1
        assert "expected a token" in other.stderr
        with httpx.Client(base_url=f"http://127.0.0.1:{one.port}", trust_env=False) as client:
            assert client.get("/metrics").status_code == client.get("/health/live").status_code == 200
            assert client.get("/api/v1/store").status_code == 401
            assert client.get(address).status_code == 303
            assert client.get("/", headers={"accept": "text/html"}).status_code == 200
            olga = {"authorization": "Bearer dlq_olga"}
            assert client.get("/api/v1/store", headers=olga).status_code == 200
            assert client.post("/api/sweeps", json={}, headers=olga).status_code == 403
            one.write(WATCH)
            one.process.send_signal(signal.SIGHUP)
            until(lambda: client.get("/api/v1/store", headers=olga).status_code == 401)
            assert one.end() == 0
            one.start()
            assert client.get("/", headers={"accept": "text/html"}).status_code == 200, "the session goes on"
    finally:
        one.close()


def test_elsewhere_nothing_starts_where_nobody_can_sign_in(vhost: Vhost, tmp_path: Path) -> None:
    settings = '[serve]\nlisten = "0.0.0.0:{port}"\nsurvey = "1s"\n' + WATCH
    one = Served(vhost, tmp_path, "[serve]\n")
    try:
        one.write(settings.replace("{port}", str(one.port)) + "[desk]\ningest = true\n")
        told = command("serve", "--config", str(one.config), environment={"HOME": str(one.home)})
        assert told.returncode == 2
        assert "nobody can sign in" in told.stderr
        one.write(settings.replace("{port}", str(one.port)))
        one.start()
        assert "token=" not in one.log.read_text()
        with httpx.Client(base_url=f"http://127.0.0.1:{one.port}", trust_env=False) as client:
            assert client.get("/metrics").status_code == 200
            assert client.get("/api/v1/store").status_code == 403
            assert client.get("/").status_code == 404
    finally:
        one.close()
