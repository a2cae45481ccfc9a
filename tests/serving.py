"""`dlq serve` as a process of its own, and an application beside it, for tests that meet both on a broker.

`Served` starts, kills and ends the service; `Application` is a consumer that fails as it is told, on our own
client, because twenty thousand letters through another one take minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.brokers import Vhost
from tests.ports import free_port

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage
from deadletter.errors import NotFound
from deadletter.operations.home_key import home_token, key_file, read_key
from deadletter.testing.cuttable_line import Plug

PUBLISH = b"\x00\x3c\x00\x28"
ACK = b"\x00\x3c\x00\x50"
"""How the methods basic.publish and basic.ack begin in a frame, after the frame's head."""
FRAME_HEAD_BYTES = 7


class Served:
    """One instance. `settings` is the TOML after [broker]; the store is a file of the test unless it says.
    Letters stay in `deadletter.parked` unless it says something of `ingest`."""

    def __init__(self, vhost: Vhost, home: Path, settings: str, *, name: str = "one") -> None:
        self.port = free_port()
        self.name = name
        self._directory = home / name
        self._directory.mkdir(parents=True, exist_ok=True)
        self.config = self._directory / "deadletter.toml"
        self._vhost = vhost
        self.write(settings)
        self.log = self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, settings: str) -> None:
        """Another configuration; `reload` takes it over."""
        head = f'[broker]\nurl = "{self._vhost.url}"\napi = "{self._vhost.api}"\n'
        if "[store]" not in settings:
            head += f'[store]\nurl = "sqlite:///{self._directory / "store.db"}"\n'
        if "[serve]" not in settings:
            head += f'[serve]\nlisten = "127.0.0.1:{self.port}"\nname = "{self.name}"\nsurvey = "1s"\n'
        if "ingest" not in settings:  # tests look for parked letters in their queue
            stays = "[desk]\ningest = false\n"
            found = "[desk]\n" in settings
            settings = settings.replace("[desk]\n", stays, 1) if found else f"{stays}{settings}"
        self.config.write_text(head + settings)

    def start(self, *, ready: bool = True) -> Self:
        assert self._process is None or self._process.poll() is not None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deadletter.cli.main", "serve", "--config", str(self.config)],
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self._directory)},
            )
        if ready:
            self.until_ready()
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def until_ready(self, seconds: float = 200.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.process.poll() is None, f"it ended: {self.said()}"
            try:
                if self.get("/health/ready")["ok"]:
                    return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready after {seconds} s: {self.said()}")

    @property
    def home(self) -> Path:
        """Of the user who started it: whose commands it lets in."""
        return self._directory

    @property
    def token(self) -> str:
        """Of that user."""
        key = read_key(key_file({}, self.home))
        assert key is not None
        return home_token(key, self.port)

    def get(self, path: str) -> Any:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if path.startswith("/api/v1/"):
            asked.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read())

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """As the kernel does it: no goodbye."""
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float = 40.0) -> int:
        """SIGTERM, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self) -> None:
        """And what it said last is shown with a test that failed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self.log.exists():
            print(f"-- the service {self.name} said last:\n{self.said()}")


@contextmanager
def served(
    vhost: Vhost, home: Path, settings: str, *, instances: int = 1, start: bool = True
) -> Iterator[list[Served]]:
    """Several instances on one vhost, gone at the end."""
    all_of_them = [Served(vhost, home, settings, name=f"s{n}") for n in range(instances)]
    try:
        if start:
            for one in all_of_them:
                one.start(ready=False)
            for one in all_of_them:
                one.until_ready()
        yield all_of_them
    finally:
        for one in all_of_them:
            one.close()


class Application:
    """A consumer of some queues. `seen` counts deliveries by queue and body."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._changed = asyncio.Event()
        self.seen: Counter[tuple[str, bytes]] = Counter()
        self.handled: dict[str, set[bytes]] = defaultdict(set)
        """By queue, the bodies that were acked."""
        self.deliveries: list[tuple[str, Delivery, float]] = []
        """Queue, delivery, time of day; kept when `keep` was asked for."""

    async def __aenter__(self) -> Self:
        # The start of a service is waited for without the loop; on a busy machine that takes a minute.
        address = replace(parse_addresses(self._url)[0], heartbeat_s=65_535)
        self._connection = await connect(address, name="application")
        self._channel = await self._connection.channel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None
        await self._connection.close()

    @property
    def channel(self) -> Channel:
        assert self._channel is not None
        return self._channel

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    async def declare(self, queue: str, *, kind: str = "quorum", **arguments: Value) -> None:
        """`x_dead_letter_exchange=""` stands for x-dead-letter-exchange."""
        spelled = {name.replace("_", "-"): value for name, value in arguments.items()}
        await self.channel.declare_queue(queue, arguments={"x-queue-type": kind, **spelled})

    async def with_dlq(self, queue: str, *, kind: str = "quorum", **arguments: Value) -> None:
        """A queue whose letters die into `<queue>.dlq`."""
        await self.declare(f"{queue}.dlq", kind=kind)
        dead: dict[str, Value] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": f"{queue}.dlq"}
        await self.declare(queue, kind=kind, **dead, **arguments)

    async def consume(
        self,
        queue: str,
        succeeds: Callable[[Delivery, int], bool],
        *,
        prefetch: int = 500,
        keep: bool = False,
    ) -> str:
        """`succeeds(delivery, how often this queue had this body)`: ack, or reject without requeue."""
        channel = await self.connection.channel()
        await channel.qos(prefetch)

        def on_delivery(delivery: Delivery) -> None:
            key = (queue, delivery.message.body)
            self.seen[key] += 1
            if keep:
                self.deliveries.append((queue, delivery, time.time()))
            if succeeds(delivery, self.seen[key]):
                self.handled[queue].add(delivery.message.body)
                channel.ack(delivery.tag)
            else:
                channel.reject(delivery.tag, requeue=False)
            self._changed.set()

        return await channel.consume(queue, on_delivery, lambda: None)

    async def publish(self, exchange: str, key: str, messages: Iterable[RawMessage]) -> None:
        """Confirmed."""
        channel = await self.connection.channel()
        await channel.select_confirms()
        await publish_all(channel, exchange, key, messages)
        await channel.close()

    async def until(self, holds: Callable[[], bool], seconds: float, what: str = "") -> None:
        """Wait until something holds; it is looked at when a delivery came, and now and then."""
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"not within {seconds} s: {what}; {self._told()}"
            self._changed.clear()
            try:
                async with asyncio.timeout(0.2):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _told(self) -> str:
        """How often bodies were seen, by queue: to find out from a log what a machine far away did."""
        often: dict[str, Counter[int]] = defaultdict(Counter)
        for (queue, _), times in self.seen.items():
            often[queue][times] += 1
        told = ", ".join(
            f"{queue}: {', '.join(f'{count} bodies {times} ×' for times, count in sorted(by.items()))}"
            for queue, by in often.items()
        )
        ended = self.connection.closed
        return f"seen in {told or 'no queue'}" + (
            f"; its line ended: {ended.result()}" if ended.done() else ""
        )

    async def depth(self, queue: str) -> int:
        channel = await self.connection.channel()
        count = (await channel.declare_queue(queue, passive=True)).message_count
        await channel.close()
        return count


async def depth(app: Application, queue: str) -> int:
    """0 also for a queue that is not there yet."""
    try:
        return await app.depth(queue)
    except NotFound:
        return 0


async def until_depth(app: Application, queue: str, least: int, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while await depth(app, queue) < least:  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.05)


async def until_empty(app: Application, queue: str) -> None:
    async with asyncio.timeout(60):
        while await depth(app, queue):  # noqa: ASYNC110 -- the broker tells of no event
            await asyncio.sleep(0.1)


async def let_die(app: Application, origin: str, made: list[RawMessage]) -> None:
    """These die in `origin`, and nobody consumes it afterwards."""
    channel = await app.connection.channel()
    await channel.qos(100)
    tag = await channel.consume(origin, lambda d: channel.reject(d.tag, requeue=False), lambda: None)
    for at in range(0, len(made), 5):  # some origins here are small
        await app.publish("", origin, made[at : at + 5])
        await until_depth(app, f"{origin}.dlq", min(at + 5, len(made)))
    await channel.cancel(tag)
    await channel.close()


class DeafPlug(Plug):
    """From the first such method on nothing that is said on its connection arrives. By default a publish: so
    all letters that were taken stay in hand."""

    method = PUBLISH

    async def _pump(self, direction: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        deaf = False
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if direction == "sent" and not deaf and (at := data.find(self.method)) >= 0:
                    deaf = True
                    sink.write(data[: at - FRAME_HEAD_BYTES])
                if not deaf:
                    sink.write(data)
                    await sink.drain()
        self._lines.discard(sink)
        sink.close()


def plugged_in(vhost: Vhost, plug: Plug) -> Vhost:
    """The same vhost, its AMQP through the plug."""
    parts = urlsplit(vhost.broker.url)
    url = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{plug.address.port}")).geturl()
    return replace(vhost, broker=replace(vhost.broker, url=url))
