"""A broker that refuses a service it knew: changed password, missing right, vhost gone, an API that says no.

Before it ever worked that ends the service, with the reason. Afterwards it says so, is not ready, keeps
trying, and goes on when somebody has mended it; no letter is lost or copied meanwhile.

About `service.vhost_worker`, `broker.session`, `broker.management`, `consumer.serving`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests import consuming
from tests.brokers import Vhost, call
from tests.letters import letter, letters
from tests.serving import Application, Served, served

from deadletter import Consumer, fixed
from deadletter.amqp.channel import Delivery
from deadletter.consumer.events import Lost

SETTINGS = (
    '[default_policy]\nretries = 3\nbackoff = { kind = "fixed", delays = ["100ms"] }\n'
    '[[watches]]\ndlq = "*.dlq"\n[guards.breaker]\nenabled = false\n'
)
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
TAGS = "monitoring,policymaker"


class User:
    """A user of the vhost, whose password and rights come and go."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.name = f"clerk-{vhost.name[-8:]}"

    def knows(self, password: str) -> None:
        """From now on this is the password."""
        call(self._vhost.broker, "PUT", "users", self.name, content={"password": password, "tags": TAGS})

    def may(self, **rights: str) -> None:
        call(
            self._vhost.broker,
            "PUT",
            "permissions",
            self._vhost.name,
            self.name,
            content={**EVERYTHING, **rights},
        )

    def may_nothing(self) -> None:
        call(self._vhost.broker, "DELETE", "permissions", self._vhost.name, self.name)

    def signed_in(self, password: str) -> Vhost:
        parts = urlsplit(self._vhost.broker.url)
        url = parts._replace(netloc=f"{self.name}:{password}@{parts.hostname}:{parts.port}").geturl()
        return replace(self._vhost, broker=replace(self._vhost.broker, url=url))

    async def hang_up(self) -> None:
        """Close its connections."""
        ask = self._vhost.broker.rabbitmqctl
        await asyncio.to_thread(ask, "close_all_user_connections", self.name, "the cable is cut")


@contextmanager
def user(vhost: Vhost) -> Iterator[User]:
    found = User(vhost)
    found.knows("first")
    found.may()
    try:
        yield found
    finally:
        call(vhost.broker, "DELETE", "users", found.name)


async def until(holds: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def readiness(one: Served) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{one.port}/health/ready", timeout=10) as answer:
            told: dict[str, Any] = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        told = json.loads(error.read())
    return told


async def unready(one: Served, *words: str) -> None:
    """Until it says that it is not ready, and why; and that it lives."""

    def said() -> bool:
        assert one.process.poll() is None, f"it ended: {one.said()}"
        told = readiness(one)
        return not told["ok"] and all(word in " ".join(told["reasons"]) for word in words)

    await until(said, f"not ready, because of {words}")
    assert one.get("/health/live")["ok"]


def second_time(_delivery: Delivery, times: int) -> bool:
    return times > 1


async def comes_back(app: Application, body: bytes) -> None:
    await app.publish("", "orders", [letter(body)])
    await app.until(lambda: body in app.handled["orders"], 120, f"{body!r} is back")


async def test_a_changed_password_is_waited_for(vhost: Vhost, tmp_path: Path) -> None:
    with user(vhost) as clerk, served(clerk.signed_in("first"), tmp_path, SETTINGS) as (one,):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", second_time)
            await comes_back(app, b"before")
            clerk.knows("second")
            await clerk.hang_up()
            await unready(one, "refused")
            await app.publish("", "orders", letters("n", 50))
            await asyncio.sleep(2)
            lines = [line for line in one.log.read_text().splitlines() if "does not work" in line]
            assert len([line for line in lines if "what=broker" in line]) <= 3, (
                "it says the same all the time"
            )
            assert "first" not in one.log.read_text(), "the password is told"
            clerk.knows("first")
            await asyncio.to_thread(one.until_ready, 90)
            await app.until(lambda: len(app.handled["orders"]) == 51, 120, "what died meanwhile is back")
            assert set(app.seen.values()) == {2}
            assert "works again" in one.log.read_text()


@pytest.mark.parametrize("right", ["all", "configure", "read"])
async def test_rights_that_were_taken_away_are_waited_for(vhost: Vhost, tmp_path: Path, right: str) -> None:
    with user(vhost) as clerk, served(clerk.signed_in("first"), tmp_path, SETTINGS) as (one,):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", second_time)
            await comes_back(app, b"before")
            if right == "all":
                clerk.may_nothing()
            else:
                clerk.may(**{right: "^$"})
            await clerk.hang_up()
            await unready(one, "broker")
            clerk.may()
            await asyncio.to_thread(one.until_ready, 90)
            await comes_back(app, b"after")
            assert set(app.seen.values()) == {2}


async def test_a_vhost_that_was_deleted_is_waited_for(vhost: Vhost, tmp_path: Path) -> None:
    with user(vhost) as clerk, served(clerk.signed_in("first"), tmp_path, SETTINGS) as (one,):
        call(vhost.broker, "DELETE", "vhosts", vhost.name)
        await unready(one, "vhost")
        call(vhost.broker, "PUT", "vhosts", vhost.name)
        call(vhost.broker, "PUT", "permissions", vhost.name, "guest", content=EVERYTHING)
        clerk.may()
        await asyncio.to_thread(one.until_ready, 90)
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", second_time)
            await comes_back(app, b"after")


async def test_an_api_that_refuses_is_said_and_letters_go_on(vhost: Vhost, tmp_path: Path) -> None:
    """The connections stay when a password changes; only the API asks for it each time."""
    with user(vhost) as clerk, served(clerk.signed_in("first"), tmp_path, SETTINGS) as (one,):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", second_time)
            await comes_back(app, b"before")
            clerk.knows("second")
            await unready(one, "management")
            await comes_back(app, b"meanwhile")
            clerk.knows("first")
            await asyncio.to_thread(one.until_ready, 90)
            assert not one.get("/api/status")["troubles"]


async def test_what_never_worked_ends_it_with_the_reason(vhost: Vhost, tmp_path: Path) -> None:
    with user(vhost) as clerk, served(clerk.signed_in("wrong"), tmp_path, SETTINGS, start=False) as (one,):
        one.start(ready=False)
        assert await asyncio.to_thread(one.process.wait, 60) == 3
        assert "refuse" in one.said().lower()
        clerk.may_nothing()
        other = Served(clerk.signed_in("first"), tmp_path, SETTINGS, name="other").start(ready=False)
        try:
            assert await asyncio.to_thread(other.process.wait, 60) == 3
            assert "vhost" in other.said()
        finally:
            other.close()


async def test_a_reload_that_names_a_wrong_password_does_not_end_it(vhost: Vhost, tmp_path: Path) -> None:
    with user(vhost) as clerk, served(clerk.signed_in("first"), tmp_path, SETTINGS) as (one,):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", second_time)
            right = one.config.read_text()
            one.config.write_text(right.replace(":first@", ":wrong@"))
            one.process.send_signal(signal.SIGHUP)
            await unready(one, "refused")
            one.config.write_text(right)
            one.process.send_signal(signal.SIGHUP)
            await asyncio.to_thread(one.until_ready, 90)
            await comes_back(app, b"after")


async def test_the_library_waits_for_a_right_that_was_taken_away(vhost: Vhost) -> None:
    """What is missing of its layout when it connects again it declares, and may not any more."""
    handled: list[bytes] = []
    lost: list[str] = []
    with user(vhost) as clerk:
        signed_in = clerk.signed_in("first")
        app = Consumer(signed_in.url, api=signed_in.api)
        app.listen(lambda event: lost.append(event.why) if isinstance(event, Lost) else None)

        @app.queue("orders", layout="ladder", retries=1, backoff=fixed(1))
        async def handle(body: bytes) -> None:
            handled.append(body)

        async with consuming.serving(app):
            await consuming.post(vhost, b"before")
            await until(lambda: handled == [b"before"], "the first")
            clerk.may(configure="^nothing$")
            vhost.delete("queues", "orders__retry.1")
            await clerk.hang_up()
            await until(lambda: any("cannot be declared any more" in why for why in lost), "the refusal")
            clerk.may()
            await consuming.post(vhost, b"after")
            await until(lambda: handled == [b"before", b"after"], "the second")
