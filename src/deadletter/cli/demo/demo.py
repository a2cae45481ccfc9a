"""`dlq demo`: everything at once on a private broker, to look at.

A shop's orders fail because a payment service is down; they die into a dead letter queue. Then they are
moved back, while somebody pulls the plug in the middle, and counted: every order by its number. Those that
die again are told from new ones by the checker. The doctor looks at a shape that multiplies letters, and the
right one is declared. The retry service lives through an outage; an application does its own retries; and
what it put aside is grouped by what went wrong, repaired and sent back. At last a shop goes on, with the page
to look at.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from deadletter.amqp.address import Address, parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.broker.declare import DeclareOutcome
from deadletter.broker.live_topology import read_topology
from deadletter.broker.queue_counts import counts_on
from deadletter.cli.demo import demo_consumer, demo_desk, demo_page, demo_replay, demo_serve
from deadletter.cli.doctor_command import finding_text
from deadletter.cli.peek_command import letter_text
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.terminal.units import count
from deadletter.core import layouts
from deadletter.core.deciding.backoff import Fixed, compile_schedule
from deadletter.core.deciding.deaths import ByReason
from deadletter.core.letter import message, names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.text.durations import duration_ms, elapsed_text
from deadletter.core.topology.queue_arguments import (
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_QUEUE_TYPE,
)
from deadletter.core.topology.queue_patterns import mapping
from deadletter.doctor.finding import Finding, Severity
from deadletter.errors import UsageError
from deadletter.move import courier
from deadletter.move.courier import Courier, Leave, Letter, MoveTally, Send, Verdict
from deadletter.operations.apply import apply
from deadletter.operations.checking import CheckWish, check
from deadletter.operations.examining import examine_broker
from deadletter.operations.peeking import peek
from deadletter.testing.cuttable_line import Plug
from deadletter.testing.node.private import PrivateBroker, private_broker

ORDERS, DLQ, REVIEW, RETIRED = "orders", "orders.dlq", "orders.review", "orders.retired"
DEAD = "orders.dead"
NEW = 20


def page_seconds(told: str | None) -> float | None:
    """How long the page stays; None: until Ctrl-C. Where nobody looks, it is only shown that it answers."""
    if told is None:
        return None if sys.stdout.isatty() else 0.0
    try:
        return duration_ms(told) / 1000
    except ValueError as error:
        raise UsageError(f"--for: expected {error}, got {told!r}") from error


def run(*, letters: int, version: str | None, page_s: float | None) -> Exit:
    """`page_s`: so long the page stays; None: until Ctrl-C."""
    console = Console(highlight=False)
    with console.status("starting a private RabbitMQ (the first time it may have to be installed)…"):
        starting = private_broker(version=version)
        broker = starting.__enter__()
    try:
        console.print(f"[bold]A private RabbitMQ {broker.version}[/] at {broker.url}")
        return event_loop.run(_show(console, broker, letters, page_s))
    finally:
        starting.__exit__(None, None, None)
        console.print("The private broker is gone again, without a trace.")


async def _show(console: Console, broker: PrivateBroker, letters: int, page_s: float | None) -> Exit:
    address = parse_addresses(broker.url)[0]
    connection = await connect(address, name="dlq demo")
    channel = await connection.channel()
    await _set_up(channel)
    console.rule("1. orders die")
    await channel.select_confirms()
    await publish_all(channel, "shop", "order.placed", _orders(letters))
    await _reject_all(channel, letters)
    console.print(
        f"{count(letters, 'order')} published to the exchange [b]shop[/], rejected by a consumer whose "
        f"payment service is down.\nThey are in [b]{DLQ}[/] now; [b]dlq peek {DLQ}[/] shows of one:"
    )
    await _show_one(console, address)

    console.rule("2. dlq move orders.dlq orders, and the plug is pulled in the middle")
    back = Send(routing_key=ORDERS)
    tally = await _move(address, lambda _letter: back, cut_at=letters // 3)
    _report(console, tally, DLQ)

    console.rule("3. did it lose anything?")
    lost, inside = await _count(console, address, letters)

    console.rule("4. a target that is not there")
    await channel.delete_queue(RETIRED)
    await _until(channel, ORDERS, inside)
    await _reject_all(channel, inside)
    tally = await _move(address, _every_tenth)
    _report(console, tally, DLQ)
    await _until(channel, DLQ, tally.failed + tally.left)
    left = (await counts_on(channel, DLQ)).ready
    console.print(f"{count(left)} still in {DLQ}: exactly those, and the others went by at the same time.")
    console.rule("5. dlq check: what died twice is for a person")
    await publish_all(channel, "shop", "order.placed", _orders(NEW))
    await _reject_all(channel, NEW, inside=left + NEW)
    report = await check(
        [address],
        CheckWish(names=mapping(DLQ, DEAD), max_retries=1, count_by=ByReason(reason="rejected")),
    )
    for queue in report.queues:
        console.print(
            f"looked at {count(queue.seen)}: {queue.moved:,} died twice and went to [b]{queue.target}[/], "
            f"{queue.left:,} died once and stayed in {queue.queue}"
        )
    console.rule("6. dlq doctor, and dlq topology apply")
    healed = await _heal(console, broker, channel)
    console.rule("7. dlq serve: a payment service is down for a moment")
    served = await demo_serve.show(console, broker, orders=max(20, letters // 10))
    console.rule("8. the same inside a Python application: from deadletter import Consumer")
    consumed = await demo_consumer.show(console, url=broker.url, api=broker.api)
    console.rule("9. what failed, and is it one cause or forty?")
    grouped = await demo_desk.show(console, url=broker.url, queue=demo_consumer.DLQ)
    console.rule("10. dlq replay: a release wrote amounts as text; repaired, and sent back with care")
    replayed = await demo_replay.show(console, url=broker.url, api=broker.api)
    await connection.close()
    console.rule("11. the page")
    answered = await demo_page.show(console, url=broker.url, api=broker.api, seconds=page_s)
    console.rule()
    console.print(
        "Try it on yours:  [b]dlq move SOURCE TARGET --url amqp://… --dry-run[/]\n"
        "                  [b]dlq serve --watch '*.dlq' --url amqp://…[/]\n"
        "In Python:        [b]docs/consumer.md[/]"
    )
    right = [healed, served, consumed, grouped, replayed, answered, lost == 0]
    right += [left == tally.failed + tally.left, [(q.moved, q.left) for q in report.queues] == [(left, NEW)]]
    return Exit.DONE if all(right) else Exit.LEFT


async def _heal(console: Console, broker: PrivateBroker, channel: Channel) -> bool:
    """Two queues that share a fanout for their dead letters; found, put right, and looked at again."""
    await channel.declare_exchange("shared.dlx", "fanout")
    for queue in ("invoices", "mails"):
        await channel.declare_queue(f"{queue}.dlq")
        await channel.bind_queue(f"{queue}.dlq", "shared.dlx")
        await channel.declare_queue(queue, arguments={X_DEAD_LETTER_EXCHANGE: "shared.dlx"})
    address = parse_addresses(broker.url)[0]
    found = await _examined(address, broker.api)
    console.print("Two queues share one fanout for their dead letters. [b]dlq doctor[/]:")
    for finding in found:
        console.print(finding_text(finding), markup=False, soft_wrap=True)
    for queue in ("invoices", "mails"):
        # A queue's arguments are frozen, so it is declared again; its letters would move with --migrate.
        await channel.delete_queue(queue)
        await channel.declare_queue(queue, arguments={X_QUEUE_TYPE: "quorum"})
        live = await read_topology(address, broker.api)
        schedule = compile_schedule(Fixed(delays_ms=(1_000, 10_000, 60_000)), 3)
        plan = layouts.plan("return", queue, schedule=schedule, version=live.version, there=live)
        applied = await apply([address], broker.api, plan.topology, live, migrating=True)
        created = sum(item.outcome is DeclareOutcome.CREATED for item in applied.items)
        console.print(
            f"[b]dlq topology apply --queue {queue} --backoff 1s,10s,1min[/]: "
            f"{count(created, 'thing')} declared, {count(len(applied.left), 'difference')} left"
        )
    rest = await _examined(address, broker.api)
    console.print(f"[b]dlq doctor[/] again: {count(len(rest), 'finding')} of this kind.")
    return bool(found) and not rest


async def _examined(address: Address, api: str) -> list[Finding]:
    told = await examine_broker(address, api, watches=(), ignore=frozenset(), at_least=Severity.ERROR)
    return [finding for finding in told.findings if finding.rule == "shared-dlx-fanout"]


async def _set_up(channel: Channel) -> None:
    await channel.declare_exchange("shop", "topic")
    await channel.declare_queue(DLQ, arguments={X_QUEUE_TYPE: "quorum"})
    dead: dict[str, Value] = {X_DEAD_LETTER_EXCHANGE: "", X_DEAD_LETTER_ROUTING_KEY: DLQ}
    await channel.declare_queue(ORDERS, arguments={X_QUEUE_TYPE: "quorum", **dead})
    await channel.declare_queue(REVIEW, arguments={X_QUEUE_TYPE: "quorum"})
    await channel.declare_queue(RETIRED, arguments={X_QUEUE_TYPE: "quorum"})
    await channel.bind_queue(ORDERS, "shop", "order.*")


def _orders(letters: int) -> Iterator[RawMessage]:
    for number in range(letters):
        properties = View(content_type="application/json", delivery_mode=2, message_id=f"order-{number}")
        yield RawMessage(message.encode(properties), b'{"order": %d, "total": "12.90 EUR"}' % number)


async def _reject_all(channel: Channel, letters: int, *, inside: int | None = None) -> None:
    """A consumer that fails on every order."""
    died = asyncio.Event()
    seen = 0

    def fail(delivery: Delivery) -> None:
        nonlocal seen
        seen += 1
        channel.reject(delivery.tag, requeue=False)
        if seen >= letters:
            died.set()

    await channel.qos(500)
    consumer = await channel.consume(ORDERS, fail, died.set)
    await died.wait()
    await channel.cancel(consumer)
    await _until(channel, DLQ, letters if inside is None else inside)


async def _until(channel: Channel, queue: str, letters: int) -> None:
    """Dying and being given back are not instant: wait until so many are there."""
    for _ in range(600):
        if (await counts_on(channel, queue)).ready >= letters:
            return
        await asyncio.sleep(0.05)


async def _show_one(console: Console, address: Address) -> None:
    look = await peek([address], DLQ, limit=1)
    for seen in look.letters:
        console.print(letter_text(1, seen, 400), markup=False)


def _every_tenth(letter: Letter) -> Verdict:
    """Most go to review, every tenth to a queue that was deleted, and one stays where it is."""
    number = int((letter.view.message_id or "order-0").removeprefix("order-"))
    if number == 7:
        return Leave()
    return Send(routing_key=RETIRED if number % 10 == 0 else REVIEW)


async def _move(
    address: Address, decide: Callable[[Letter], Verdict], *, cut_at: int | None = None
) -> MoveTally:
    """Move over a line that is cut when `cut_at` letters are over."""
    async with Plug(address) as plug:
        with MoveScreen(f"{DLQ} → …") as screen:

            def on_event(event: courier.MoveEvent) -> None:
                screen.on_event(event)
                over = isinstance(event, courier.Progress) and cut_at is not None and event.moved >= cut_at
                if over and not plug.cuts:
                    screen.say("— the plug is pulled: both connections are dead —")
                    plug.cut()

            return await Courier([plug.address], source=DLQ, decide=decide, on_event=on_event).run()


def _report(console: Console, tally: MoveTally, source: str) -> None:
    console.print(
        f"moved {count(tally.moved)} in {elapsed_text(tally.seconds)}, {count(tally.reconnects, 'reconnect')}"
    )
    if tally.left:
        console.print(f"{count(tally.left)} left in {source} because the decision says so")
    for why, number in tally.reasons.items():
        console.print(f"{count(number)} stayed in {source}: {why}")


async def _count(console: Console, address: Address, letters: int) -> tuple[int, int]:
    """Look at every order in the target, by number and by id; returns how many are lost, how many there."""
    ids: dict[str, set[str]] = {}
    copies: Counter[str] = Counter()

    def look(letter: Letter) -> Verdict:
        number = letter.view.message_id or "?"
        copies[number] += 1
        ids.setdefault(number, set()).add(str(letter.headers.get(names.ID)))
        return Leave()

    await Courier([address], source=ORDERS, decide=look).run()
    twice = sum(n - 1 for n in copies.values() if n > 1)
    lost = letters - len(copies)
    same = sum(1 for number, n in copies.items() if n > 1 and len(ids[number]) == 1)
    table = Table(show_edge=False, show_header=False)
    table.add_row("orders published", f"{letters:,}")
    table.add_row("different orders back in the queue", f"{len(copies):,}")
    table.add_row("[b]lost[/]", f"[b]{lost:,}[/]")
    table.add_row("there twice because of the pulled plug", f"{twice:,}")
    table.add_row("… of these, recognisable by one and the same deadletter-id", f"{same:,}")
    console.print(table)
    return lost, copies.total()
