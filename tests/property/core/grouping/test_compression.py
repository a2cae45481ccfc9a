"""What was packed comes back byte for byte. About `core.grouping.compression`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.grouping.compression import KNOWN_MAX_BYTES, packed, unpacked

DATA = st.binary(max_size=5_000) | st.binary(max_size=40).map(lambda part: part * 1_000)


@given(DATA, DATA.map(lambda data: data[:KNOWN_MAX_BYTES]))
def test_exact(data: bytes, known: bytes) -> None:
    stored = packed(data, known)
    assert unpacked(stored, known) == data
    assert len(stored) <= len(data) + 1


def test_what_is_known_already_takes_no_room() -> None:
    known = bytes(range(256)) * 20
    assert len(packed(known + b"!", known)) < 80


@pytest.mark.parametrize(
    "damaged", [b"", b"\x07abc", b"\x01abc", b"\x01\xff\xff\xff", packed(b"long" * 90)[:-3]]
)
def test_what_is_damaged_is_said(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="stored bytes"):
        unpacked(damaged)
