"""Tokens as a settings file knows them: by their hash.

A token of ours has 256 bits of chance. Nobody finds it by trying, whatever the hash costs; so SHA-256 is
enough, and a check with every request is cheap.
"""

from __future__ import annotations

import hashlib
from typing import Final

PREFIX: Final = "dlq_"
"""So that a token is known as one where it should not be: in a log, in a repository."""
HASH_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"


def hashed(token: str) -> str:
    """As it stands in the file."""
    return f"sha256:{hashlib.sha256(token.encode(errors='surrogateescape')).hexdigest()}"
