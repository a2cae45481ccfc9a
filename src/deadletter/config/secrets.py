"""What must never be printed: passwords in URLs, and the tokens that alert channels carry in theirs.

Whatever is shown of a setting goes through here first, also when it is no URL at all: a password is just as
secret in one that somebody mistyped.
"""

from __future__ import annotations

import json
import re
from typing import Final

from deadletter.core.text.safe_text import line

HIDDEN: Final = "***"
_MAX_SHOWN_CHARS: Final = 200
_MAX_SHOWN_ITEMS: Final = 20
_NEXT_URL: Final = re.compile(r",(?=\s*\w+://)")
HIDDEN_PARAMETERS: Final = "pass|password|pwd|secret|token|key|sslpassword"
"""The names of a URL's parameters whose values are never printed, as a pattern."""
_PARAMETER: Final = re.compile(rf"((?:{HIDDEN_PARAMETERS})=)[^&#\s]*", re.IGNORECASE)


def without_password(urls: str) -> str:
    """`amqp://user:***@host/vhost`, one or several separated by commas."""
    return ",".join(map(_without_password, _NEXT_URL.split(urls)))


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    # up to the last @: a password may hold one that nobody encoded
    userinfo, at, host = rest.rpartition("@")
    if at:
        user, colon, _ = userinfo.partition(":")
        rest = f"{user}{colon}{HIDDEN if colon else ''}@{host}"
    elif separator and not rest.startswith("["):
        # no @ was written, and what stands for the port is none: it may be a password
        host, colon, behind = rest.partition(":")
        if colon and not re.match(r"\d+([/?#]|$)", behind):
            rest = f"{host}:{HIDDEN}"
    if separator:
        rest = _PARAMETER.sub(rf"\g<1>{HIDDEN}", rest)
    return f"{scheme}{separator}{rest}"


def without_token(channel: str) -> str:
    """A channel's kind and, for a webhook, its host: everything behind may be the key to it."""
    scheme, separator, rest = channel.partition("://")
    if not separator:
        return channel if len(channel) <= 8 and channel.isalpha() else HIDDEN
    if scheme.lower() not in ("http", "https"):
        return f"{scheme}://{HIDDEN}"
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN}"


def clean(value: object, path: tuple[str | int, ...] = ()) -> object:
    """The same value with what may be secret in it hidden."""
    match value:
        case str() if path[:2] == ("alerts", "channels") or (path[:1] == ("alerts",) and "://" in value):
            return without_token(value)
        case str() if path[:2] == ("desk", "tokens") and path[-1:] == ("hash",):
            return HIDDEN
        case str() if "@" in value or "://" in value:
            return without_password(value)
        case list() | tuple():
            return [clean(item, path) for item in value]
        case dict():
            return {key: clean(item, (*path, str(key))) for key, item in value.items()}
        case _:
            return value


def shown(value: object, path: tuple[str | int, ...] = ()) -> str:
    """A value for a person's eyes, as it would stand in a file: secrets hidden, one line, bounded."""
    return _bounded(_written(clean(value, path)))


def _written(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            items = [_written(item) for item in value[:_MAX_SHOWN_ITEMS]]
            return f"[{', '.join(items)}{', …' if len(value) > _MAX_SHOWN_ITEMS else ''}]"
        case dict():
            items = [f"{key} = {_written(item)}" for key, item in list(value.items())[:_MAX_SHOWN_ITEMS]]
            return f"{{{', '.join(items)}}}"
        case _:
            return str(value)


def _bounded(text: str) -> str:
    return line(text, _MAX_SHOWN_CHARS)
