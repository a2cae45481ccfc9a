"""The names that layouts give, and how a name that would be too long is shortened.

RabbitMQ takes names of at most 255 bytes. A queue may use them all, and `deadletter.return.` in front of it
is then too much. What is shortened is the queue's part in the middle, and a digest of the whole takes its
place: so two long queues never share a name, and a pattern such as `*.dlq` still finds the shortened one.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from deadletter.core.letter import names
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.names import PREFIX

MAX_NAME_BYTES: Final = 255
_DIGEST_BYTES: Final = 8
_MARK: Final = "~"
"""Between what is left of a name and its digest."""

DUE: Final = names.DUE
PARKED: Final = names.PARKED
ASKED: Final = names.ASKED
HELD: Final = f"{PREFIX}held."
OURS_POLICY: Final = PREFIX.removesuffix(".")
"""The RabbitMQ policy over everything that is named like us."""
OURS_PATTERN: Final = "^" + re.escape(PREFIX)


RETURN: Final = f"{PREFIX}return."


def level_name(delay_ms: int) -> str:
    """`deadletter.delay.<ms>`: the name says the TTL, so the TTL of a name never changes."""
    return f"{PREFIX}delay.{delay_ms}"


def asked_name(delay_ms: int) -> str:
    """`deadletter.asked.<ms>`: a delay that a handler asked for and nobody planned."""
    return f"{ASKED}.{delay_ms}"


def return_exchange_name(queue: str) -> str:
    """The fanout exchange that leads to this queue and to nothing else."""
    return around(RETURN, queue)


def held_name(gate: str) -> str:
    """Where letters wait that are due and may not go; one queue per gate."""
    return around(HELD, gate)


def dlq_name(queue: str) -> str:
    return around("", queue, ".dlq")


def policy_name(queue: str) -> str:
    """The RabbitMQ policy of ours for exactly this queue."""
    return around(PREFIX, queue)


def lifting_policy_name(queue: str) -> str:
    """The RabbitMQ policy that takes the delivery limit off this queue while one command runs."""
    return around(f"{PREFIX}lifted.", queue)


def around(before: str, queue: str, after: str = "") -> str:
    """`before + queue + after`, the queue's part shortened where the whole would be too long."""
    whole = f"{before}{queue}{after}"
    if len(as_bytes(whole)) <= MAX_NAME_BYTES:
        return whole
    digest = blake2b(as_bytes(whole), digest_size=_DIGEST_BYTES).hexdigest()
    room = MAX_NAME_BYTES - len(before.encode()) - len(after.encode()) - len(_MARK) - len(digest)
    head = as_bytes(queue)[:room].decode(errors="ignore")  # never half a character
    return f"{before}{head}{_MARK}{digest}{after}"


def exactly(name: str) -> str:
    """The pattern of a RabbitMQ policy that this name alone matches."""
    return f"^{re.escape(name)}$"
