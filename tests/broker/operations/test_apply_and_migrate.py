"""`dlq topology` on a real broker: plan, apply, diff, migrate, draw; every line of what it promises.

About `operations.apply`, `operations.migrating.migrate`, `operations.migrating.swap`,
`operations.migrating.carry`, `broker.declare`, `broker.queue_removal`, `core.topology.migration`,
`cli.topologies.topology_command`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost, call, in_vhost
from tests.commanding import command
from tests.paths import ROOT

from deadletter.amqp.address import parse_addresses
from deadletter.broker.declare import DeclareOutcome
from deadletter.broker.live_topology import read_topology
from deadletter.core import layouts
from deadletter.core.deciding.backoff import Fixed, compile_schedule
from deadletter.core.layouts import LAYOUTS
from deadletter.core.letter import names
from deadletter.core.topology.drift import DifferentQueue, Interrupted, Missing, Overruled, compare
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.migration import copies_name, detour_name, waiting_name
from deadletter.core.topology.rabbitmq_versions import version_of
from deadletter.core.topology.vhost import Binding, Exchange, Queue, Topology, topology
from deadletter.errors import UsageError
from deadletter.move.courier import Terms
from deadletter.operations.apply import Applied, apply
from deadletter.operations.migrating.migrate import Migrated, NotMigrated

LETTERS = 2000
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


def dlq(vhost: Vhost, *arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DLQ_URL": url or vhost.url, "DLQ_API": vhost.api}
    return command("topology", *arguments, environment=environment)


def told(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def live(vhost: Vhost) -> Topology:
    return postbox.run(read_topology(parse_addresses(vhost.url)[0], vhost.api))


def bring(vhost: Vhost, plan: Topology, *, migrating: bool = False, terms: Terms | None = None) -> Applied:
    return postbox.run(
        apply(
            parse_addresses(vhost.url),
            vhost.api,
            plan,
            live(vhost),
            migrating=migrating,
            terms=terms or Terms(),
        )
    )


def shape_of(vhost: Vhost) -> dict[str, Any]:
    """Everything that could have changed, as the broker tells it."""
    keys = {
        "queues": ("name", "type", "durable", "arguments"),
        "exchanges": ("name", "type", "durable", "arguments"),
        "bindings": ("source", "destination", "routing_key", "arguments"),
        "policies": ("name", "pattern", "definition", "priority", "apply-to"),
    }
    return {
        kind: [{key: item[key] for key in some} for item in vhost.list(kind)] for kind, some in keys.items()
    }


# -- plan, apply, diff ------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_applies_once_and_then_never_again(vhost: Vhost, layout: str) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")

    def plan() -> Topology:
        there = live(vhost)
        schedule = compile_schedule(Fixed(delays_ms=(1000,)), 3)
        return layouts.plan(layout, "orders", schedule=schedule, version=there.version, there=there).topology

    if layout == "native" and version_of(vhost.broker.version) < (4, 3):
        with pytest.raises(UsageError, match=r"4\.3\.1"):
            plan()
        return
    first = bring(vhost, plan())
    assert first.complete, first
    assert {item.outcome for item in first.items} == {DeclareOutcome.CREATED}
    before = shape_of(vhost)
    assert compare(plan(), live(vhost)) == ()
    second = bring(vhost, plan(), migrating=True)
    assert {item.outcome for item in second.items} == {DeclareOutcome.THERE}
    assert second.migrations == ()
    assert shape_of(vhost) == before


def test_the_commands_one_after_the_other(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    asked = ("--queue", "orders", "--layout", "return", "--backoff", "1s,5s", "--json")
    assert told(dlq(vhost, "diff", *asked), 1)["drift"]
    assert told(dlq(vhost, "apply", *asked))["complete"]
    before = shape_of(vhost)
    assert told(dlq(vhost, "diff", *asked))["drift"] == []
    assert {item["outcome"] for item in told(dlq(vhost, "apply", *asked))["items"]} == {"already there"}
    assert shape_of(vhost) == before


def test_a_dry_run_touches_nothing(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders")
    before = shape_of(vhost)
    done = dlq(vhost, "apply", "--dry-run", "--queue", "orders", "--backoff", "1s")
    assert done.returncode == 0
    assert "would declare queue deadletter.delay.1000" in done.stdout
    assert shape_of(vhost) == before


def test_the_application_s_queue_that_is_not_there(vhost: Vhost) -> None:
    done = told(dlq(vhost, "apply", "--queue", "orders", "--backoff", "1s", "--json"), 1)
    refused = [item for item in done["items"] if item["outcome"] == "refused"]
    assert [item["subject"] for item in refused] == ["binding deadletter.return.orders → queue orders"]
    assert "--declare-queue" in refused[0]["why"]
    assert told(dlq(vhost, "apply", "--declare-queue", "--queue", "orders", "--backoff", "1s", "--json"))


def test_apply_does_not_die_on_what_differs(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    postbox.declare(vhost.url, "deadletter.delay.1000", kind="classic", x_message_ttl=7)
    asked = ("--queue", "orders", "--layout", "return", "--backoff", "1s,5s")
    done = told(dlq(vhost, "apply", *asked, "--json"), 1)
    outcomes = {item["subject"]: item["outcome"] for item in done["items"]}
    assert outcomes.pop("queue deadletter.delay.1000") == "different"
    assert set(outcomes.values()) == {"created"}
    (drift,) = done["drift"]
    assert drift["subject"] == "queue deadletter.delay.1000"
    assert "x-message-ttl 1000" in drift["planned"]
    assert "type classic" in drift["found"]
    assert any("deadletter.migrating.deadletter.delay.1000" in step for step in drift["steps"])
    text = dlq(vhost, "diff", *asked)
    assert text.returncode == 1
    assert "different: queue deadletter.delay.1000" in text.stdout
    assert text.stderr == ""


def test_a_declaration_that_meets_406_is_one_item(vhost: Vhost) -> None:
    """Somebody declares the queue between our look and our declaration."""
    plan = topology(queues=[Queue(name="a", arguments={"x-max-length": 5}), Queue(name="b")])
    blind = live(vhost)
    postbox.declare(vhost.url, "a", x_max_length=6)
    done = postbox.run(apply(parse_addresses(vhost.url), vhost.api, plan, blind, migrating=False))
    assert [item.outcome for item in done.items] == [DeclareOutcome.DIFFERENT, DeclareOutcome.CREATED]
    assert "406" in done.items[0].why
    assert not done.complete


def test_a_policy_that_goes_before_ours(vhost: Vhost) -> None:
    plan = topology(
        queues=[Queue(name="deadletter.x", type="quorum")],
        policies=[
            BrokerPolicy(
                name="deadletter",
                pattern=r"^deadletter\.",
                definition={"overflow": "reject-publish"},
                priority=9,
                apply_to="queues",
            )
        ],
    )
    assert bring(vhost, plan).complete
    vhost.put("policies", "all", pattern=".*", definition={"max-length": 10}, priority=99)
    (found,) = compare(plan, live(vhost))
    assert isinstance(found, Overruled)
    assert found.by == ("all",)
    assert {one.key for one in found.differences} == {"max-length", "overflow"}
    vhost.put("policies", "all", pattern=".*", definition={"max-length": 10}, priority=1)
    assert compare(plan, live(vhost)) == ()
    vhost.put("operator-policies", "cap", pattern=".*", definition={"max-length": 10}, priority=1)
    (found,) = compare(plan, live(vhost))
    assert isinstance(found, Overruled)
    assert found.by == ("cap (operator policy)",)


def test_a_policy_of_the_plan_changes_only_when_asked(vhost: Vhost) -> None:
    plan = topology(policies=[BrokerPolicy(name="p", pattern="^q$", definition={"max-length": 5})])
    vhost.put("policies", "p", pattern="^q$", definition={"max-length": 6}, priority=0)
    assert [item.outcome for item in bring(vhost, plan).items] == [DeclareOutcome.DIFFERENT]
    assert vhost.get("policies", "p")["definition"] == {"max-length": 6}
    done = bring(vhost, plan, migrating=True)
    assert [item.outcome for item in done.items] == [DeclareOutcome.CHANGED]
    assert done.complete
    assert vhost.get("policies", "p")["definition"] == {"max-length": 5}


# -- permissions ------------------------------------------------------------------------------------------
@contextmanager
def user(vhost: Vhost, *, tags: str, configure: str, write: str = ".*", read: str = ".*") -> Iterator[str]:
    """A user with these permissions; its URL."""
    name = "topo-user"
    call(vhost.broker, "PUT", "users", name, content={"password": "secret", "tags": tags})
    permissions = {"configure": configure, "write": write, "read": read}
    call(vhost.broker, "PUT", "permissions", vhost.name, name, content=permissions)
    try:
        yield in_vhost(vhost.broker.url.replace("guest:guest", f"{name}:secret"), vhost.name)
    finally:
        call(vhost.broker, "DELETE", "users", name)


def test_without_permissions_each_refusal_says_what_is_needed(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    asked = ("--queue", "orders", "--layout", "return", "--backoff", "1s", "--json")
    with user(vhost, tags="management", configure="^deadletter\\.due$") as url:
        done = told(dlq(vhost, "apply", *asked, url=url), 1)
    why = {item["subject"]: (item["outcome"], item["why"]) for item in done["items"]}
    assert why["queue deadletter.due"][0] == "created"
    assert why["queue deadletter.parked"][0] == "refused"
    assert "needs configure on 'deadletter.parked'" in why["queue deadletter.parked"][1]
    assert "set_permissions" in why["queue deadletter.parked"][1]
    assert "policymaker" in why["policy deadletter"][1]
    assert why["exchange deadletter.return.orders"][0] == "refused"
    assert not done["complete"]


def test_a_user_without_the_tag_is_told_so(vhost: Vhost) -> None:
    with user(vhost, tags="", configure=".*") as url:
        done = dlq(vhost, "diff", "--queue", "orders", url=url)
    assert done.returncode in (1, 3)
    assert "management" in done.stderr
    assert done.stdout == ""


def test_nobody_answers(vhost: Vhost) -> None:
    done = dlq(vhost, "diff", "--queue", "orders", "--api", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "--api" in done.stderr


# -- migrate ----------------------------------------------------------------------------------------------
def planned(kind: str = "quorum") -> Topology:
    return topology(
        exchanges=[Exchange(name="shop", type="topic")],
        queues=[
            Queue(
                name="orders", type=kind, arguments={"x-max-length": 100_000, "x-overflow": "reject-publish"}
            )
        ],
        bindings=[Binding(source="shop", destination="orders", routing_key="order.#")],
    )


def old_queue(vhost: Vhost, kind: str = "classic", letters: int = LETTERS) -> dict[bytes, Any]:
    """A queue with the wrong arguments, bound twice, full of letters of all sorts; what is in it."""
    sent: dict[bytes, Any] = {}
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_declare(
            "orders", durable=True, arguments={"x-queue-type": kind, "x-max-length": 50_000}
        )
        channel.queue_bind("orders", "shop", "order.#")
        channel.queue_bind("orders", "shop", "refund.*")
        for number in range(letters):
            body = b"%d " % number + bytes([number % 256]) * (number % 300)
            properties = pika.BasicProperties(
                delivery_mode=2,
                content_type="application/x-test" if number % 3 else None,
                message_id=f"m-{number}" if number % 2 else None,
                correlation_id=f"c-{number % 7}",
                priority=number % 5 or None,
                timestamp=1_700_000_000 + number,
                headers={"n": number, "CC": ["elsewhere"], "x-death": [{"queue": "q", "count": 1}]}
                if number % 4 == 0
                else None,
            )
            channel.basic_publish("shop", f"order.{number % 3}", body, properties)
            sent[body] = properties
        postbox.wait_for(lambda: postbox.depth_of(channel, "orders") == letters, "the letters")
    return sent


def check_letters(vhost: Vhost, sent: dict[bytes, Any]) -> None:
    """Every letter is in `orders` exactly once, with its bytes, its key and its properties."""
    posts = postbox.drain(vhost.url, "orders", expect=len(sent))
    twice = [body for body, times in Counter(post.body for post in posts).items() if times > 1]
    assert not twice, f"{len(twice)} twice"
    assert {post.body for post in posts} == set(sent)
    for post in posts:
        before = sent[post.body]
        for name in ("content_type", "message_id", "correlation_id", "priority", "timestamp"):
            assert getattr(post.properties, name) == getattr(before, name), name
        theirs = {
            name: value
            for name, value in post.headers.items()
            if not name.startswith("deadletter-") and name not in names.DELIVERY_COUNTS
        }
        assert theirs == (before.headers or {})
        number = int(post.body.split()[0])
        assert post.routing_key == f"order.{number % 3}"


def check_swapped(vhost: Vhost) -> None:
    """The queue is as planned, bound as it was, and nothing of the migration is left."""
    assert compare(planned(live(vhost).queues["orders"].type), live(vhost)) == ()
    bound = {(b["source"], b["routing_key"]) for b in vhost.list("bindings") if b["source"]}
    assert bound == {("shop", "order.#"), ("shop", "refund.*")}
    left = {item["name"] for kind in ("queues", "exchanges") for item in vhost.list(kind)}
    assert not [name for name in left if name.startswith(("deadletter.migrat", "deadletter.detour"))]


@pytest.mark.parametrize(
    ("before", "after"), [("classic", "quorum"), ("quorum", "quorum"), ("classic", "classic")]
)
@pytest.mark.slow
@pytest.mark.kills
def test_a_migration_keeps_every_letter(vhost: Vhost, before: str, after: str) -> None:
    sent = old_queue(vhost, before)
    (found,) = compare(planned(after), live(vhost))
    assert isinstance(found, DifferentQueue)
    not_asked = bring(vhost, planned(after))
    assert not not_asked.complete
    assert postbox.depth(vhost.url, "orders") == LETTERS
    done = bring(vhost, planned(after), migrating=True)
    (result,) = done.migrations
    assert isinstance(result, Migrated), result
    assert (result.moved, result.set_aside, result.maybe_twice) == (2 * LETTERS, 0, 0)
    assert done.complete
    check_swapped(vhost)
    check_letters(vhost, sent)
    again = bring(vhost, planned(after), migrating=True)
    assert again.migrations == ()
    assert again.complete


_SCRIPT = """
import asyncio, sys
sys.path.insert(0, {root!r})
from tests.broker.operations.test_apply_and_migrate import planned
from deadletter.amqp.address import parse_addresses
from deadletter.move.courier import Terms
from deadletter.operations.migrating.migrate import migrate
plan = planned({kind!r})
slowly = Terms(rate_per_s=1500)
print(asyncio.run(migrate(parse_addresses({url!r}), {api!r}, plan.queues["orders"], terms=slowly)))
"""


def kill_when(vhost: Vhost, kind: str, queue: str, letters: int) -> None:
    """Migrate in a process of its own and kill -9 it when so many letters are in this queue."""
    root = str(ROOT)
    script = _SCRIPT.format(root=root, kind=kind, url=vhost.url, api=vhost.api)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        try:
            postbox.wait_for(
                lambda: process.poll() is not None or _holds(vhost, queue, letters), f"{letters} in {queue}"
            )
            assert process.poll() is None, f"it ended before it could be killed: {process.stdout}"
        finally:
            process.send_signal(signal.SIGKILL)


def _holds(vhost: Vhost, queue: str, letters: int) -> bool:
    if queue == "orders":  # the new one is meant
        try:
            found = vhost.get("queues", queue)
        except AssertionError:  # the API stumbles over a queue that is just going
            return False
        if found is None or "x-overflow" not in found["arguments"]:
            return False
    return _depth(vhost, queue) >= letters


def _depth(vhost: Vhost, queue: str) -> int:
    logging.getLogger("pika").setLevel(logging.ERROR)  # it is asked before it is there
    try:
        return postbox.depth(vhost.url, queue)
    except pika.exceptions.ChannelClosedByBroker:
        return -1


@pytest.mark.slow
@pytest.mark.kills
@KINDS
def test_a_migration_that_is_killed_again_and_again(vhost: Vhost, kind: str) -> None:
    """On the way there, and on the way back; then it ends, and every letter is there once."""
    sent = old_queue(vhost, kind)
    waiting = waiting_name("orders")
    kill_when(vhost, kind, waiting, 300)
    kill_when(vhost, kind, waiting, 900)
    interrupted = bring(vhost, planned(kind))
    assert [type(found) for found in interrupted.left] == [DifferentQueue, Interrupted, Missing]
    kill_when(vhost, kind, waiting, LETTERS - 100)
    kill_when(vhost, kind, "orders", 700)
    kill_when(vhost, kind, "orders", 1200)
    done = bring(vhost, planned(kind), migrating=True)
    (result,) = done.migrations
    assert isinstance(result, Migrated), result
    check_swapped(vhost)
    aside = (
        [] if _depth(vhost, copies_name("orders")) < 0 else postbox.drain(vhost.url, copies_name("orders"))
    )
    assert {post.body for post in aside} <= set(sent)
    check_letters(vhost, sent)


@pytest.mark.slow
@pytest.mark.kills
def test_equal_letters_are_never_lost(vhost: Vhost) -> None:
    """A thousand letters equal in every byte: after a kill nobody can tell a copy from a letter."""
    old_queue(vhost, letters=0)
    postbox.fill(vhost.url, "orders", [b"same"] * LETTERS, dead=False)
    kill_when(vhost, "quorum", waiting_name("orders"), 500)
    done = bring(vhost, planned(), migrating=True)
    (result,) = done.migrations
    assert isinstance(result, Migrated), result
    aside = _depth(vhost, copies_name("orders"))
    assert postbox.depth(vhost.url, "orders") + max(aside, 0) >= LETTERS
    assert max(aside, 0) == result.set_aside


@pytest.mark.slow
@pytest.mark.kills
def test_letters_that_come_meanwhile(vhost: Vhost) -> None:
    """Between the two bindings a letter is in both queues; it arrives once all the same."""
    sent = old_queue(vhost, letters=50)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        waiting = waiting_name("orders")
        # What a crash after the first half of step 2 leaves: both bound, and a letter comes.
        channel.queue_declare(waiting, durable=True, arguments={"x-queue-type": "classic"})
        channel.queue_bind(waiting, "shop", "order.#")
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("shop", "order.0", b"9999999999 x", properties)
        sent[b"9999999999 x"] = properties
        postbox.wait_for(lambda: postbox.depth_of(channel, waiting) == 1, "the letter in both")
    done = bring(vhost, planned("classic"), migrating=True)
    (result,) = done.migrations
    assert isinstance(result, Migrated), result
    assert result.set_aside == 1
    check_letters(vhost, sent)
    assert [post.body for post in postbox.drain(vhost.url, copies_name("orders"))] == [b"9999999999 x"]


def test_a_queue_with_consumers_stays(vhost: Vhost) -> None:
    sent = old_queue(vhost, letters=5)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("orders", lambda *_: None)
        postbox.wait_for(lambda: bool(live(vhost).queues["orders"].state.consumers), "the consumer")  # type: ignore[union-attr]
        done = bring(vhost, planned(), migrating=True)
    (result,) = done.migrations
    assert isinstance(result, NotMigrated)
    assert "stop them" in result.why
    assert vhost.get("queues", waiting_name("orders")) is None
    check_letters(vhost, sent)


@pytest.mark.slow
@pytest.mark.kills
def test_a_letter_that_somebody_holds_is_not_deleted_with_the_queue(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.operations.migrating.swap.ROUNDS", 1)
    old_queue(vhost, letters=5)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        connection.channel().basic_get("orders")  # unacked, and no consumer
        done = bring(vhost, planned(), migrating=True)
        (result,) = done.migrations
        assert isinstance(result, NotMigrated)
        assert "does not stay empty" in result.why
    assert bring(vhost, planned(), migrating=True).complete
    assert postbox.depth(vhost.url, "orders") == 5


def test_too_many_letters_for_the_planned_limit(vhost: Vhost) -> None:
    old_queue(vhost, letters=20)
    plan = topology(queues=[Queue(name="orders", arguments={"x-max-length": 10})])
    (result,) = bring(vhost, plan, migrating=True).migrations
    assert isinstance(result, NotMigrated)
    assert "20 letters" in result.why
    assert postbox.depth(vhost.url, "orders") == 20


def test_dead_letters_that_come_by_name(vhost: Vhost) -> None:
    old_queue(vhost, letters=3)
    postbox.declare(vhost.url, "work", x_dead_letter_exchange="", x_dead_letter_routing_key="orders")
    postbox.fill_one(vhost.url, "work", b"busy")
    postbox.wait_for(lambda: vhost.depth("work") == 1, "the letter")
    (result,) = bring(vhost, planned(), migrating=True).migrations
    assert isinstance(result, NotMigrated)
    assert "dead letters of work" in result.why


@pytest.mark.slow
@pytest.mark.kills
def test_other_people_s_limits_do_not_reach_letters_that_wait(vhost: Vhost) -> None:
    sent = old_queue(vhost, letters=60)
    vhost.put("policies", "all", pattern="migrating", definition={"max-length": 10}, priority=99)
    done = bring(vhost, planned(), migrating=True)
    assert isinstance(done.migrations[0], Migrated)
    check_letters(vhost, sent)


def test_an_operator_s_limit_on_letters_that_would_wait(vhost: Vhost) -> None:
    old_queue(vhost, letters=5)
    vhost.put("operator-policies", "cap", pattern="migrating", definition={"max-length": 10}, priority=1)
    (result,) = bring(vhost, planned(), migrating=True).migrations
    assert isinstance(result, NotMigrated)
    assert "operator policy" in result.why
    assert postbox.depth(vhost.url, "orders") == 5


def test_the_command_migrates(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    postbox.declare(vhost.url, "deadletter.delay.1000", kind="classic")
    postbox.fill(vhost.url, "deadletter.delay.1000", [b"a", b"b"], dead=False)
    asked = ("--queue", "orders", "--layout", "return", "--backoff", "1s")
    done = dlq(vhost, "apply", "--migrate", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "migrated deadletter.delay.1000" in done.stdout
    assert dlq(vhost, "diff", *asked).returncode == 0
    # They wait out their second in the new queue, and are due.
    assert {post.body for post in postbox.drain(vhost.url, "deadletter.due", expect=2)} == {b"a", b"b"}
    assert live(vhost).exchanges.get(detour_name("deadletter.delay.1000")) is None


# -- definitions and pictures -----------------------------------------------------------------------------
@pytest.mark.parametrize("layout", ["return", "levels"])
def test_definitions_import_and_are_the_plan(vhost: Vhost, layout: str, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    file = tmp_path / "plan.json"
    asked = ("--queue", "orders", "--layout", layout, "--backoff", "1s,5s")
    assert dlq(vhost, "plan", *asked, "--format", "definitions", "--output", str(file)).returncode == 0
    if vhost.broker.version.startswith("3."):
        vhost.broker.rabbitmqctl("import_definitions", str(file))
    else:  # a fetched version lives in a root of its own and cannot see the file; its API can be told
        call(vhost.broker, "POST", "definitions", content=json.loads(file.read_text()))
    assert told(dlq(vhost, "diff", *asked, "--json"))["drift"] == []


def test_a_picture_of_the_live_vhost(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum", x_dead_letter_exchange="gone")
    postbox.declare(vhost.url, "other")
    done = dlq(vhost, "draw", "--queue", "orders")
    assert done.stdout.startswith("<svg")
    assert "no such exchange here" in done.stdout
    assert "other" not in done.stdout
    assert "flowchart LR" in dlq(vhost, "draw", "--format", "mermaid").stdout
    picture = told(dlq(vhost, "draw", "--json"))
    assert {node["id"] for node in picture["nodes"]} == {"queue orders", "queue other", "exchange gone"}
    assert dlq(vhost, "draw", "--queue", "nobody").returncode == 2
