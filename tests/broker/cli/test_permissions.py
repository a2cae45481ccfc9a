"""Each row of docs/permissions.md as it stands: a user with just these patterns and tags does the whole work.

About `core.layouts.permissions`, `consumer.queues.declaring_command`, `cli.serve_command`,
`broker.declare`, `broker.management`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from tests import consuming, postbox
from tests.brokers import Vhost, seen_by
from tests.commanding import command
from tests.letters import letter
from tests.paths import ROOT
from tests.ports import free_port
from tests.serving import Application, Served, let_die, served, until_depth

from deadletter import Consumer, Message, exponential, fixed
from deadletter.core.deciding.backoff import Backoff
from deadletter.core.layouts import permissions
from deadletter.core.topology.layout_names import LayoutName
from deadletter.errors import ServiceRefused

PAGE = ROOT / "docs/permissions.md"
ORDERS = ("orders.dlq", "orders")


class Row(NamedTuple):
    subject: str
    configure: str
    write: str
    read: str
    tags: str


def rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for line in PAGE.read_text().splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if len(cells) == len(Row._fields) and cells[0] not in ("for", "---"):
            row = Row(*(cell.replace(r"\|", "|").replace("`", "") for cell in cells))
            found[row.subject] = row
    return found


@contextmanager
def allowed(vhost: Vhost, row: Row) -> Iterator[Vhost]:
    """The vhost as this row's user sees it."""
    with seen_by(vhost, configure=row.configure, write=row.write, read=row.read, tags=row.tags) as small:
        yield small


@pytest.fixture
def shop(vhost: Vhost) -> Vhost:
    """`orders` with one letter that died there."""

    async def work() -> None:
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await let_die(app, "orders", [letter(b"one")])

    asyncio.run(work())
    return vhost


def told(small: Vhost) -> dict[str, str]:
    return {"DLQ_URL": small.url, "DLQ_API": small.api, "HOME": "/nonexistent"}


def dlq(small: Vhost, *arguments: str) -> str:
    done = command(*arguments, environment=told(small))
    assert done.returncode == 0, done.stderr + done.stdout
    assert not done.stderr
    return done.stdout


def peeks(small: Vhost, shop: Vhost) -> None:
    assert "one" in dlq(small, "peek", "orders.dlq")


def moves(small: Vhost, shop: Vhost) -> None:
    assert "moved 1 letter" in dlq(small, "move", *ORDERS)
    assert postbox.depth(shop.url, "orders") == 1


def checks(small: Vhost, shop: Vhost) -> None:
    dlq(small, "check", "--dlq", "orders.dlq", "--target", "orders.failed", "--max-retries", "0")
    assert postbox.depth(shop.url, "orders.failed") == 1


def checks_by_pattern(small: Vhost, shop: Vhost) -> None:
    dlq(small, "check", "--dlq", "*.dlq", "--target", "*.failed", "--max-retries", "0")
    assert postbox.depth(shop.url, "orders.failed") == 1


def looks_around(small: Vhost, shop: Vhost) -> None:
    done = command("doctor", environment=told(small))
    assert done.returncode in (0, 1), done.stderr
    assert "2 queues" in done.stdout
    assert "orders.dlq" in dlq(small, "topology", "draw", "--format", "mermaid")
    assert "orders.dlq" in dlq(small, "queues")


def applies(small: Vhost, shop: Vhost) -> None:
    said = dlq(small, "topology", "apply", "--queue", "orders", "--layout", "return", "--backoff", "1s")
    assert "everything planned is there" in said


RETRY_ONCE = """
[default_policy]
retries = 1
backoff = { kind = "fixed", delays = ["1s"] }
"""
RETURN = (
    RETRY_ONCE
    + """
[[watches]]
dlq = "orders.dlq"
"""
)
SWEEP = (
    RETRY_ONCE
    + """
[[watches]]
dlq = "orders.dlq"
mode = "sweep"
every = "2s"
"""
)
LEVELS = """
[[policies]]
match = { routing_key = "orders" }
retries = 1
[[watches]]
layout = "levels"
delays = ["1s"]
"""
"""A letter that came by the default exchange has its queue's name as its key."""


def serves(settings: str) -> Callable[[Vhost, Vhost, Path], None]:
    """One retry, then it is parked."""

    def work(small: Vhost, shop: Vhost, home: Path) -> None:
        with served(small, home, settings) as (service,):
            asyncio.run(fails_again(shop, "deadletter.parked", letters=2))
            assert "does not work" not in service.said()

    return work


def serves_levels(small: Vhost, shop: Vhost, home: Path) -> None:
    with served(small, home, LEVELS) as (service,):
        shop.delete("queues", "orders")
        dead = {"x_dead_letter_exchange": "retry-exchange", "x_dead_letter_routing_key": "retry-routing-key"}
        postbox.declare(shop.url, "orders", kind="quorum", **dead)
        asyncio.run(fails_again(shop, "dlq-queue", letters=1))
        assert "does not work" not in service.said()


async def fails_again(shop: Vhost, parked: str, *, letters: int) -> None:
    async with Application(shop.url) as app:
        await app.consume("orders", lambda _, __: False)
        await app.publish("", "orders", [letter(b"two")])
        await until_depth(app, parked, letters)
        assert app.seen["orders", b"two"] == 2


def at_once(work: Callable[[Vhost, Vhost], None]) -> Callable[[Vhost, Vhost, Path], None]:
    return lambda small, shop, _: work(small, shop)


def consumes(small: Vhost, shop: Vhost, _: Path) -> None:
    asyncio.run(handles(small, shop))


async def handles(small: Vhost, shop: Vhost) -> None:
    """One letter that fails once and is then done, one that keeps failing and is parked."""
    app = Consumer(small.url, api=small.api, service="shop")
    done: list[bytes] = []

    @app.queue("orders", layout="return", retries=1, backoff=fixed(1))
    async def handle(message: Message) -> None:
        if message.attempt == 1 or message.body == b"bad":
            raise ValueError("not yet")
        done.append(message.body)

    async with consuming.serving(app):
        await consuming.post(shop, b"good", b"bad")
        await consuming.until(lambda: done == [b"good"], "the good one")
        await consuming.until_depth(shop, "deadletter.parked", 1)


WORKS: dict[str, Callable[[Vhost, Vhost, Path], None]] = {
    "dlq peek orders.dlq": at_once(peeks),
    "dlq move orders.dlq orders": at_once(moves),
    "dlq check --dlq orders.dlq --target orders.failed": at_once(checks),
    "dlq check --dlq '*.dlq' --target '*.failed'": at_once(checks_by_pattern),
    "dlq doctor, dlq queues, dlq topology draw": at_once(looks_around),
    "dlq topology apply --queue orders": at_once(applies),
    "dlq serve, layout return": serves(RETURN),
    "dlq serve, layout sweep": serves(SWEEP),
    "dlq serve, layout levels": serves_levels,
    "a consumer of orders, layout return": consumes,
}


def test_every_row_is_tried() -> None:
    assert rows().keys() == WORKS.keys()


@pytest.mark.parametrize("subject", WORKS)
def test_a_row_is_enough(subject: str, shop: Vhost, tmp_path: Path) -> None:
    with allowed(shop, rows()[subject]) as small:
        WORKS[subject](small, shop, tmp_path)


def test_without_the_right_to_set_policies_somebody_sets_them_once(shop: Vhost, tmp_path: Path) -> None:
    row = rows()["dlq serve, layout return"]._replace(tags="management")
    settings = f'[serve]\nadjust_dlqs = false\nlisten = "127.0.0.1:{free_port()}"\n{RETURN}'
    with allowed(shop, row) as small:
        refused = Served(small, tmp_path, settings)
        try:
            refused.start(ready=False)
            assert refused.process.wait(60) == 1
            said = refused.said()
        finally:
            refused.close()
    assert "needs the tag 'policymaker'" in said
    (by_hand,) = re.findall(r"or somebody who may sets it once: rabbitmqctl set_policy -p \S+ (.*)", said)
    definition = re.search(r"'(\{.*\})'", by_hand)
    assert definition
    shop.put(
        "policies",
        "deadletter",
        pattern=r"^deadletter\.",
        definition=json.loads(definition[1]),
        priority=999,
    )
    with allowed(shop, row) as small, served(small, tmp_path, settings, start=False) as (service,):
        service.start(ready=False)
        asyncio.run(fails_again(shop, "deadletter.parked", letters=2))


def test_what_is_told_to_grant_is_enough(shop: Vhost) -> None:
    asked = ("topology", "apply", "--queue", "orders", "--layout", "return", "--backoff", "1s")
    with allowed(shop, Row("", "^$", "^$", "^$", "policymaker")) as small:
        refused = command(*asked, environment=told(small))
        assert refused.returncode == 1
    granted = re.search(r"set_permissions -p \S+ small (.*)", refused.stdout)
    assert granted
    patterns = permissions.PermissionPatterns(*shlex.split(granted[1]))
    with allowed(shop, Row("", *patterns, "policymaker")) as small:
        assert "everything planned is there" in dlq(small, *asked)


def test_a_consumer_needs_no_tag_where_everything_is_declared(shop: Vhost, tmp_path: Path) -> None:
    row = rows()["a consumer of orders, layout return"]
    with allowed(shop, row) as small:
        consumes(small, shop, tmp_path)
    postbox.drain(shop.url, "deadletter.parked", expect=1)
    with allowed(shop, row._replace(tags="", configure="^$")) as small:
        consumes(small, shop, tmp_path)


@pytest.mark.parametrize("layout", ["return", "ladder", "loop"])
@pytest.mark.parametrize("missing", ["the layout", "the queue"])
def test_the_command_a_consumer_names_is_the_one_it_needs(vhost: Vhost, layout: str, missing: str) -> None:
    """Retries, jitter and error rules are the application's: an administrator types what it says, no more."""
    if missing == "the layout":
        postbox.declare(vhost.url, "orders", kind="quorum")
    beside: dict[type[BaseException], Backoff] = {} if layout == "loop" else {KeyError: fixed(45)}
    backoff = fixed(0.9) if layout == "loop" else exponential(0.2, jitter=0.3)

    async def begins(small: Vhost) -> None:
        app = Consumer(small.url, api=small.api)

        @app.queue("orders", layout=cast("LayoutName", layout), retries=7, backoff=backoff, on=beside)
        async def handle(message: Message) -> None: ...

        async with consuming.serving(app):
            pass

    with seen_by(vhost, configure="^$", write=".*", read=".*") as small:
        with pytest.raises(ServiceRefused) as refused:
            asyncio.run(begins(small))
        named = re.search(r"let somebody run: dlq (.*)", str(refused.value))
        assert named
        assert ("--declare-queue" in named[1]) is (missing == "the queue")
        dlq(vhost, *shlex.split(named[1]))
        asyncio.run(begins(small))
