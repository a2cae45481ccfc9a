"""A confused deputy: deaths that somebody else wrote, so that the service publishes where he may not.

Whoever may write to a dead-letter exchange can put any `x-death` on a message; on RabbitMQ 3.x whoever may
write to the application's exchange can, too, and an application that copies headers does it unknowingly. None
of it may bring a letter into a queue whose dead letters do not come here.

About `core.deciding.place`, `core.deciding.origin`, `service.intake.sorting`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.letters import headers_of, letter, letters
from tests.serving import Application, served

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage

KINDS = ("classic", "quorum")
PATIENCE_S = 180.0
"""On a machine that has much else to do; nothing waits so long otherwise."""
SETTINGS = """
[default_policy]
retries = 3
backoff = { kind = "fixed", delays = ["100ms"] }
[guards]
require_consumers = false
[guards.breaker]
enabled = false
"""
WATCH = '[[watches]]\ndlq = "*.dlq"\n'


def death(queue: str, reason: str = "rejected", *, key: str = "order.new") -> dict[str, Value]:
    return {
        "count": 3,
        "reason": reason,
        "queue": queue,
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "exchange": "shop",
        "routing-keys": [key],
    }


def forged(body: bytes, *deaths: dict[str, Value], **headers: Value) -> RawMessage:
    return letter(
        body,
        headers={
            "x-death": list(deaths),
            "x-first-death-queue": deaths[-1]["queue"],
            "x-first-death-reason": deaths[-1]["reason"],
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )


async def shop(app: Application, kind: str, *, exchange: str = "dlx") -> None:
    """orders and billing, each with its own dead-letter queue by one exchange; payroll has none."""
    await app.channel.declare_exchange(exchange, "direct")
    for queue in ("orders", "billing"):
        await app.declare(f"{queue}.dlq", kind=kind)
        await app.channel.bind_queue(f"{queue}.dlq", exchange, f"{queue}.dead")
        await app.declare(
            queue, kind=kind, x_dead_letter_exchange=exchange, x_dead_letter_routing_key=f"{queue}.dead"
        )
    await app.declare("payroll", kind=kind)


async def parked(app: Application, count: int) -> dict[bytes, Delivery]:
    found: dict[bytes, Delivery] = {}
    await app.consume(names.PARKED, lambda _delivery, _times: True, keep=True)

    def enough() -> bool:
        found.update({d.message.body: d for queue, d, _ in app.deliveries if queue == names.PARKED})
        return len(found) >= count

    await app.until(enough, PATIENCE_S, f"{count} parked letters, not {sorted(found)}")
    return found


def never(_delivery: Delivery, _times: int) -> bool:
    return False


def always(_delivery: Delivery, _times: int) -> bool:
    return True


@pytest.mark.parametrize("kind", KINDS)
async def test_a_death_written_by_a_publisher_to_the_dlx_leads_nowhere(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """Named are: a queue without a way here, one with a way elsewhere, one behind a possible death."""
    async with Application(vhost.url) as app:
        await shop(app, kind)
        bodies = {
            b"payroll": forged(b"payroll", death("payroll")),
            b"sibling": forged(b"sibling", death("billing")),
            b"behind": forged(b"behind", death("orders", "expired"), death("payroll")),
            b"with our headers": forged(
                b"with our headers",
                death("payroll"),
                deadletter_id="0" * 32,
                deadletter_origin_queue="payroll",
                deadletter_attempt=1,
            ),
            b"no queue at all": forged(b"no queue at all", {**death("x"), "queue": "\udcff\udcfe"}),
            b"through ours": forged(
                b"through ours", death("payroll"), death("deadletter.delay.100", "expired")
            ),
        }
        with served(vhost, tmp_path, SETTINGS + WATCH) as [one]:
            await app.publish("dlx", "orders.dead", bodies.values())
            found = await parked(app, len(bodies))
            assert {body: headers_of(d)[names.CAUSE] for body, d in found.items()} == dict.fromkeys(
                bodies, "origin-unproven"
            )
            # What came by chance of the header is not passed on as if it were true.
            assert names.ORIGIN_QUEUE not in headers_of(found[b"payroll"])
            assert "payroll" in str(headers_of(found[b"payroll"])[names.WHY])
            assert one.process.poll() is None
        for queue in ("payroll", "billing", "orders"):
            assert await app.depth(queue) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_really_died_goes_home_beside_what_was_forged(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """On 3.x the broker goes on with a forged death, on 4.x it writes its own; both go where they died."""
    async with Application(vhost.url) as app:
        await shop(app, kind)
        await app.channel.declare_exchange("shop", "fanout")
        await app.channel.bind_queue("orders", "shop")
        with served(vhost, tmp_path, SETTINGS + WATCH):
            await app.consume("orders", lambda _delivery, times: times > 1)
            await app.publish("shop", "order.new", letters("plain", 5))
            await app.publish(
                "shop", "order.new", [forged(f"forged-{n}".encode(), death("payroll")) for n in range(5)]
            )
            await app.until(lambda: len(app.handled["orders"]) == 10, PATIENCE_S, "all ten back in orders")
        assert await app.depth("payroll") == 0
        assert await app.depth(names.PARKED) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [False, True])
async def test_an_application_that_copies_headers_gets_its_bills_back_in_billing(
    vhost: Vhost, tmp_path: Path, kind: str, shared: bool
) -> None:
    """Ten bills made from orders that had been round by themselves, all their headers copied; with `shared`
    both queues die into one dead-letter queue, so that `orders` would be believed of any letter in it."""
    async with Application(vhost.url) as app:
        await app.declare("billing.dlq", kind=kind)
        await app.declare("orders.dlq", kind=kind)
        await app.declare(
            "billing", kind=kind, x_dead_letter_exchange="", x_dead_letter_routing_key="billing.dlq"
        )
        # An order goes round through a wait of the application's own, and then dies for good.
        await app.declare(
            "orders.wait",
            kind=kind,
            x_message_ttl=50,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key="orders",
        )
        await app.channel.declare_exchange("orders.dlx", "fanout")
        await app.channel.bind_queue("orders.wait", "orders.dlx")
        if shared:
            await app.channel.bind_queue("billing.dlq", "orders.dlx")
        await app.declare("orders", kind=kind, x_dead_letter_exchange="orders.dlx")
        rounds: list[RawMessage] = []

        def bill(delivery: Delivery, times: int) -> bool:
            if times == 2:
                rounds.append(RawMessage(delivery.message.properties, b"bill " + delivery.message.body))
            return times > 1

        await app.consume("orders", bill)
        await app.publish("", "orders", letters("order", 10))
        await app.until(lambda: len(rounds) == 10, PATIENCE_S, "ten orders that had been round")
        if shared:
            await app.channel.purge_queue("billing.dlq")
        settings = SETTINGS + WATCH.replace("*.dlq", "billing.dlq")
        with served(vhost, tmp_path, settings):
            await app.consume("billing", lambda _delivery, times: times > 1)
            await app.publish("", "billing", rounds)
            await app.until(
                lambda: len(app.handled["billing"]) == 10, PATIENCE_S, "ten bills back in billing"
            )
        assert not [body for queue, body in app.seen if queue == "orders" and body.startswith(b"bill")]
        assert await app.depth(names.PARKED) == 0


async def test_only_the_exchange_by_which_a_letter_came_can_have_killed_it(
    vhost: Vhost, tmp_path: Path
) -> None:
    """Two dead-letter exchanges lead to one queue; who may write to one names a queue of the other."""
    async with Application(vhost.url) as app:
        await app.declare("all.dlq")
        for name in ("low", "high"):
            await app.channel.declare_exchange(f"{name}.dlx", "fanout")
            await app.channel.bind_queue("all.dlq", f"{name}.dlx")
            await app.declare(name, x_dead_letter_exchange=f"{name}.dlx")
        with served(vhost, tmp_path, SETTINGS + WATCH):
            await app.consume("low", lambda _delivery, times: times > 1)
            await app.publish("low.dlx", "k", [forged(b"forged", death("high"))])
            await app.publish("", "low", [letter(b"genuine")])
            found = await parked(app, 1)
            assert headers_of(found[b"forged"])[names.CAUSE] == "origin-unproven"
            await app.until(lambda: b"genuine" in app.handled["low"], PATIENCE_S, "the genuine one back")
        assert await app.depth("high") == 0


async def test_what_the_configuration_names_is_believed(vhost: Vhost, tmp_path: Path) -> None:
    """A dead-letter queue that no binding leads to: fed by a shovel, say. And a claim without any death."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("from.elsewhere", "fanout")
        await app.declare("import.dlq")
        await app.channel.bind_queue("import.dlq", "from.elsewhere")
        for queue in ("import-orders", "import-bills", "payroll"):
            await app.declare(queue)
            await app.consume(queue, always)
        settings = SETTINGS + WATCH + 'origins = ["import-*"]\n'
        with served(vhost, tmp_path, settings):
            await app.publish(
                "from.elsewhere",
                "k",
                [
                    forged(b"one", death("import-orders")),
                    letter(b"two", headers={"deadletter-origin-queue": "import-bills"}),
                    forged(b"three", death("payroll")),
                ],
            )
            await app.until(lambda: b"one" in app.handled["import-orders"], PATIENCE_S, "one back")
            await app.until(lambda: b"two" in app.handled["import-bills"], PATIENCE_S, "two back")
            assert headers_of((await parked(app, 1))[b"three"])[names.CAUSE] == "origin-unproven"
        assert not app.handled["payroll"]


@pytest.mark.parametrize("by_policy", [False, True])
async def test_a_queue_that_is_younger_than_the_last_look_is_not_doubted(
    vhost: Vhost, tmp_path: Path, by_policy: bool
) -> None:
    """Declared, bound and dead within a moment, under a service that looks around once an hour only."""
    async with Application(vhost.url) as app:
        await app.declare("late.dlq")
        with served(vhost, tmp_path, SETTINGS + WATCH, start=False) as [one]:
            rest = one.config.read_text().replace('survey = "1s"', 'survey = "1h"')
            one.config.write_text(rest)
            one.start()
            await app.channel.declare_exchange("late.dlx", "topic")
            await app.channel.bind_queue("late.dlq", "late.dlx", "#")
            if by_policy:
                await app.declare("late")
                definition = {"dead-letter-exchange": "late.dlx"}
                vhost.put(
                    "policies", "late-dlx", pattern="^late$", definition=definition, **{"apply-to": "queues"}
                )
            else:
                await app.declare("late", x_dead_letter_exchange="late.dlx")
            await app.consume("late", lambda _delivery, times: times > 1)
            await app.publish("", "late", letters("late", 20))
            await app.until(lambda: len(app.handled["late"]) == 20, PATIENCE_S, "all of them back")
        assert await app.depth(names.PARKED) == 0


async def test_an_origin_that_was_deleted_is_parked_as_missing(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await shop(app, "quorum")
        await app.consume("orders", never)
        await app.publish("", "orders", letters("gone", 3))
        await app.until(lambda: len(app.seen) == 3, 120)
        await app.channel.delete_queue("orders")
        with served(vhost, tmp_path, SETTINGS + WATCH):
            found = await parked(app, 3)
        assert {headers_of(d)[names.CAUSE] for d in found.values()} == {"origin-missing"}


async def test_whoever_writes_to_the_exchange_of_the_levels_names_no_origin(
    vhost: Vhost, tmp_path: Path
) -> None:
    """A letter that never died, published where retries wait, with headers of ours that name any queue."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("retry-exchange", "direct")
        await app.declare(
            "orders", x_dead_letter_exchange="retry-exchange", x_dead_letter_routing_key="retry-routing-key"
        )
        await app.declare("payroll")
        levels = '[[watches]]\nlayout = "levels"\ndelays = ["100ms"]\n'
        every = '[[policies]]\nname = "all"\nmatch = { routing_key = "#" }\nretries = 2\n'
        with served(vhost, tmp_path, every + SETTINGS + levels):
            await app.consume("orders", lambda _delivery, times: times > 1)
            await app.publish("", "orders", [letter(b"genuine")])
            claim: dict[str, Value] = {names.ORIGIN_QUEUE: "payroll", names.ATTEMPT: 1, names.ID: "0" * 32}
            await app.publish("route-delay", "binding.k.1", [letter(b"forged", headers=claim)])
            await app.until(lambda: b"genuine" in app.handled["orders"], PATIENCE_S, "the genuine one back")
            await app.consume("dlq-queue", always, keep=True)
            await app.until(
                lambda: ("dlq-queue", b"forged") in app.seen, PATIENCE_S, "the forged one put aside"
            )
        (aside,) = [d for queue, d, _ in app.deliveries if queue == "dlq-queue"]
        assert headers_of(aside)[names.CAUSE] == "origin-unproven"
        assert await app.depth("payroll") == 0
