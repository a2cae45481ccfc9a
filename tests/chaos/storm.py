"""A storm: services, broker and PostgreSQL are killed at random while letters are published, fail and return.

The application here is set up so that it loses nothing by itself: quorum queues, dead-lettering at least
once, publishes that are confirmed and repeated until they are. What is missing in the end was lost by us.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers import Vhost
from tests.chaos.ledger import Ledger
from tests.postgres import PrivatePostgres
from tests.serving import Served

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.handshake import connect
from deadletter.core.letter import message, names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import View
from deadletter.errors import DeadletterError

ORIGINS = ("orders", "mails")
CALM_S = 6.0
"""Everything must have been empty for so long: longer than any delay, and than the broker's figures."""
SETTLE_S = 240.0
SETTINGS = """
[default_policy]
retries = 3
backoff = { kind = "fixed", delays = ["500ms", "1s", "2s"] }

[[watches]]
dlq = "*.dlq"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    minutes: float
    rate_per_s: int
    seed: int = 1
    instances: int = 2
    pause_s: tuple[float, float] = (2.0, 6.0)
    """Between two blows."""


@dataclass(slots=True)
class Storm:
    vhost: Vhost
    postgres: PrivatePostgres
    home: Path
    weather: Weather
    say: Callable[[str], None]
    ledger: Ledger = field(default_factory=Ledger)
    blows: Counter[str] = field(default_factory=Counter)
    settled: bool = False
    _publishing: bool = True
    _raging: bool = True
    _services: list[Served] = field(default_factory=list)
    _number: int = 0

    async def run(self) -> None:
        """All of it: set up, rage, settle, count."""
        await self._declare()
        store = f'[store]\nurl = "{self.postgres.url}"\n'
        self._services = [
            Served(self.vhost, self.home, store + SETTINGS, name=f"s{n}")
            for n in range(self.weather.instances)
        ]
        tasks: list[asyncio.Task[None]] = []
        try:
            for one in self._services:
                one.start(ready=False)
            for one in self._services:
                await asyncio.to_thread(one.until_ready)
            tasks += [asyncio.create_task(self._consume(origin)) for origin in ORIGINS]
            tasks += [asyncio.create_task(self._publish()), asyncio.create_task(self._keep_up())]
            await self._rage()
            self._publishing = False
            self.say("the storm is over; waiting until everything has come to rest")
            await self._settle(tasks[len(ORIGINS)])
            await self._count()
        finally:
            self._raging = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in self._services:
                one.close()

    # -- the application ---------------------------------------------------------------------------------
    async def _declare(self) -> None:
        connection = await connect(parse_addresses(self.vhost.url)[0], name="storm")
        channel = await connection.channel()
        for origin in ORIGINS:
            safe: dict[str, Value] = {
                "x-queue-type": "quorum",
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": f"{origin}.dlq",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
            await channel.declare_queue(f"{origin}.dlq", arguments={"x-queue-type": "quorum"})
            await channel.declare_queue(origin, arguments=safe)
        await connection.close()

    async def _consume(self, origin: str) -> None:
        while True:
            with suppress(DeadletterError, OSError):
                connection = await connect(parse_addresses(self.vhost.url)[0], name=f"handler of {origin}")
                try:
                    channel = await connection.channel()
                    await channel.qos(200)
                    await channel.consume(origin, self._handler(channel), lambda: None)
                    await asyncio.shield(connection.closed)
                finally:
                    await connection.close()
            await asyncio.sleep(0.3)

    def _handler(self, channel: Channel) -> Callable[[Delivery], None]:
        def on_delivery(delivery: Delivery) -> None:
            if self.ledger.deliver(delivery):
                channel.ack(delivery.tag)
            else:
                channel.reject(delivery.tag, requeue=False)

        return on_delivery

    async def _publish(self) -> None:
        """At the rate, over every interruption; ends when it may and all is confirmed."""
        waiting: list[bytes] = []
        while self._publishing or waiting:
            with suppress(DeadletterError, OSError):
                connection = await connect(parse_addresses(self.vhost.url)[0], name="publisher")
                try:
                    waiting = await self._publish_on(await connection.channel(), waiting)
                finally:
                    await connection.close()
            await asyncio.sleep(0.3)

    async def _publish_on(self, channel: Channel, waiting: list[bytes]) -> list[bytes]:
        """Until the line is lost; returns what was not confirmed."""
        under_way: dict[int, bytes] = {}
        properties = message.encode(View(delivery_mode=2, headers={"tenant": "t1"}))
        ways = [channel.publishing("", origin, mandatory=True) for origin in ORIGINS]

        def send(body: bytes) -> None:
            under_way[channel.publish(ways[len(body) % 2], properties, body)] = body

        def on_confirm(tag: int, multiple: bool, ok: bool) -> None:
            tags = [t for t in under_way if t <= tag] if multiple else [tag]
            for each in tags:
                body = under_way.pop(each)
                if ok:
                    self.ledger.confirmed.add(body)
                else:
                    waiting.append(body)
                    self.ledger.republished.add(body)

        channel.on_confirm = on_confirm
        waiting = list(waiting)
        try:
            await channel.select_confirms()
            before = time.monotonic()
            while self._publishing or waiting or under_way:
                for body in waiting[:200]:
                    send(body)
                del waiting[:200]
                await asyncio.sleep(0.05)
                now = time.monotonic()
                if self._publishing and len(under_way) < 2000:
                    for _ in range(int((now - before) * self.weather.rate_per_s)):
                        self._number += 1
                        send(f"{'n' * (1 + self._number % 2)}{self._number}".encode())
                    before += int((now - before) * self.weather.rate_per_s) / self.weather.rate_per_s
                else:
                    before = now
                if channel.error is not None:
                    raise channel.error
        except (DeadletterError, OSError):
            self.ledger.republished.update(under_way.values())
        return [*waiting, *under_way.values()]

    # -- the weather ---------------------------------------------------------------------------------------
    async def _rage(self) -> None:
        dice = random.Random(self.weather.seed)
        until = time.monotonic() + self.weather.minutes * 60
        kinds = ["service"] * 5 + ["postgres"] * 2 + ["broker"] * 2
        while time.monotonic() < until:
            await asyncio.sleep(dice.uniform(*self.weather.pause_s))
            kind = dice.choice(kinds)
            self.blows[kind] += 1
            self.say(f"kill -9 {kind}; confirmed {len(self.ledger.confirmed):,}")
            match kind:
                case "service":
                    dice.choice(self._services).kill()  # `_keep_up` starts it again
                case "postgres":
                    await asyncio.to_thread(self.postgres.stop)
                    await asyncio.sleep(dice.uniform(0.5, 3.0))
                    await asyncio.to_thread(self.postgres.start)
                case _:
                    await asyncio.to_thread(self.vhost.broker.kill)
                    await asyncio.to_thread(self.vhost.broker.restart)

    async def _keep_up(self) -> None:
        """What systemd does: a service that ended is started again after a second."""
        while True:
            await asyncio.sleep(1.0)
            for one in self._services:
                code = one.process.poll()
                if code is not None:
                    if code != -9:
                        self.blows[f"service ended by itself with {code}"] += 1
                        self.say(f"{one.name} ended with {code}: {one.said()[-500:]}")
                    one.start(ready=False)

    # -- the end -------------------------------------------------------------------------------------------
    async def _settle(self, publishing: asyncio.Task[None]) -> None:
        until = time.monotonic() + SETTLE_S
        calm_since: float | None = None
        while time.monotonic() < until:
            await asyncio.sleep(0.5)
            left = await asyncio.to_thread(self._left)
            if left or not publishing.done():
                calm_since = None
            elif calm_since is None:
                calm_since = time.monotonic()
            elif time.monotonic() - calm_since > CALM_S:
                self.settled = True
                return
        self.say(f"not at rest after {SETTLE_S:.0f} s: {await asyncio.to_thread(self._left)}")
        for one in self._services:
            self.say(one.said())

    def _left(self) -> dict[str, int]:
        """Queues that still hold something; parked letters are at rest."""
        try:
            queues = self.vhost.list("queues")
        except (OSError, AssertionError):
            return {"the management API": 1}
        return {
            q["name"]: q.get("messages", 1)
            for q in queues
            if q["name"] != names.PARKED and q.get("messages", 1)
        }

    async def _count(self) -> None:
        connection = await connect(parse_addresses(self.vhost.url)[0], name="count")
        channel = await connection.channel()
        while (delivery := await channel.get(names.PARKED)) is not None:
            self.ledger.park(delivery)
            channel.ack(delivery.tag)
        await connection.close()

    def told(self) -> list[str]:
        blows = ", ".join(f"{kind} {count}" for kind, count in self.blows.items())
        rest = "everything came to rest" if self.settled else "IT DID NOT COME TO REST"
        return [f"RabbitMQ {self.vhost.broker.version}; killed: {blows}; {rest}", *self.ledger.told()]

    @property
    def fair(self) -> bool:
        """Nothing lost, nothing strange parked, every double of ours known by its id."""
        ledger = self.ledger
        return self.settled and not ledger.lost and not ledger.strangers() and not ledger.ids_differ()
