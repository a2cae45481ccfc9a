"""The entries of `x-death` that go on under a name of ours: cut out as bytes, bounded."""

from __future__ import annotations

from typing import Final

from deadletter.core.letter import field_table

MAX_DEATHS_BYTES: Final = 16 * 1024
"""What is kept over many trips; the oldest go first."""
_ARRAY: Final = ord("A")


def entries_of(headers: bytes, start: int, end: int) -> bytes:
    """The entries in the header value that stands there."""
    # What is not an array was not written by a broker; it is kept as an element of one.
    return headers[start + 5 : end] if headers[start] == _ARRAY else headers[start:end]


def newest(deaths: bytes) -> bytes:
    """As many of these entries, newest first, as are kept; one at least."""
    if len(deaths) <= MAX_DEATHS_BYTES:
        return deaths
    kept: list[bytes] = []
    room = MAX_DEATHS_BYTES
    for element in field_table.elements(deaths):
        room -= len(element)
        if room < 0 and kept:
            break
        kept.append(element)
    return b"".join(kept)
