"""What a look costs a letter, and when it may not be given back.

About `core.topology.look_cost`.
"""

from __future__ import annotations

import pytest

from deadletter.core.topology.look_cost import (
    UNLIMITED,
    Deliveries,
    LookCost,
    advice,
    deliveries_by_default,
    deliveries_of,
    deliveries_there,
)
from deadletter.core.topology.rabbitmq_versions import DEFAULT_LIMIT
from deadletter.core.topology.vhost import Queue


@pytest.mark.parametrize("version", ["4.0.5", "4.3.6", "", "5.1", "unknown"])
def test_where_nobody_tells_the_limit_is_the_default_one(version: str) -> None:
    found = deliveries_by_default(version)
    assert (found.limit, found.known, found.strikes) == (DEFAULT_LIMIT, False, True)


def test_before_4_there_is_none_by_default() -> None:
    found = deliveries_by_default("3.10.8")
    assert (found.limit, found.strikes, found.cost, found.must_renew(10**6)) == (
        None,
        False,
        LookCost.FREE,
        False,
    )


@pytest.mark.parametrize("limit", range(31))
@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.3.6"])
def test_what_may_be_given_back_survives_it(version: str, limit: int) -> None:
    """A letter lives when its count after the return is not above the limit; a nack is free from 4.3 on."""
    deliveries = deliveries_of(version, limit)
    cost = 0 if version == "4.3.6" else 1
    for count in range(limit + 3):
        if not deliveries.must_renew(count):
            assert count + cost <= limit
        if not deliveries.is_last(count):
            assert count + 1 <= limit  # a crash counts everywhere


@pytest.mark.parametrize(
    ("deliveries", "more"),
    [
        (deliveries_of("3.10.8", None), False),
        (deliveries_of("4.0.5", 20), False),
        (deliveries_of("4.3.6", 20), True),
        (deliveries_of("4.3.6", None), True),
        (UNLIMITED, False),
    ],
)
def test_a_closed_channel_costs_more_than_a_nack_where_only_that_is_free(
    deliveries: Deliveries, more: bool
) -> None:
    assert deliveries.closing_costs_more is more


@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.3.6"])
@pytest.mark.parametrize("limit", [None, -1, 5])
def test_a_quorum_queue_counts_also_where_it_has_no_limit(version: str, limit: int | None) -> None:
    """It is as late with acks as any other; taken for a classic one, letters would be in both places."""
    effective = {} if limit is None else {"delivery-limit": limit}
    found = deliveries_there(Queue(name="q", type="quorum", effective=effective), version)
    assert (found.counts, found.known) == (True, True)
    if limit == -1:  # on 3.x the first return is the last
        assert found.limit == (0 if version == "3.10.8" else None)
    else:
        assert found.limit == (limit or deliveries_by_default(version).limit)
    assert deliveries_there(Queue(name="q", type="classic", effective=effective), version) == UNLIMITED


def test_where_a_nack_is_free_a_letter_is_renewed_as_soon_as_a_crash_would_destroy_it() -> None:
    deliveries = deliveries_of("4.3.6", 20)
    assert (deliveries.must_renew(19), deliveries.must_renew(20), deliveries.must_renew(21)) == (
        False,
        True,
        True,
    )
    assert (deliveries.left(19), deliveries.left(21)) == (1, 0)


def test_a_limit_that_is_lifted_for_a_while_destroys_nothing_now_and_something_later() -> None:
    lifted = Deliveries(limit=20, nack_costs=True, known=True, lifted=True)
    assert not lifted.strikes
    assert not lifted.is_last(25)
    assert lifted.must_renew(25)


def test_the_advice_survives_a_shell() -> None:
    told = advice("it's $(odd)", "/a b")
    assert "'/a b'" in told
    assert """'no-limit-it'"'"'s $(odd)'""" in told
