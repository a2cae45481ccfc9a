"""Whether two letters are the same letter twice: what of a letter stays when it is moved and delivered again.

Its bytes do not all stay. A quorum queue that delivers a letter again adds a count to its headers and sorts
them; a move adds headers of ours and sets some properties aside. What is left is the body, the routing key,
the other properties, and the headers in any order. Two letters alike in all of that may still be two: so
likeness is for setting a letter aside, never for dropping it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from deadletter.core.letter import names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View

_OURS: Final = "deadletter-"
_NAMES_KNOWN: Final = 256
_NAMES_MAX: Final = 64
"""Of letters with more headers the names are looked at each time."""


def likeness(letter: Letter) -> bytes:
    """Sixteen bytes, equal for a letter and its copy. Raises MessageError for bytes that are no message."""
    view = letter.view
    told = letter.headers
    headers = [(name, repr(told[name])) for name in not_ours(told) if name not in names.DELIVERY_COUNTS]
    headers.sort()
    digest = blake2b(repr((letter.came_by.routing_key, _kept(view), headers)).encode(), digest_size=16)
    digest.update(letter.body)
    return digest.digest()


def not_ours(headers: Mapping[str, object]) -> tuple[str, ...]:
    """The names of headers that Deadletter did not write, in their order. Letters of one application have the
    same names: so they are divided once."""
    some = tuple(headers)
    return _known(some) if len(some) <= _NAMES_MAX else _not_ours(some)


def _not_ours(some: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in some if not name.startswith(_OURS))


_known: Final = lru_cache(maxsize=_NAMES_KNOWN)(_not_ours)


def _kept(view: View) -> tuple[object, ...]:
    """The properties that a move leaves alone."""
    return (
        view.content_type,
        view.content_encoding,
        view.priority,
        view.correlation_id,
        view.reply_to,
        view.message_id,
        view.timestamp,
        view.type,
        view.app_id,
        view.cluster_id,
    )
