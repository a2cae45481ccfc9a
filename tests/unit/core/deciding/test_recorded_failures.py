"""What real frameworks left on a real broker: every letter of the corpus can be read, and its labels hold.

About `core.deciding.failure`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.failure_corpus import FAILURES, frameworks, recorded_failures

from deadletter.core.deciding.failure import Framework, read_failure

WRITTEN_BY_US = ("aiopika", "deadletter", "faststream")


def test_it_stays_small_and_has_many() -> None:
    assert sum(path.stat().st_size for path in FAILURES.iterdir()) < 1_500_000
    assert len(list(recorded_failures())) > 600


@pytest.mark.parametrize("framework", frameworks())
def test_each_letter_decodes_and_each_group_has_more_than_one(framework: str) -> None:
    sizes: Counter[str] = Counter()
    for record in recorded_failures(framework):
        sizes[record.expect] += 1
        assert record.framework == framework == record.expect.split("/")[0]
        assert record.letter.view is not None
        assert len(record.letter.id) == 32
    assert min(sizes.values()) > 1


@pytest.mark.parametrize("framework", WRITTEN_BY_US)
def test_what_we_wrote_we_read(framework: str) -> None:
    for record in recorded_failures(framework):
        failure = read_failure(record.letter.headers, record.letter.body)
        assert failure is not None
        assert failure.framework is Framework.DEADLETTER
        assert failure.error_type, record.expect
        assert failure.stack, record.expect


def test_dramatiq_is_known_by_its_body() -> None:
    for record in recorded_failures("dramatiq"):
        failure = read_failure(record.letter.headers, record.letter.body)
        assert failure is not None
        assert failure.framework is Framework.DRAMATIQ
        assert failure.queue == record.origin
