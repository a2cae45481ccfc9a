"""Failures that real frameworks left on a broker: what belongs together is together, and nothing else.

About `core.grouping.fingerprint`, `core.grouping.masks`, `core.grouping.stacks`,
`core.deciding.failure_payloads`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable

import pytest
from tests.failure_corpus import frameworks, recorded_failures

from deadletter.core.grouping.stored_letter import stored_letter

LEAST = 0.98
BROKER_ALONE = re.compile(r"^rabbitmq-[\d.]+/")
"""Both brokers had the same queues with the same deaths: the same failures."""


def pairs(groups: Iterable[Hashable]) -> int:
    """How many pairs are in one group."""
    return sum(count * (count - 1) // 2 for count in Counter(groups).values())


def measured(*wanted: str) -> tuple[float, float]:
    """Of pairs that are together, those that belong together; of those that do, those that are."""
    seen = [
        (BROKER_ALONE.sub("", one.expect), stored_letter(one.letter, now_ms=1).fingerprint.key)
        for one in recorded_failures(*wanted)
    ]
    right = pairs(seen)
    return right / pairs(key for _, key in seen), right / pairs(expect for expect, _ in seen)


def test_all_of_them_in_one_store() -> None:
    precision, recall = measured()
    assert precision >= LEAST
    assert recall >= LEAST


@pytest.mark.parametrize("framework", frameworks())
def test_no_framework_is_bad_at_the_expense_of_others(framework: str) -> None:
    precision, recall = measured(framework)
    assert precision >= 0.95
    assert recall >= 0.93
