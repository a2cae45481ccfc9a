"""Deliveries are money: letters whose next return would destroy them, and every command that takes letters.

A quorum queue destroys a letter whose delivery count exceeds its limit. On RabbitMQ 4.3 a letter that died of
the limit brings its count along, so that any return destroys it; before that every return costs one. Each
test makes such letters, lets a command loose on them, and counts what is left anywhere: none may be missing.

About `core.topology.look_cost`, `move.rescue`, `move.asked_limits`, `broker.delivery_limits`,
`operations.lifting`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.commanding import command
from tests.serving import Served

from deadletter.amqp.address import parse_addresses
from deadletter.core.layouts.naming import lifting_policy_name
from deadletter.core.letter import names
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.letter.wrapping import unwrap
from deadletter.core.topology import look_cost
from deadletter.core.topology.rabbitmq_versions import DEFAULT_LIMIT, version_of
from deadletter.move.courier import Bounds, Courier, Leave, MoveTally

LIMIT = DEFAULT_LIMIT


def limited(vhost: Vhost) -> dict[str, object]:
    """RabbitMQ 3.x has no limit by default: there somebody set the one that 4.x has."""
    return {"x_delivery_limit": LIMIT} if version_of(vhost.broker.version) < (4, 0) else {}


def doomed(vhost: Vhost, number: int, queue: str = "dlq") -> list[bytes]:
    """Letters of which a crash destroys each; on 4.3 any return does: they died of the limit."""
    bodies = [b"%d" % n for n in range(number)]
    postbox.declare(vhost.url, queue, kind="quorum", **limited(vhost))
    if version_of(vhost.broker.version) >= (4, 3):
        towards = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": queue}
        postbox.declare(vhost.url, "work", kind="quorum", **towards)
        postbox.fill(vhost.url, "work", bodies, dead=False)
        spend(vhost, "work", number, LIMIT)
        spend(vhost, "work", number, 1, back=False)
        postbox.wait_for(lambda: postbox.depth(vhost.url, queue) == number, "letters that died of the limit")
    else:
        postbox.fill(vhost.url, queue, bodies)
        spend(vhost, queue, number, LIMIT)
    return bodies


def spend(vhost: Vhost, queue: str, number: int, times: int, *, back: bool = True) -> None:
    """Take them all and hang up: a delivery is spent on each."""
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        looking_on = connection.channel()
        for _ in range(times):
            postbox.wait_for(lambda: postbox.depth_of(looking_on, queue) == number, f"{number} in {queue}")
            channel = connection.channel()
            for _ in range(number):
                channel.basic_get(queue)
            channel.close()
    if back:
        settle(vhost, number, queue)


def everywhere(vhost: Vhost, *queues: str) -> list[bytes]:
    """The bodies in all of these queues that are there, what is wrapped unwrapped; it takes them out."""
    found: list[bytes] = []
    for queue in queues:
        if vhost.get("queues", queue) is None:
            continue
        for post in postbox.drain(vhost.url, queue):
            whole = RawMessage(encode(View(content_type=post.properties.content_type)), post.body)
            inside = unwrap(whole)
            found.append(post.body if inside is None else inside.body)
    return found


def none_is_missing(vhost: Vhost, bodies: list[bytes], *queues: str) -> None:
    found = Counter(everywhere(vhost, *(queues or ("dlq", "target", names.PARKED))))
    lost, more = Counter(bodies) - found, found - Counter(bodies)
    assert not lost, f"{lost.total()} are lost: {sorted(lost)[:5]}"
    assert not more, f"{more.total()} too many: {[body[:50] for body in more][:5]}"


def settle(vhost: Vhost, number: int, queue: str = "dlq") -> None:
    postbox.wait_for(lambda: postbox.depth(vhost.url, queue) == number, f"{number} in {queue}", 30)


def dlq(
    vhost: Vhost, *arguments: str, api: bool = True, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    told = {"DLQ_URL": vhost.url, **({"DLQ_API": vhost.api} if api else {})}
    told |= {"HOME": str(home)} if home is not None else {}
    return command(*arguments, environment={**os.environ, **told})


def start(vhost: Vhost, *arguments: str, api: bool = True) -> subprocess.Popen[str]:
    told = {"DLQ_URL": vhost.url, **({"DLQ_API": vhost.api} if api else {})}
    return subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli.main", *arguments],
        env={**os.environ, **told},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def knows_without_asking(vhost: Vhost) -> bool:
    return version_of(vhost.broker.version) >= (4, 0)


ASKED = pytest.mark.parametrize("api", [True, False], ids=["asked", "not asked"])


# -- looks -------------------------------------------------------------------------------------------------
@ASKED
def test_a_look_at_twenty(vhost: Vhost, api: bool) -> None:
    if not api and not knows_without_asking(vhost):
        pytest.skip("on 3.x a limit that somebody set is told by the management API alone")
    bodies = doomed(vhost, 20)
    for _ in range(2):
        told = json.loads(dlq(vhost, "peek", "dlq", "--limit", "20", "--json", api=api).stdout)
        assert len(told["letters"]) == 20
        settle(vhost, 20)
    none_is_missing(vhost, bodies)


def test_one_look_after_the_other_at_one(vhost: Vhost) -> None:
    bodies = doomed(vhost, 3)
    first = dlq(vhost, "peek", "dlq", "--limit", "1")
    assert first.returncode == 0, first.stderr
    assert f"0 left of {LIMIT}" in first.stdout
    assert "renewed" in first.stdout
    for _ in range(25):
        assert dlq(vhost, "peek", "dlq", "--limit", "1").returncode == 0
    settle(vhost, 3)
    none_is_missing(vhost, bodies)


def test_twenty_five_checks(vhost: Vhost) -> None:
    bodies = doomed(vhost, 20)
    for _ in range(25):
        told = dlq(vhost, "check", "--dlq", "dlq", "--target", "target", "--max-retries", "99")
        assert told.returncode == 0, told.stdout + told.stderr
        settle(vhost, 20)
    none_is_missing(vhost, bodies)


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_limits_that_somebody_set(vhost: Vhost, limit: int) -> None:
    postbox.declare(vhost.url, "dlq", kind="quorum", x_delivery_limit=limit)
    bodies = [b"%d" % n for n in range(5)]
    postbox.fill(vhost.url, "dlq", bodies)
    for _ in range(limit + 3):
        told = json.loads(dlq(vhost, "peek", "dlq", "--limit", "5", "--json").stdout)
        assert (told["delivery_limit"], len(told["letters"])) == (limit, 5)
        settle(vhost, 5)
    none_is_missing(vhost, bodies)


def test_minus_one(vhost: Vhost) -> None:
    """From 4.0 on that is no limit. On 3.x the first return is the last, as with 0."""
    postbox.declare(vhost.url, "dlq", kind="quorum", x_delivery_limit=-1)
    bodies = [b"%d" % n for n in range(5)]
    postbox.fill(vhost.url, "dlq", bodies)
    limit = None if knows_without_asking(vhost) else 0
    for _ in range(3):
        told = json.loads(dlq(vhost, "peek", "dlq", "--limit", "5", "--json").stdout)
        assert (told["delivery_limit"], len(told["letters"])) == (limit, 5)
        settle(vhost, 5)
    none_is_missing(vhost, bodies)


def test_a_limit_set_by_policy_and_by_an_operator(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq", kind="quorum")
    vhost.put("policies", "p", pattern="^dlq$", definition={"delivery-limit": 7}, **{"apply-to": "queues"})
    assert json.loads(dlq(vhost, "peek", "dlq", "--json").stdout)["delivery_limit"] == 7
    vhost.put(
        "operator-policies", "o", pattern="^dlq$", definition={"delivery-limit": 2}, **{"apply-to": "queues"}
    )
    assert json.loads(dlq(vhost, "peek", "dlq", "--json").stdout)["delivery_limit"] == 2
    bodies = [b"%d" % n for n in range(5)]
    postbox.fill(vhost.url, "dlq", bodies)
    for _ in range(6):
        dlq(vhost, "peek", "dlq", "--limit", "5")
        settle(vhost, 5)
    none_is_missing(vhost, bodies)


# -- what is refused ---------------------------------------------------------------------------------------
def full(vhost: Vhost, kind: str = "classic") -> None:
    postbox.declare(vhost.url, "target", kind=kind, x_max_length=1, x_overflow="reject-publish")
    postbox.fill(vhost.url, "target", [b"there before"], dead=False)
    if kind == "quorum":
        postbox.fill(vhost.url, "target", [b"there before"], dead=False)


@pytest.mark.parametrize("what", ["move", "check"])
def test_a_full_target_twenty_five_times(vhost: Vhost, what: str) -> None:
    """Fresh letters: on 4.0 each of these runs costs each of them a delivery."""
    postbox.declare(vhost.url, "dlq", kind="quorum", **limited(vhost))
    bodies = [b"%d" % n for n in range(100)]
    postbox.fill(vhost.url, "dlq", bodies, headers={"x-retry-count": 9})
    full(vhost)
    arguments = ["move", "dlq", "target"]
    if what == "check":
        arguments = ["check", "--dlq", "dlq", "--target", "target", "--max-retries", "3"]
        arguments += ["--count-by", "header:x-retry-count"]
    for _ in range(25):
        told = dlq(vhost, *arguments)
        assert told.returncode == 1, told.stdout + told.stderr
        settle(vhost, 100)
    none_is_missing(vhost, [*bodies, b"there before"])


def test_a_full_target_and_letters_at_their_end(vhost: Vhost) -> None:
    bodies = doomed(vhost, 30)
    full(vhost)
    for _ in range(3):
        told = json.loads(dlq(vhost, "move", "dlq", "target", "--json").stdout)
        assert (told["moved"], told["failed"]) == (0, 30)
        settle(vhost, 30)
    none_is_missing(vhost, [*bodies, b"there before"])


def test_a_source_that_is_full_does_not_take_them_back(vhost: Vhost) -> None:
    """What can neither be given back nor be renewed is in a queue of ours, and comes back from there."""
    bodies = doomed(vhost, 10)
    full(vhost)
    shut = {"max-length": 1, "overflow": "reject-publish"}
    vhost.put("policies", "shut", pattern="^dlq$", definition=shut, **{"apply-to": "queues"})
    ended = dlq(vhost, "move", "dlq", "target", "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["moved"], told["failed"]) == (1, 0, 10)
    assert sum(told["parked"].values()) >= 8, "the last one or two may find room"
    assert not told["endangered"]
    vhost.delete("policies", "shut")
    postbox.declare(vhost.url, "review")
    back = dlq(vhost, "move", names.PARKED, "review")
    assert back.returncode == 0, back.stderr
    none_is_missing(vhost, [*bodies, b"there before"], "dlq", "target", "review")


def test_while_no_queue_takes_them_they_are_kept_in_hand(vhost: Vhost) -> None:
    bodies = doomed(vhost, 6)
    full(vhost)
    shut = {"max-length": 1, "overflow": "reject-publish"}
    postbox.declare(vhost.url, names.PARKED)
    postbox.fill(vhost.url, names.PARKED, [b"there before"], dead=False)
    vhost.put("policies", "shut", pattern=".*", definition=shut, **{"apply-to": "queues"})
    with start(vhost, "move", "dlq", "target", "--json") as moving:
        time.sleep(15.0)
        assert moving.poll() is None, "it holds on"
        vhost.delete("policies", "shut")
        said, complained = moving.communicate(timeout=60)
    told = json.loads(said)
    assert moving.returncode == 1, complained
    assert not told["endangered"], told
    none_is_missing(vhost, [*bodies, b"there before", b"there before"])


def test_a_letter_that_fits_into_no_frame(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq", kind="quorum", **limited(vhost))
    big = RawMessage(encode(View(headers={"big": "x" * 131_000}, delivery_mode=2)), b"poison")
    postbox.declare(
        vhost.url, "entry", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="dlq"
    )
    postbox.publish_raw(vhost.url, "entry", big)
    settle(vhost, 1)
    codes: list[int] = []
    for _ in range(25):
        told = dlq(vhost, "peek", "dlq", "--json")
        codes.append(told.returncode)
        assert json.loads(told.stdout)["renewed"] == 0
        if told.returncode:
            assert "frame" in next(iter(json.loads(told.stdout)["parked"]))
    costs = version_of(vhost.broker.version) < (4, 3)
    assert codes.count(1) == (1 if costs else 0), "it is put aside once, and that is said once"
    none_is_missing(vhost, [b"poison"], "dlq", names.PARKED)


def test_what_is_left_again_and_again(vhost: Vhost) -> None:
    """As a sweep does whose gate is closed: every letter is decided about, and stays."""
    postbox.declare(vhost.url, "dlq", kind="quorum")
    bodies = [b"%d" % n for n in range(150)]
    postbox.fill(vhost.url, "dlq", bodies)

    async def leave() -> MoveTally:
        return await Courier(
            parse_addresses(vhost.url), source="dlq", decide=lambda _letter: Leave(), bounds=Bounds()
        ).run()

    renewed = 0
    for _ in range(25):
        tally = postbox.run(leave())
        assert tally.left == 150
        renewed += tally.renewed
        settle(vhost, 150)
    assert (renewed > 0) == (look_cost.look_cost(vhost.broker.version) is look_cost.LookCost.A_DELIVERY)
    none_is_missing(vhost, bodies)


def test_sweeps_of_a_service_that_may_not_change_the_queue(vhost: Vhost, tmp_path: Path) -> None:
    bodies = doomed(vhost, 20)
    settings = (
        '[serve]\nadjust_dlqs = false\nsurvey = "1s"\nlisten = "127.0.0.1:{port}"\n'
        '[[watches]]\ndlq = "dlq"\nmode = "manual"\n'
    )
    served = Served(vhost, tmp_path, "")
    served.write(settings.replace("{port}", str(served.port)))
    try:
        served.start()
        for _ in range(25):
            at = f"http://127.0.0.1:{served.port}"
            told = dlq(vhost, "sweep", "dlq", "--json", "--at", at, home=served.home)
            (swept,) = json.loads(told.stdout)["sweeps"]
            assert (swept["seen"], swept["left"]) == (20, 20), "nobody consumes where they would go"
            settle(vhost, 20)
        served.end()
    finally:
        served.close()
    none_is_missing(vhost, bodies)


# -- a stop, and a kill ------------------------------------------------------------------------------------
def until_moving(vhost: Vhost, moved: int) -> None:
    postbox.wait_for(lambda: postbox.depth(vhost.url, "target") >= moved, "the move to begin", 60)


def until_given_back(vhost: Vhost) -> None:
    """The broker has noticed that the one who held letters of `dlq` is gone, and they are in it again."""
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        postbox.wait_for(
            lambda: channel.queue_declare("dlq", passive=True).method.consumer_count == 0, "it to be noticed"
        )
    time.sleep(1.0)


def test_ctrl_c(vhost: Vhost) -> None:
    bodies = doomed(vhost, 60)
    postbox.declare(vhost.url, "target")
    with start(vhost, "move", "dlq", "target", "--rate", "10/s") as moving:
        until_moving(vhost, 3)
        moving.send_signal(signal.SIGINT)
        said, complained = moving.communicate(timeout=60)
    assert moving.returncode == 1, said + complained
    none_is_missing(vhost, bodies)


@ASKED
def test_a_kill_costs_at_most_the_one_in_hand(vhost: Vhost, api: bool) -> None:
    if not api and not knows_without_asking(vhost):
        pytest.skip("on 3.x a limit that somebody set is told by the management API alone")
    bodies = doomed(vhost, 40)
    postbox.declare(vhost.url, "target")
    with start(vhost, "move", "dlq", "target", "--rate", "10/s", api=api) as moving:
        until_moving(vhost, 5)
        moving.kill()
    until_given_back(vhost)
    found = set(everywhere(vhost, "dlq", "target"))
    assert len(found) >= len(bodies) - 1, f"{len(bodies) - len(found)} are lost"


def test_a_kill_costs_nothing_with_the_policy(vhost: Vhost) -> None:
    if not knows_without_asking(vhost):
        pytest.skip("3.x takes no policy of -1")
    bodies = doomed(vhost, 40)
    postbox.declare(vhost.url, "target")
    vhost.put("policies", "off", pattern="^dlq$", definition={"delivery-limit": -1}, **{"apply-to": "queues"})
    with start(vhost, "move", "dlq", "target", "--rate", "10/s") as moving:
        until_moving(vhost, 5)
        moving.kill()
    until_given_back(vhost)
    assert set(everywhere(vhost, "dlq", "target")) == set(bodies)


# -- --lift-limit ------------------------------------------------------------------------------------------
def policies(vhost: Vhost) -> dict[str, Any]:
    return {policy["name"]: policy for policy in vhost.list("policies")}


def user_policy(vhost: Vhost) -> None:
    vhost.put(
        "policies",
        "theirs",
        pattern="^dlq",
        definition={"max-length": 5000, "overflow": "reject-publish"},
        priority=7,
        **{"apply-to": "queues"},
    )


def test_a_lifted_limit_is_put_back(vhost: Vhost) -> None:
    bodies = doomed(vhost, 30)
    user_policy(vhost)
    postbox.declare(vhost.url, "target", kind="quorum")
    if not knows_without_asking(vhost):
        told = dlq(vhost, "move", "dlq", "target", "--lift-limit")
        assert told.returncode == 2
        assert "takes no policy that lifts a limit" in told.stderr
        assert dlq(vhost, "move", "target", "dlq", "--lift-limit").stdout.endswith("has no delivery limit\n")
        return
    with start(vhost, "move", "dlq", "target", "--rate", "1/s", "--lift-limit") as moving:
        until_moving(vhost, 1)
        lifted = policies(vhost)[lifting_policy_name("dlq")]
        assert lifted["definition"] == {
            "max-length": 5000, "overflow": "reject-publish", "delivery-limit": -1,
        }  # fmt: skip
        assert lifted["priority"] > 7
        again = dlq(vhost, "peek", "dlq", "--lift-limit")
        assert again.returncode == 1
        assert "another command has lifted" in again.stderr
        moving.send_signal(signal.SIGINT)
        said, complained = moving.communicate(timeout=60)
    assert moving.returncode == 1, said + complained
    assert policies(vhost).keys() == {"theirs"}
    done = dlq(vhost, "move", "dlq", "target", "--lift-limit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert policies(vhost).keys() == {"theirs"}
    none_is_missing(vhost, bodies)


def test_a_lifted_limit_is_put_back_after_ctrl_c(vhost: Vhost) -> None:
    if not knows_without_asking(vhost):
        pytest.skip("3.x takes no policy of -1")
    bodies = doomed(vhost, 60)
    postbox.declare(vhost.url, "target")
    with start(vhost, "move", "dlq", "target", "--rate", "10/s", "--lift-limit") as moving:
        until_moving(vhost, 3)
        moving.send_signal(signal.SIGINT)
        said, complained = moving.communicate(timeout=60)
    assert moving.returncode == 1, said + complained
    assert not policies(vhost)
    for _ in range(2):
        dlq(vhost, "peek", "dlq", "--limit", "60")
    none_is_missing(vhost, bodies)


def test_a_lifted_limit_is_put_back_by_the_next_command_after_a_kill(vhost: Vhost) -> None:
    if not knows_without_asking(vhost):
        pytest.skip("3.x takes no policy of -1")
    bodies = doomed(vhost, 60)
    postbox.declare(vhost.url, "target")
    with start(vhost, "move", "dlq", "target", "--rate", "10/s", "--lift-limit") as moving:
        until_moving(vhost, 3)
        moving.kill()
    assert policies(vhost).keys() == {lifting_policy_name("dlq")}
    until_given_back(vhost)
    told = dlq(vhost, "peek", "dlq")
    assert "was lifted by a command that was killed; it holds again" in told.stdout
    assert not policies(vhost)
    for _ in range(2):
        dlq(vhost, "peek", "dlq", "--limit", "60")
    assert set(everywhere(vhost, "dlq", "target")) == set(bodies)


def test_a_limit_that_no_policy_can_lift(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq", kind="quorum", x_delivery_limit=5)
    told = dlq(vhost, "peek", "dlq", "--lift-limit")
    assert told.returncode == 2, told.stdout
    assert not policies(vhost)
    nobody = dlq(vhost, "peek", "dlq", "--lift-limit", "--api", "http://127.0.0.1:1")
    assert nobody.returncode == 3
    assert "--api" in nobody.stderr
