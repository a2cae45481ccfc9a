"""What was packed comes back byte for byte. About `core.grouping.compression`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.grouping.compression import packed, unpacked


@given(st.binary(max_size=5_000) | st.binary(max_size=40).map(lambda part: part * 200), st.booleans())
def test_exact(data: bytes, headers: bool) -> None:
    stored = packed(data, headers=headers)
    assert unpacked(stored) == data
    assert len(stored) <= len(data) + 1


@pytest.mark.parametrize("damaged", [b"", b"\x07abc", b"\x01abc", b"\x02\xff\xff\xff"])
def test_what_is_damaged_is_said(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="stored bytes"):
        unpacked(damaged)
