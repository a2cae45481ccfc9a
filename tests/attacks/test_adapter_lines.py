"""An error text that would write lines of its own into an application's log, by way of an adapter.

About `adapters.telling`.
"""

from __future__ import annotations

import logging

import pytest

from deadletter.adapters.telling import tell
from deadletter.consumer.events import Fate, Handled

EVIL = "boom\x1b[2J\r\u2028ERROR all is well\nERROR and this too"


@pytest.mark.parametrize("fate", [Fate.PARKED, Fate.STUCK])
def test_what_is_told_is_one_line_that_does_nothing(fate: Fate, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []
    with caplog.at_level(logging.DEBUG, "deadletter.adapters"):
        tell(Handled(queue=f"orders{EVIL}", fate=fate, why=EVIL), heard.append)
    (record,) = caplog.records
    said = record.getMessage()
    assert said.isprintable(), said
    assert len(said.splitlines()) == 1
    assert said.count("and this too") == 2  # it is shown, not cut off
    assert heard == [Handled(queue=f"orders{EVIL}", fate=fate, why=EVIL)]  # who listens gets it exactly
