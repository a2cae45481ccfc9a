"""Which deaths can have led a letter to where it was found, in topologies of all shapes.

About `core.deciding.place`, `core.deciding.letter_view`, `core.topology.descent`.
"""

from __future__ import annotations

import pytest

from deadletter.core.deciding.deaths import Death, OriginBy, read_history
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.origin import Claimed, Copied, Fresh, Origin, Returned, Unproven
from deadletter.core.deciding.place import Place
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.vhost import Binding, DestinationKind, Exchange, Queue, Topology, topology


def queue(name: str, dlx: str | None = None, key: str | None = None) -> Queue:
    arguments = {"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": key}
    return Queue(name=name, arguments={k: v for k, v in arguments.items() if v is not None})


def bound(
    source: str, destination: str, key: str = "", to: DestinationKind = DestinationKind.QUEUE
) -> Binding:
    return Binding(source=source, destination=destination, routing_key=key, to=to)


SHOP: Topology = topology(
    exchanges=[
        Exchange(name="shop", type="topic"),
        Exchange(name="dlx", type="topic"),
        Exchange(name="plain", type="direct"),
        Exchange(name="behind", type="fanout"),
        Exchange(name="other", type="fanout"),
    ],
    queues=[
        queue("orders", "dlx"),
        queue("billing", "dlx"),
        queue("late", "plain", "late"),
        queue("early", "", "late"),
        queue("ring", "", "ring.wait"),
        queue("ring.wait", "", "ring"),
        queue("aside", "other"),
        queue("nothing"),
        queue("order.dlq"),
        queue("bill.dlq"),
    ],
    bindings=[
        bound("shop", "orders", "order.#"),
        bound("shop", "billing", "bill.#"),
        bound("deadletter.return.billing", "billing"),
        bound("dlx", "order.dlq", "order.#"),
        bound("dlx", "order.dlq", "orders"),
        bound("dlx", "bill.dlq", "bill.*"),
        bound("plain", "behind", "late", DestinationKind.EXCHANGE),
        bound("behind", "order.dlq"),
        bound("other", "order.dlq"),
    ],
)
DESCENT = Descent(SHOP)


@pytest.mark.parametrize(
    ("name", "into"),
    [
        ("orders", {"order.dlq"}),
        ("billing", {"bill.dlq"}),
        ("late", {"order.dlq"}),
        ("early", {"late"}),
        ("ring", {"ring.wait"}),
        ("nothing", set()),
        ("not there", set()),
    ],
)
def test_where_letters_die_into(name: str, into: set[str]) -> None:
    assert DESCENT.into(name) == into


def test_letters_may_die_again_on_the_way() -> None:
    assert DESCENT.reaches("early", {"order.dlq"})
    assert DESCENT.reaches("ring", {"ring"})
    assert not DESCENT.reaches("ring", {"order.dlq"})
    assert not DESCENT.reaches("billing", {"order.dlq"})


def test_the_same_shape_read_again_changes_nothing() -> None:
    again = topology(
        exchanges=list(SHOP.exchanges.values()),
        queues=list(SHOP.queues.values()),
        bindings=tuple(reversed(SHOP.bindings)),
    )
    assert DESCENT.same_as(Descent(again))
    fewer = topology(
        exchanges=list(SHOP.exchanges.values()),
        queues=list(SHOP.queues.values()),
        bindings=SHOP.bindings[1:],
    )
    assert not DESCENT.same_as(Descent(fewer))


def died(*deaths: str) -> list[dict[str, object]]:
    """`orders`, or `orders expired`; the newest first."""
    return [
        {"queue": name, "reason": reason or "rejected", "count": 1, "exchange": "shop", "routing-keys": ["k"]}
        for name, _, reason in (death.partition(" ") for death in deaths)
    ]


def proven(*deaths: str, by: tuple[str, str] = ("dlx", "order.new"), named: tuple[str, ...] = ()) -> int:
    place = Place(queue="order.dlq", ways=DESCENT, named=named)
    found: tuple[Death, ...] = read_history({"x-death": died(*deaths)}).recent
    return len(place.proven(found, by))


PLAIN = ("plain", "late")
OTHER = ("other", "k")


@pytest.mark.parametrize(
    ("deaths", "by", "number"),
    [
        (["orders"], ("dlx", "order.new"), 1),
        (["billing"], ("dlx", "order.new"), 0),
        (["nothing"], ("dlx", "order.new"), 0),
        (["orders"], OTHER, 0),  # its letters come by another exchange
        (["late"], PLAIN, 1),
        (["late"], ("plain", "odd"), 0),  # and with a key of its own
        (["late"], ("", "order.dlq"), 1),  # renewed: by the default exchange, or by one of ours
        (["late"], ("deadletter.carry", "k"), 1),
        (["late", "early expired"], PLAIN, 2),
        (["late", "early expired", "nothing"], PLAIN, 2),
        (["late", "orders"], PLAIN, 1),  # both come here, and neither by way of the other
        (["late", "late expired"], PLAIN, 2),
        (["gone"], OTHER, 1),
        (["late", "gone"], PLAIN, 2),
        (["gone", "orders"], OTHER, 1),  # nothing leads to what is not there
    ],
)
def test_deaths_are_proven_link_by_link(deaths: list[str], by: tuple[str, str], number: int) -> None:
    assert proven(*deaths, by=by) == number


def test_what_the_configuration_names_needs_no_proof() -> None:
    assert proven("nothing", named=("noth*",)) == 1
    assert proven("late", "nothing", by=PLAIN, named=("nothing",)) == 2


def test_no_queue_has_a_name_that_is_not_utf8() -> None:
    assert proven("\udcff") == 0


OURS = {"deadletter-id": "id-1", "deadletter-origin-queue": "late", "deadletter-attempt": 2}


def seen(
    *deaths: str,
    by: tuple[str, str] = PLAIN,
    origin_by: OriginBy = OriginBy.FAILURE,
    headers: dict[str, object] | None = None,
    named: tuple[str, ...] = (),
) -> LetterView:
    return view_letter(
        {**({"x-death": died(*deaths)} if deaths else {}), **(headers or {})},
        broker_keeps_client_deaths=True,
        by=origin_by,
        place=Place(queue="order.dlq", ways=DESCENT, named=named),
        came_by=by,
    )


def test_the_newest_failure_decides_whatever_came_along_behind_it() -> None:
    letter = seen("late", "orders", "nothing")
    assert isinstance(letter.provenance, Fresh)
    assert letter.provenance.origin.queue == "late"
    assert [death.queue for death in letter.history.recent] == ["late"]
    assert letter.reason == "rejected"


def test_where_nobody_failed_an_older_death_that_is_not_its_own_is_a_doubt() -> None:
    letter = seen("late expired", "orders")
    assert isinstance(letter.provenance, Unproven)
    assert letter.origin is None
    assert "orders" in letter.provenance.why


def test_the_first_death_needs_all_of_them() -> None:
    whole = seen("late", "early expired", origin_by=OriginBy.FIRST)
    assert whole.origin is not None
    assert (whole.origin.queue, whole.reason) == ("early", "expired")
    assert isinstance(seen("late", "orders", origin_by=OriginBy.FIRST).provenance, Unproven)
    last = seen("late expired", "orders", origin_by=OriginBy.LAST)
    assert last.origin is not None
    assert last.origin.queue == "late"


def test_our_headers_are_held_against_what_is_proven() -> None:
    assert isinstance(seen("late", headers=OURS).provenance, Returned)
    copied = seen("orders", by=("dlx", "order.new"), headers=OURS).provenance
    assert isinstance(copied, Copied)
    assert copied.parent_id == "id-1"
    assert isinstance(seen("nothing", headers=OURS).provenance, Unproven)


def test_a_letter_that_went_on_from_where_we_sent_it_is_still_the_same() -> None:
    headers = {**OURS, "deadletter-origin-queue": "early"}
    letter = seen("late", "early expired", headers=headers)
    assert isinstance(letter.provenance, Returned)
    assert letter.provenance.letter_id == "id-1"
    assert letter.provenance.origin.queue == "late"


def test_a_claim_is_believed_where_the_configuration_names_it() -> None:
    assert seen(headers=OURS).provenance == Claimed(
        origin=Origin(queue="late"), letter_id="id-1", by="deadletter-origin-queue"
    )
    vouched = seen(headers=OURS, named=("la*",)).provenance
    assert isinstance(vouched, Claimed)
    assert vouched.vouched
