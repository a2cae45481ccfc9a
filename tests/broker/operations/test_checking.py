"""`dlq check` on a real broker: the one-shot checker, every line of what it promises.

About `operations.checking`, `operations.lifting`, `cli.check_command`, `cli.terminal.output`,
`broker.queue_counts`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections import Counter
from contextlib import closing

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost, call
from tests.commanding import command

from deadletter.amqp.address import parse_addresses
from deadletter.core.deciding.deaths import (
    ByQueue,
    ByReason,
    CountBy,
    FirstEntry,
    NamedHeader,
    OwnAttempt,
    SumOfAll,
)
from deadletter.core.letter import names
from deadletter.core.topology import look_cost
from deadletter.core.topology.look_cost import LookCost
from deadletter.core.topology.queue_patterns import mapping
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.errors import ManagementRefused, QueueMissing, UsageError
from deadletter.operations.checking import CheckWish, QueueReport, Report, check

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


def wish(
    dlq: str, target: str, *, max_retries: int = 3, by: CountBy | None = None, **more: object
) -> CheckWish:
    fields: dict[str, object] = {
        "names": mapping(dlq, target),
        "max_retries": max_retries,
        "count_by": by or NamedHeader(header="x-retry-count"),
        **more,
    }
    return CheckWish(**fields)  # type: ignore[arg-type]  # the caller's keywords are checked by the dataclass


def go(vhost: Vhost, wanted: CheckWish) -> Report:
    return postbox.run(check(parse_addresses(vhost.url), wanted))


def one(vhost: Vhost, wanted: CheckWish) -> QueueReport:
    (report,) = go(vhost, wanted).queues
    return report


def fill(vhost: Vhost, queue: str, counts: list[object], *, dead: bool = False) -> None:
    for number, count in enumerate(counts):
        headers = {} if count is None else {"x-retry-count": count}
        postbox.fill(vhost.url, queue, [b"%d" % number], dead=dead, headers=headers)


def die(vhost: Vhost, queue: str, times: int) -> None:
    """One letter rejected `times` over, expired in between, that ends in `queue`; by the broker alone.

    What a client publishes again is another matter: 3.x counts on from it, 4.x does not.
    """
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.exchange_declare("dlx", "direct", durable=True)
        channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
        back = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
        channel.queue_declare("pause", durable=True, arguments=back)
        channel.basic_publish("", "work", b"x", pika.BasicProperties(delivery_mode=2))
        channel.queue_bind("pause", "dlx", "work")
        for turn in range(times):
            if turn == times - 1:
                channel.queue_unbind("pause", "dlx", "work")
                channel.queue_bind(queue, "dlx", "work")
            method, _, _ = channel.basic_get("work")
            while method is None:
                method, _, _ = channel.basic_get("work")
            channel.basic_reject(method.delivery_tag, requeue=False)
        postbox.wait_for(lambda: postbox.depth_of(channel, queue) > 0, "the dead letter")


# -- names -----------------------------------------------------------------------------------------------
def test_a_pattern_and_its_targets(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq.orders", "dlq.users", "dlq.empty", "other")
    for queue in ("dlq.orders", "dlq.users", "other"):
        fill(vhost, queue, [9, 1])
    report = go(vhost, wish("dlq.*", "dead.*", api=vhost.api))
    assert [(q.queue, q.target, q.seen, q.moved, q.left) for q in report.queues] == [
        ("dlq.empty", "dead.empty", 0, 0, 0),
        ("dlq.orders", "dead.orders", 2, 1, 1),
        ("dlq.users", "dead.users", 2, 1, 1),
    ]
    assert postbox.depth(vhost.url, "other") == 2
    assert vhost.get("queues", "dead.orders")["type"] == "quorum"
    assert vhost.get("queues", "dead.orders")["durable"]
    if traits_of(vhost.broker.version).limits_deliveries:
        assert vhost.get("queues", "dead.orders")["arguments"]["x-delivery-limit"] == -1


def test_two_stars_and_a_fixed_target(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "v1_dlq_orders")
    fill(vhost, "v1_dlq_orders", [9])
    assert one(vhost, wish("*_dlq_*", "*_failed_*", api=vhost.api)).target == "v1_failed_orders"
    assert len(postbox.drain(vhost.url, "v1_failed_orders", expect=1)) == 1
    fill(vhost, "v1_dlq_orders", [9])
    assert one(vhost, wish("*_dlq_*", "permanent", api=vhost.api)).moved == 1


def test_a_name_without_a_star_asks_no_management_api(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    fill(vhost, "dlq", [9])
    report = one(vhost, wish("dlq", "dead", api="http://127.0.0.1:1", target_type="classic"))
    assert report.moved == 1
    assert vhost.get("queues", "dead")["type"] == "classic"


def test_no_match_is_a_success(vhost: Vhost) -> None:
    assert go(vhost, wish("dlq.*", "dead.*", api=vhost.api)).queues == ()


def test_doubt_stops_everything_before_anything_moves(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "a_dlq_b", "a_dlq_b_dlq_c")
    fill(vhost, "a_dlq_b", [9])
    with pytest.raises(UsageError, match="in more than one way"):
        go(vhost, wish("*_dlq_*", "*_dead_*", api=vhost.api))
    assert postbox.depth(vhost.url, "a_dlq_b") == 1
    assert vhost.get("queues", "a_dead_b") is None


def test_missing_queues(vhost: Vhost) -> None:
    with pytest.raises(QueueMissing, match="no queue 'dlq'"):
        go(vhost, wish("dlq", "dead"))
    assert vhost.get("queues", "dead") is None
    postbox.declare(vhost.url, "dlq")
    fill(vhost, "dlq", [9])
    with pytest.raises(QueueMissing, match="no queue 'dead'"):
        go(vhost, wish("dlq", "dead", create=False))
    assert postbox.depth(vhost.url, "dlq") == 1


def test_a_management_api_that_does_not_answer(vhost: Vhost) -> None:
    with pytest.raises(ManagementRefused, match="DLQ_API"):
        go(vhost, wish("dlq.*", "dead.*", api="http://127.0.0.1:1"))
    api = vhost.api.replace("http://", "http://guest:wrong@")
    with pytest.raises(ManagementRefused, match="needs the tag 'management'"):
        go(vhost, wish("dlq.*", "dead.*", api=api))


# -- counts ----------------------------------------------------------------------------------------------
@KINDS
def test_strictly_more_and_every_form_of_a_number(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "dlq", kind=kind)
    fill(vhost, "dlq", [3, 4, "3", "4", None, "many", -1, 10**12])
    assert one(vhost, wish("dlq", "dead")).moved == 3
    assert {p.body for p in postbox.drain(vhost.url, "dead", expect=3)} == {b"1", b"3", b"7"}
    assert len(postbox.drain(vhost.url, "dlq", expect=5)) == 5


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (FirstEntry(), 3),
        (ByReason(reason="rejected"), 3),
        (ByReason(reason="expired"), 2),
        (SumOfAll(), 5),
        (ByQueue(queue="pause"), 2),
        (ByQueue(queue="nowhere"), 0),
        (OwnAttempt(), 0),
    ],
)
def test_counts_of_real_deaths(vhost: Vhost, by: CountBy, expected: int) -> None:
    """Rejected three times, expired twice in between: the same answer on every version."""
    postbox.declare(vhost.url, "dlq", kind="quorum")
    die(vhost, "dlq", 3)
    report = one(vhost, wish("dlq", "dead", max_retries=expected, by=by, dry_run=True))
    assert (report.moved, report.left) == (0, 1), "not strictly more"
    if expected:
        assert one(vhost, wish("dlq", "dead", max_retries=expected - 1, by=by)).moved == 1


def test_deaths_stay_on_for_whoever_reviews_it(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    postbox.fill(vhost.url, "dlq", [b"x"], headers={"x-retry-count": 9})
    assert one(vhost, wish("dlq", "dead")).moved == 1
    (post,) = postbox.drain(vhost.url, "dead", expect=1)
    assert post.headers["x-death"][0]["queue"] == "dlq.entry"
    assert post.headers[names.SOURCE] == "dlq"


# -- moving ----------------------------------------------------------------------------------------------
def test_a_target_that_takes_nothing_leaves_the_letters(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    postbox.declare(vhost.url, "dead", x_max_length=0, x_overflow="reject-publish")
    fill(vhost, "dlq", [9, 9, 1])
    report = one(vhost, wish("dlq", "dead"))
    assert (report.moved, report.failed, report.left, report.complete) == (0, 2, 1, False)
    assert len(postbox.drain(vhost.url, "dlq", expect=3)) == 3


def test_what_must_not_be_copied(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    call(vhost.broker, "PUT", "users", "shop", content={"password": "s", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    call(vhost.broker, "PUT", "permissions", vhost.name, "shop", content=everything)
    postbox.fill(
        vhost.url.replace("guest:guest", "shop:s"), "dlq", [b"x"], dead=False, headers={"x-retry-count": 9},
        user_id="shop", expiration="600000",
    )  # fmt: skip
    assert one(vhost, wish("dlq", "dead")).moved == 1
    (post,) = postbox.drain(vhost.url, "dead", expect=1)
    assert (post.properties.user_id, post.properties.expiration, post.properties.delivery_mode) == (
        None,
        None,
        2,
    )
    call(vhost.broker, "DELETE", "users", "shop")


def test_large_bodies_and_large_headers(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    body = bytes(10_000_000)
    postbox.fill(vhost.url, "dlq", [body], dead=False, headers={"x-retry-count": 9})
    postbox.fill(vhost.url, "dlq", [b"h"], dead=False, headers={"x-retry-count": 9, "big": "y" * 64_000})
    assert one(vhost, wish("dlq", "dead")).moved == 2
    first, second = postbox.drain(vhost.url, "dead", expect=2)
    assert first.body == body
    assert second.headers["big"] == "y" * 64_000


def test_a_dry_run_moves_and_creates_nothing(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    fill(vhost, "dlq", [9, 1, 9])
    report = one(vhost, wish("dlq", "dead", dry_run=True))
    assert (report.seen, report.moved, report.left) == (3, 2, 1)
    assert vhost.get("queues", "dead") is None
    assert [p.body for p in postbox.drain(vhost.url, "dlq", expect=3)] == [b"0", b"1", b"2"]


@KINDS
def test_a_second_run_moves_nothing_and_loses_nothing(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "dlq", kind=kind)
    for count in (1, 9):
        postbox.fill(
            vhost.url, "dlq", [b"%d-%d" % (count, n) for n in range(1500)], headers={"x-retry-count": count}
        )
    first = one(vhost, wish("dlq", "dead"))
    assert (first.seen, first.moved, first.left, first.failed) == (3000, 1500, 1500, 0)
    again = one(vhost, wish("dlq", "dead"))
    assert (again.seen, again.moved, again.left, again.failed) == (1500, 0, 1500, 0)
    stayed = postbox.drain(vhost.url, "dlq", expect=1500)
    assert {p.body for p in stayed} == {b"1-%d" % n for n in range(1500)}
    moved = Counter(p.body for p in postbox.drain(vhost.url, "dead", expect=1500))
    assert moved == Counter(b"9-%d" % n for n in range(1500))


@KINDS
def test_two_at_once_move_every_letter_once(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "dlq", "dead", kind=kind)
    bodies = [b"%d" % n for n in range(4000)]
    postbox.fill(vhost.url, "dlq", bodies, headers={"x-retry-count": 9})

    async def both() -> tuple[Report, Report]:
        addresses = parse_addresses(vhost.url)
        wanted = wish("dlq", "dead")
        return await asyncio.gather(check(addresses, wanted), check(addresses, wanted))

    reports = postbox.run(both())
    assert sum(q.moved for report in reports for q in report.queues) == 4000
    assert Counter(p.body for p in postbox.drain(vhost.url, "dead", expect=4000)) == Counter(bodies)


@KINDS
def test_one_among_many_is_found_and_the_run_ends(vhost: Vhost, kind: str) -> None:
    """The old way (get, put back, get) sees the same letter for ever."""
    postbox.declare(vhost.url, "dlq", kind=kind)
    postbox.fill(vhost.url, "dlq", [b"%d" % n for n in range(8000)], dead=False, headers={"x-retry-count": 1})
    postbox.fill(vhost.url, "dlq", [b"the one"], dead=False, headers={"x-retry-count": 9})
    report = one(vhost, wish("dlq", "dead"))
    assert (report.seen, report.moved, report.left) == (8001, 1, 8000)
    assert [p.body for p in postbox.drain(vhost.url, "dead", expect=1)] == [b"the one"]
    assert len(postbox.drain(vhost.url, "dlq", expect=8000)) == 8000


@KINDS
@pytest.mark.parametrize("knows", [True, False], ids=["knows the queue", "does not"])
def test_many_that_stay_are_back_when_it_ends(vhost: Vhost, kind: str, knows: bool) -> None:
    """They are given back by closing channels or by nacks, one after the other or not: as the queue is."""
    postbox.declare(vhost.url, "dlq", kind=kind)
    bodies = [b"%d" % n for n in range(9000)]
    postbox.fill(vhost.url, "dlq", bodies, dead=False, headers={"x-retry-count": 1})
    for _ in range(2):
        report = one(vhost, wish("dlq", "dead", api=vhost.api if knows else "http://127.0.0.1:9"))
        assert (report.seen, report.left, report.failed) == (9000, 9000, 0)
        assert postbox.depth(vhost.url, "dlq") == 9000
    assert Counter(p.body for p in postbox.drain(vhost.url, "dlq", expect=9000)) == Counter(bodies)


# -- what a look costs -----------------------------------------------------------------------------------
def test_thirty_looks_destroy_nothing(vhost: Vhost) -> None:
    """On 4.0 a quorum queue destroys a letter that was looked at 21 times. Not with us."""
    postbox.declare(vhost.url, "dlq", kind="quorum")
    bodies = [b"%d" % n for n in range(100)]
    postbox.fill(vhost.url, "dlq", bodies, headers={"x-retry-count": 1})
    cost = look_cost.look_cost(vhost.broker.version)
    renewed, notes = 0, ""
    for _ in range(30):
        report = one(vhost, wish("dlq", "dead"))
        assert (report.seen, report.left, report.failed) == (100, 100, 0)
        renewed += report.renewed
        notes += " ".join(report.notes)
        postbox.wait_for(lambda: postbox.depth(vhost.url, "dlq") == 100, "all of them back")
    assert Counter(p.body for p in postbox.drain(vhost.url, "dlq", expect=100)) == Counter(bodies)
    if cost is LookCost.A_DELIVERY:
        assert renewed >= 200, "each of them at least twice in thirty looks"
        assert "delivery-limit" in notes
    else:
        assert (renewed, notes) == (0, "")


# -- the command -----------------------------------------------------------------------------------------
def dlq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return command(*arguments, environment={**os.environ, **environment})


def test_the_command(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq.orders", "dlq.users")
    fill(vhost, "dlq.orders", [1, 9, 9])
    arguments = [
        "--dlq",
        "dlq.*",
        "--target",
        "dead.*",
        "--max-retries",
        "3",
        "--count-by",
        "header:x-retry-count",
    ]
    environment = {"DLQ_URL": vhost.url, "DLQ_API": vhost.api}
    dry = dlq("check", *arguments, "--dry-run", **environment)
    assert dry.returncode == 0, dry.stderr
    assert "would move 2 letters of 3 in 2 queues" in dry.stdout
    done = dlq("check", *arguments, "--json", **environment)
    told = json.loads(done.stdout)
    assert [(q["queue"], q["seen"], q["moved"], q["left"]) for q in told["queues"]] == [
        ("dlq.orders", 3, 2, 1),
        ("dlq.users", 0, 0, 0),
    ]
    assert done.returncode == 0
    none = dlq("check", "--dlq", "nope.*", "--target", "dead.*", **environment)
    assert (none.returncode, none.stdout) == (0, "no queue is named by 'nope.*'; nothing to do\n")


def test_the_command_refuses_nonsense(vhost: Vhost) -> None:
    environment = {"DLQ_URL": vhost.url, "DLQ_API": vhost.api}
    wrong = dlq("check", "--dlq", "dlq", "--target", "dead.*", **environment)
    assert wrong.returncode == 2
    assert "expected at most as many * as dlq has" in wrong.stderr
    wrong = dlq("check", "--dlq", "dlq.*", "--target", "dead.*", "--count-by", "luck", **environment)
    assert wrong.returncode == 2
    assert "own, first, sum" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_the_default_vhost_is_asked_for_by_its_encoded_name(vhost: Vhost) -> None:
    url = vhost.broker.url
    postbox.declare(url, "slash.dlq.orders")
    postbox.fill(url, "slash.dlq.orders", [b"x"], dead=False, headers={"x-retry-count": 9})
    wanted = wish("slash.dlq.*", "slash.dead.*", api=vhost.api)
    (report,) = postbox.run(check(parse_addresses(url), wanted)).queues
    assert (report.queue, report.moved) == ("slash.dlq.orders", 1)
    assert len(postbox.drain(url, "slash.dead.orders", expect=1)) == 1
