"""Routing keys as text. AMQP takes any bytes for one, and RabbitMQ passes them on as they came.

Queue names, exchange names and binding keys are UTF-8: RabbitMQ closes the connection on any other. The key
of a message need not be. In here it is a `str` all the same; bytes that are not UTF-8 are lone surrogates in
it, and come out again as the bytes they were. Print it with `header_values.shown`.
"""

from __future__ import annotations


def as_text(raw: bytes) -> str:
    """Any bytes; nothing is lost."""
    return raw.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """The bytes it stands for. Raises UnicodeEncodeError on a surrogate that stands for none."""
    return text.encode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """Whether a queue or an exchange can be called that."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
