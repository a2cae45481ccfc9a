"""`dlq peek` and `dlq policy explain --queue` on a real broker: everything is seen, nothing is kept.

About `operations.peeking`, `cli.peek_command`, `broker.delivery_limits`, `cli.policies.policy_command`.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests import postbox
from tests.broker.operations.test_checking import die, dlq
from tests.brokers import Vhost

from deadletter.amqp.address import parse_addresses
from deadletter.cli.peek_command import letter_text
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.topology import look_cost
from deadletter.core.topology.look_cost import LookCost
from deadletter.core.topology.rabbitmq_versions import DEFAULT_LIMIT
from deadletter.errors import QueueMissing
from deadletter.operations.peeking import PeekResult, body_text, peek


def look(vhost: Vhost, queue: str = "dlq", limit: int = 5) -> PeekResult:
    return postbox.run(peek(parse_addresses(vhost.url), queue, limit=limit))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_deaths_origin_error_and_body(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "dlq", kind=kind)
    die(vhost, "dlq", 3)
    (seen,) = look(vhost).letters
    assert [(d.queue, d.reason, d.count) for d in seen.letter.history.all] == [
        ("work", "rejected", 3),
        ("pause", "expired", 2),
    ]
    assert seen.letter.origin is not None
    assert seen.letter.origin.queue == "work"
    assert (seen.exchange, seen.routing_key, seen.body) == ("dlx", "work", b"x")
    spring = {
        "x-exception-message": "card declined",
        "x-exception-stacktrace": "java.lang.Oops: card\n\tat a.B",
    }
    postbox.fill(vhost.url, "dlq", [b"{}"], headers=spring)
    failure = look(vhost).letters[1].letter.failure
    assert failure is not None
    assert (failure.error_type, failure.message) == ("java.lang.Oops", "card declined")


def test_a_failure_is_told_with_who_failed(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    ours = {
        "deadletter-error-type": "shop.Refused",
        "deadletter-error-message": "card declined\nask the bank",
        "deadletter-error-service": "shop",
        "deadletter-error-release": "1.4.2",
        "deadletter-error-host": "web-1",
        "deadletter-error-at": 1_794_700_000_000,
        "deadletter-error-first-at": 1_794_600_000_000,
    }
    postbox.fill(vhost.url, "dlq", [b"{}"], headers=ours, dead=False)
    text = letter_text(1, look(vhost).letters[0], 100)
    assert (
        "   error       shop.Refused: card declined (deadletter)\n"
        "               ask the bank\n"
        "   failed      service shop, release 1.4.2, host web-1, at 2026-11-14 23:46:40 UTC, "
        "first 2026-11-13 20:00:00 UTC\n"
    ) in text


def test_no_more_are_taken_than_are_shown(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    postbox.fill(vhost.url, "dlq", [b"%d" % n for n in range(50)], dead=False)
    assert [seen.body for seen in look(vhost, limit=3).letters] == [b"0", b"1", b"2"]
    posts = postbox.drain(vhost.url, "dlq", expect=50)
    assert [post.redelivered for post in posts] == [True] * 3 + [False] * 47
    assert [post.body for post in posts] == [b"%d" % n for n in range(50)]


def test_an_empty_and_a_missing_queue(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    assert look(vhost).letters == ()
    with pytest.raises(QueueMissing):
        look(vhost, "nope")


def test_thirty_looks_destroy_nothing_and_the_count_is_shown(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq", kind="quorum")
    bodies = [b"%d" % n for n in range(10)]
    postbox.fill(vhost.url, "dlq", bodies)
    renewed = 0
    for turn in range(30):
        seen = look(vhost, limit=10)
        assert len(seen.letters) == 10
        renewed += seen.renewed
        if seen.cost is LookCost.A_DELIVERY and turn == 3:
            assert {letter.remaining_deliveries for letter in seen.letters} == {DEFAULT_LIMIT - 3}
        postbox.wait_for(lambda: postbox.depth(vhost.url, "dlq") == 10, "all of them back")
    assert (renewed > 0) == (look_cost.look_cost(vhost.broker.version) is LookCost.A_DELIVERY)
    assert Counter(post.body for post in postbox.drain(vhost.url, "dlq", expect=10)) == Counter(bodies)


def test_the_command(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq", kind="quorum")
    die(vhost, "dlq", 2)
    told = dlq("peek", "dlq", DLQ_URL=vhost.url)
    assert told.returncode == 0, told.stderr
    assert "origin      work (exchange (default), key work)" in told.stdout
    assert "died        rejected in work, 2 ×" in told.stdout
    found = json.loads(dlq("peek", "dlq", "--json", DLQ_URL=vhost.url).stdout)
    (letter,) = found["letters"]
    assert letter["origin"]["queue"] == "work"
    assert letter["deaths"][0]["count"] == 2
    assert letter["body"] == "x"
    assert dlq("peek", "nope", DLQ_URL=vhost.url).returncode == 1


def test_strange_letters_are_shown_too(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    strange = b"S\x00\x00\x00\x02\xff\xfe"
    raw = b"\x20\x00" + (len(strange) + 2).to_bytes(4, "big") + b"\x01a" + strange
    big = RawMessage(encode(View(content_type="application/json")), b'{"a": "' + b"x" * 100_000 + b'"}')
    postbox.publish_raw(vhost.url, "dlq", RawMessage(raw, bytes(range(256))), big)
    told = json.loads(dlq("peek", "dlq", "--json", DLQ_URL=vhost.url).stdout)
    assert told["letters"][0]["headers"]["a"] == {"base64": "//4="}
    assert "body_base64" in told["letters"][0]
    text = dlq("peek", "dlq", DLQ_URL=vhost.url).stdout
    assert "00 01 02" in text
    assert len(text) < 10_000


def test_explain_a_letter_in_a_queue(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "dlq")
    die(vhost, "dlq", 1)
    told = dlq("policy", "explain", "--queue", "dlq", DLQ_URL=vhost.url)
    assert told.returncode == 0, told.stderr
    assert "work" in told.stdout
    assert json.loads(dlq("policy", "explain", "--queue", "dlq", "--json", DLQ_URL=vhost.url).stdout)
    assert postbox.depth(vhost.url, "dlq") == 1
    assert dlq("policy", "explain", DLQ_URL=vhost.url).returncode == 2


@pytest.mark.parametrize(
    ("body", "content_type", "shown"),
    [
        (b'{"a":1}', "application/json", '{\n  "a": 1\n}'),
        (b"{broken", "application/json", "{broken"),
        (b"plain\x1b[31m", None, "plain\\x1b[31m"),
        ("ü".encode() * 10, "text/plain", "ü" * 10),
        (b"\xff\x00", None, "2 bytes: ff 00"),
        (b"", None, ""),
    ],
)
def test_a_body_for_people(body: bytes, content_type: str | None, shown: str) -> None:
    assert body_text(body, content_type, most=1000) == shown


def test_a_body_is_cut_between_characters() -> None:
    assert body_text("ü".encode() * 10, None, most=5) == "üü\n… 15 bytes more"
