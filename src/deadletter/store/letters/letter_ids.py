"""How the store keeps what letters are known by: an id, and what copies have in common."""

from __future__ import annotations

from typing import Final

SAME_BYTES: Final = 12


def id_bytes(letter_id: str) -> bytes:
    """An id of ours in sixteen bytes; any other as it is."""
    try:
        return bytes.fromhex(letter_id) if len(letter_id) == 32 else letter_id.encode("utf-8", "replace")
    except ValueError:
        return letter_id.encode("utf-8", "replace")


def same_bytes(letter_id: str, same: bytes) -> bytes:
    """What a letter and its copies have in common, beginning with the letter's id: one index for both."""
    return id_bytes(letter_id) + same[:SAME_BYTES]


def id_of(same: bytes) -> str:
    """The id of the letter that has this in common with its copies."""
    letter_id = same[:-SAME_BYTES]
    return letter_id.hex() if len(letter_id) == 16 else letter_id.decode("utf-8", "replace")


def in_common(same: bytes) -> bytes:
    """What of it says that letters of one id are copies."""
    return same[-SAME_BYTES:]
