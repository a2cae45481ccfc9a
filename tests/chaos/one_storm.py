"""A short storm under pytest. Not collected by itself, for its name: pytest tests/chaos/one_storm.py"""

from __future__ import annotations

import os

import pytest
from tests.chaos.__main__ import storm
from tests.chaos.storm import Weather


@pytest.mark.timeout(900)
def test_a_storm_loses_nothing(broker_version: str | None) -> None:
    minutes = float(os.environ.get("DLQ_CHAOS_MINUTES", "1"))
    found = storm(Weather(minutes=minutes, rate_per_s=500), broker_version)
    told = "\n".join(found.told())
    assert found.settled, told
    assert not found.ledger.lost, told
    assert not found.ledger.strangers(), told
    assert not found.ledger.ids_differ(), told
