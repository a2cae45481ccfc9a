"""Whether two letters are the same letter twice: what of a letter stays when it is moved and delivered again.

Its bytes do not all stay. A quorum queue that delivers a letter again adds a count to its headers and sorts
them; a move adds headers of ours and sets some properties aside. What is left is the body, the routing key,
the other properties, and the headers in any order. Two letters alike in all of that may still be two: so
likeness is for setting a letter aside, never for dropping it.
"""

from __future__ import annotations

from hashlib import blake2b

from deadletter.core.letter import names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View

_OURS = "deadletter-"


def likeness(letter: Letter) -> bytes:
    """Sixteen bytes, equal for a letter and its copy. Raises MessageError for bytes that are no message."""
    view = letter.view
    headers = [
        (name, repr(value))
        for name, value in letter.headers.items()
        if not name.startswith(_OURS) and name not in names.DELIVERY_COUNTS
    ]
    headers.sort()
    digest = blake2b(repr((letter.came_by.routing_key, _kept(view), headers)).encode(), digest_size=16)
    digest.update(letter.body)
    return digest.digest()


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
