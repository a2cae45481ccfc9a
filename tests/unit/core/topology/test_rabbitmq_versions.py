"""`core.topology.rabbitmq_versions`: how a version is read, and what each does."""

from __future__ import annotations

import pytest

from deadletter.core.topology.rabbitmq_versions import UNKNOWN, Version, traits_of, version_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3.10.8", Version(3, 10, 8)),
        ("4.3", Version(4, 3, 0)),
        ("4.0.5-rc.1", Version(4, 0, 5)),
        ("4.3.6+2.gabc", Version(4, 3, 6)),
        ("", UNKNOWN),
        ("unknown", UNKNOWN),
        ("4", UNKNOWN),
        ("v4.3.6", UNKNOWN),
    ],
)
def test_a_version_is_what_a_text_begins_with(text: str, number: Version) -> None:
    assert version_of(text) == number
    assert traits_of(text).is_known is (number != UNKNOWN)


def test_versions_are_compared_by_their_numbers() -> None:
    assert version_of("3.9.29") < version_of("3.10.0") < version_of("3.13.7") < version_of("4.0.0")


@pytest.mark.parametrize(
    ("text", "limit", "nack_counts", "believes_clients", "sorts_headers", "native", "by_policy"),
    [
        ("3.10.8", None, True, True, False, False, False),
        ("3.13.7", None, True, True, False, False, False),
        ("4.0.5", 20, True, False, True, False, False),
        ("4.2.0", 20, True, False, True, False, False),
        ("4.3.0", 20, False, False, True, True, False),
        ("4.3.1", 20, False, False, True, True, True),
        ("", None, True, True, False, False, False),
    ],
)
def test_what_a_version_does(
    text: str,
    limit: int | None,
    nack_counts: bool,
    believes_clients: bool,
    sorts_headers: bool,
    native: bool,
    by_policy: bool,
) -> None:
    traits = traits_of(text)
    assert traits.default_delivery_limit == limit
    assert traits.limits_deliveries is (limit is not None)
    assert traits.nack_counts is nack_counts
    assert traits.believes_clients is believes_clients
    assert traits.sorts_headers is sorts_headers
    assert (traits.native_retry, traits.native_retry_policies) == (native, by_policy)


def test_before_3_10_there_is_no_dead_lettering_at_least_once() -> None:
    assert not traits_of("3.9.29").at_least_once
    assert traits_of("3.10.0").at_least_once
