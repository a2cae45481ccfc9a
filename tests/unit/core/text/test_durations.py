"""One reader of times for file, environment and command line, and what is printed.

About `core.text.durations`, `core.text.amounts`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.cli.terminal.delays import parse_backoff
from deadletter.config import load
from deadletter.core.deciding.backoff import Fixed
from deadletter.core.text.amounts import parse_rate, parse_span
from deadletter.core.text.durations import (
    DURATION_PATTERN,
    duration_ms,
    duration_text,
    elapsed_text,
    rough_duration_text,
    whole_duration_ms,
)
from deadletter.errors import UsageError

TIMES = {
    "90": 90_000, "90s": 90_000, "1.5": 1_500, "1.5 s": 1_500, "1.5s": 1_500, " 3 s ": 3_000, "0.1s": 100,
    "500ms": 500, "15min": 900_000, "15m": 900_000, "2h": 7_200_000, "1d": 86_400_000,
    "1h30m": 5_400_000, "1h 30min": 5_400_000, "1 h 30 min": 5_400_000, "1d12h": 129_600_000,
    "3 min 12 s": 192_000, "1s500ms": 1_500, "1.5h30m": 7_200_000, "0": 0, "0ms": 0, "0s": 0,
}  # fmt: skip
NO_TIMES = (
    "", " ", "s", "5 sec", "-1", "-1s", "1e3", "1e3s", "1s2s", "30m1h", "1m 1min", "1h30", "1,5s", "inf",
    "1h-30m", "9999999999999s",
)  # fmt: skip


@pytest.mark.parametrize(("text", "expected_ms"), TIMES.items())
def test_a_time(text: str, expected_ms: int) -> None:
    assert whole_duration_ms(text) == expected_ms
    assert re.search(DURATION_PATTERN, text)


@pytest.mark.parametrize(("number", "expected_ms"), [(0, 0), (30, 30_000), (1.5, 1_500), (10**400, 10**403)])
def test_a_number_is_seconds(number: float, expected_ms: int) -> None:
    assert whole_duration_ms(number) == expected_ms


@pytest.mark.parametrize("value", [*NO_TIMES, -1, -0.5, math.inf, math.nan, True, False, None, [], {}])
def test_what_is_no_time(value: object) -> None:
    with pytest.raises(ValueError, match="a time such as"):
        duration_ms(value)


@pytest.mark.parametrize("value", ["0.5ms", "0.0001", 0.0001])
def test_less_than_a_millisecond_is_no_delay(value: object) -> None:
    with pytest.raises(ValueError, match="whole milliseconds"):
        whole_duration_ms(value)


@pytest.mark.parametrize(("text", "expected_ms"), [item for item in TIMES.items() if item[1]])
def test_file_environment_and_command_line_read_the_same(tmp_path: Path, text: str, expected_ms: int) -> None:
    file = tmp_path / "deadletter.toml"
    file.write_text(f'[[policies]]\nname = "p"\nmatch = {{queue = "q"}}\ndeadline = "{text}"\nretries = 0\n')
    environment = {"DLQ_DEFAULT_POLICY_DEADLINE": text, "DLQ_DEFAULT_POLICY_RETRIES": "0"}
    written = load(directory=tmp_path, home=tmp_path, environment=environment)
    assert written.policies.rules[0].deadline_ms == expected_ms
    assert written.policies.default.deadline_ms == expected_ms
    assert parse_span(text) == pytest.approx(expected_ms / 1_000)
    assert parse_backoff(text) == Fixed(delays_ms=(expected_ms,))


@pytest.mark.parametrize("text", [*NO_TIMES, "0", "0s"])
def test_a_command_needs_a_time_above_zero(text: str) -> None:
    with pytest.raises(UsageError, match="expected a time above zero"):
        parse_span(text)


@pytest.mark.parametrize(
    ("text", "per_s"),
    [("500", 500), ("500/s", 500), ("30/min", 0.5), ("30 / m", 0.5), ("36/h", 0.01), ("864/d", 0.01),
     ("1/ms", 1000)],
)  # fmt: skip
def test_a_rate(text: str, per_s: float) -> None:
    assert parse_rate(text) == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["0", "-1/s", "1/w", "1/", "/s", ""])
def test_no_rate(text: str) -> None:
    with pytest.raises(UsageError, match="expected a rate above zero"):
        parse_rate(text)


@given(st.integers(0, 10**10))
def test_what_is_printed_can_be_read(milliseconds: int) -> None:
    assert whole_duration_ms(duration_text(milliseconds)) == milliseconds
    assert duration_ms(rough_duration_text(milliseconds)) == pytest.approx(milliseconds, rel=0.06)
    assert duration_ms(elapsed_text(milliseconds / 1000)) == pytest.approx(milliseconds, rel=0.06, abs=1)
