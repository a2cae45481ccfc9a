"""From which of several queues a letter goes home: whoever asks the same broker gets the same answer.

About `core.topology.fanout`.
"""

from __future__ import annotations

import pytest

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.fanout import Fanouts
from deadletter.core.topology.vhost import Binding, Exchange, Queue, Topology, topology

DLQS = ("orders.dlq", "billing.dlq")


def shape(*dlqs: str, kind: str = "fanout", origins: tuple[str, ...] = ("orders", "billing")) -> Topology:
    return topology(
        exchanges=(Exchange(name="dlx", type=kind),),
        queues=(
            *(Queue(name=name, arguments={"x-dead-letter-exchange": "dlx"}) for name in origins),
            *(Queue(name=name) for name in dlqs),
        ),
        bindings=tuple(Binding(source="dlx", destination=name) for name in dlqs),
    )


@pytest.mark.parametrize("watched", [{"orders.dlq"}, {"billing.dlq"}, set(DLQS)])
def test_the_home_is_the_same_whoever_watches_what(watched: set[str]) -> None:
    found = Fanouts(shape(*DLQS, origins=("orders", "billing", "third")), frozenset(watched))
    assert found.homes == {"orders": "orders.dlq", "billing": "billing.dlq", "third": "billing.dlq"}
    for origin, home in found.homes.items():
        assert found.home(origin, ["any.key"]) == home


def test_a_queue_may_be_named_after_its_origin_in_other_ways() -> None:
    found = Fanouts(shape("dead-orders", "dead-billing"), frozenset({"dead-billing"}))
    assert found.homes == {"orders": "dead-orders", "billing": "dead-billing"}


def test_an_archive_is_neither_home_nor_copy() -> None:
    found = Fanouts(shape("orders.dlq", "archive", origins=("orders",)), frozenset({"orders.dlq"}))
    assert not found.homes
    assert found.home("orders", ["orders"]) is None
    watched_too = Fanouts(shape("orders.dlq", "archive", origins=("orders",)), frozenset({"archive"}))
    assert watched_too.home("orders", ["orders"]) == "orders.dlq"


def test_the_way_back_does_not_hide_the_fanout() -> None:
    """Once a letter went home its origin is bound to an exchange of ours, and may get any key."""
    plain = shape(*DLQS)
    bound = topology(
        exchanges=(*plain.exchanges.values(), Exchange(name="deadletter.return.orders", type="fanout")),
        queues=plain.queues.values(),
        bindings=(*plain.bindings, Binding(source="deadletter.return.orders", destination="orders")),
    )
    watched = frozenset({"billing.dlq"})
    assert Fanouts(bound, watched).homes == Fanouts(plain, watched).homes
    assert Fanouts(bound, watched).homes
    assert not Fanouts(bound, frozenset({"mails.dlq"})).homes, "nothing to do with what is watched here"


def test_what_headers_decide_is_not_known_to_be_copied() -> None:
    found = Fanouts(shape(*DLQS, kind="headers"), frozenset(DLQS))
    assert not found.homes
    assert found.home("orders", ["orders"]) is None


def test_an_exchange_that_is_gone_copies_nothing() -> None:
    gone = topology(
        queues=(
            Queue(name="orders", arguments={"x-dead-letter-exchange": "gone"}),
            Queue(name="orders.dlq"),
        ),
        exchanges=(Exchange(name="shop", type="topic"),),
        bindings=(Binding(source="shop", destination="orders", routing_key="#"),),
    )
    found = Fanouts(gone, frozenset({"orders.dlq"}))
    assert not found.homes
    assert found.home("orders", ["a"]) is None
    assert not found.surely("gone", "a", home="orders.dlq", here="orders.dlq")


def test_surely_means_both_queues_got_it_and_the_home_keeps_it() -> None:
    found = Fanouts(shape(*DLQS), frozenset())
    assert found.surely("dlx", "any", home="orders.dlq", here="billing.dlq")
    assert not found.surely("", "billing.dlq", home="orders.dlq", here="billing.dlq")
    assert not found.surely("dlx", "any", home="gone.dlq", here="billing.dlq")
    assert not found.surely("dlx", "any", home="orders.dlq", here="gone.dlq")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("classic", {"x-max-length": 5}),
        ("classic", {"x-max-length-bytes": 5}),
        ("quorum", {"x-message-ttl": 5}),
        ("classic", {"x-expires": 5}),
        ("stream", {}),
    ],
)
def test_a_home_that_may_lose_letters_is_not_sure(kind: str, arguments: dict[str, Value]) -> None:
    plain = shape(*DLQS)
    queues = {**plain.queues, "orders.dlq": Queue(name="orders.dlq", type=kind, arguments=arguments)}
    bounded = topology(exchanges=plain.exchanges.values(), queues=queues.values(), bindings=plain.bindings)
    assert not Fanouts(bounded, frozenset()).surely("dlx", "any", home="orders.dlq", here="billing.dlq")
