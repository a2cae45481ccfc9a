"""Properties and bodies, smaller and exact.

Every letter's headers name the same things: deaths, ids, errors. A dictionary of those names lets even a few
hundred bytes shrink. The first byte says what was done, so what is stored today can be read by every later
version, whatever dictionary that one uses.
"""

from __future__ import annotations

import zlib
from typing import Final

_PLAIN: Final = b"\0"
_ZLIB: Final = b"\1"
_KNOWN_1: Final = b"\2"
_WORTH_BYTES: Final = 64
_LEVEL: Final = 6
_DICTIONARY_1: Final = (
    b'Traceback (most recent call last):\n  File "/app/.py", line , in \n    raise \nValueError: '
    b"application/json\x00utf-8content_encoding"
    b"\x18deadletter-error-release\x18deadletter-error-serviceS\x00\x00\x00\x19deadletter-error-first-at"
    b"\x13deadletter-error-at\x15deadletter-error-hostS\x00\x00\x00\x16deadletter-error-stackS\x00\x00"
    b"\x18deadletter-error-messageS\x00\x00\x00\x15deadletter-error-typeS\x00\x00\x00"
    b"\x11deadletter-policyS\x00\x00\x00\x12deadletter-attemptI\x00\x00\x00\x03"
    b"\x17deadletter-origin-queueS\x00\x00\x00\x1adeadletter-origin-exchangeS\x00\x00\x00"
    b"\x1ddeadletter-origin-routing-keyS\x00\x00\x00\x19deadletter-source-exchangeS\x00\x00\x00"
    b"\x1cdeadletter-source-routing-keyS\x00\x00\x00\x10deadletter-causeS\x00\x00\x00\x11retries-exhausted"
    b"\x0edeadletter-whyS\x00\x00\x00\x14deadletter-parked-atl\x00\x00\x01\x9a"
    b"\x11deadletter-sourceS\x00\x00\x00\x0fdeadletter-moveS\x00\x00\x00\x0ddeadletter-idS\x00\x00\x00\x20"
    b"\x11deadletter-deathsA\x00\x00\x00F\x00\x00\x00"
    b"\x12x-last-death-queueS\x00\x00\x00\x13x-last-death-reasonS\x00\x00\x00\x08rejected"
    b"\x15x-last-death-exchangeS\x00\x00\x00\x13x-first-death-queueS\x00\x00\x00\x14x-first-death-reason"
    b"S\x00\x00\x00\x08rejected\x16x-first-death-exchangeS\x00\x00\x00\x07x-deathA\x00\x00\x00F\x00\x00\x00"
    b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x01\x08exchangeS\x00\x00\x00\x05queueS\x00\x00\x00"
    b"\x06reasonS\x00\x00\x00\x08rejected\x0crouting-keysA\x00\x00\x00S\x00\x00\x00\x04timeT\x00\x00\x00\x00"
    b"\xb0\x00\x10application/json\xf0\xa0\x02"
)


def packed(data: bytes, *, headers: bool = False) -> bytes:
    """Smaller where that is worth it. `headers`: these are properties, not a body."""
    if len(data) < _WORTH_BYTES:
        return _PLAIN + data
    if headers:
        press = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=_DICTIONARY_1)
        small = _KNOWN_1 + press.compress(data) + press.flush()
    else:
        small = _ZLIB + zlib.compress(data, _LEVEL)
    return small if len(small) <= len(data) else _PLAIN + data


def unpacked(stored: bytes) -> bytes:
    """What was packed, byte for byte. ValueError for what was not."""
    kind, data = stored[:1], stored[1:]
    if kind == _PLAIN:
        return data
    try:
        if kind == _ZLIB:
            return zlib.decompress(data)
        if kind == _KNOWN_1:
            return zlib.decompressobj(-15, zdict=_DICTIONARY_1).decompress(data)
    except zlib.error as error:
        raise ValueError(f"stored bytes are damaged: {error}") from error
    raise ValueError(f"stored bytes begin with {kind!r}: written by a newer version?")
