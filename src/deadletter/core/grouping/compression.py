"""Letters, smaller and exact.

Every letter's headers name the same things: deaths, ids, errors. A dictionary of those names lets even a few
hundred bytes shrink. Letters of one group are nearly the same letter, so with one of them as `known` the
others shrink to what is their own. The first byte says what was done, so what is stored today can be read by
every later version, whatever dictionary that one uses.
"""

from __future__ import annotations

import zlib
from typing import Final

KNOWN_MAX_BYTES: Final = 7_000
"""More of a known letter would not be reached from a small one: the small window has 8 KiB."""
_PLAIN: Final = b"\0"
_DEFLATED: Final = b"\1"
_WORTH_BYTES: Final = 32
_LEVEL: Final = 6
_SMALL_LEVEL: Final = 3
"""Of small letters most is known: a fiftieth more bytes, a quarter less time."""
_SMALL_BYTES: Final = 16 * 1024
_SMALL_WINDOW: Final = -13
"""For small letters: a large window costs more to set up than to use."""
_WINDOW: Final = -15
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


def packed(data: bytes, known: bytes = b"") -> bytes:
    """Smaller where that is worth it. `known`: what it is likely to resemble, needed to unpack it again."""
    if len(data) < _WORTH_BYTES:
        return _PLAIN + data
    small_one = len(data) <= _SMALL_BYTES
    level, window = (_SMALL_LEVEL, _SMALL_WINDOW) if small_one else (_LEVEL, _WINDOW)
    # In what is known is a letter's every name, so ours would only take time. Whoever unpacks has both before
    # it, and what is told is how far back something is: only the nearer one is ever meant.
    press = zlib.compressobj(level, zlib.DEFLATED, window, zdict=known or _DICTIONARY_1)
    small = b"".join((_DEFLATED, press.compress(data), press.flush()))
    return small if len(small) <= len(data) else _PLAIN + data


def unpacked(stored: bytes, known: bytes = b"") -> bytes:
    """What was packed, byte for byte. ValueError for what was not."""
    kind = stored[:1]
    if kind == _PLAIN:
        return stored[1:]
    if kind != _DEFLATED:
        raise ValueError(f"stored bytes begin with {kind!r}: written by a newer version?")
    try:
        inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARY_1 + known)
        data = inflate.decompress(stored[1:])
    except zlib.error as error:
        raise ValueError(f"stored bytes are damaged: {error}") from error
    if not inflate.eof:
        raise ValueError("stored bytes are damaged: their end is missing")
    return data
