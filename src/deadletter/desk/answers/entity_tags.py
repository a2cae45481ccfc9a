"""ETags: `"version~freshness"`.

The first part is the version of one thing that two people may change at once (a group, a draft, a row): it is
what `If-Match` is compared with, and letters that come do not change it. The second part says how the store
was when the answer was made: it is what `If-None-Match` is compared with, and costs one small question, not
the answer itself.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header
from starlette.responses import Response

from deadletter.errors import UsageError

_BETWEEN: Final = "~"
_CHARS: Final = 200

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=_CHARS,
        description="The ETag of what was looked at: where somebody else changed it since, nothing is done.",
        examples=['"5feceb66ffc86f38"'],
    ),
]


def tell_version(response: Response, version: str) -> None:
    """The version of what this answer is about."""
    response.headers["etag"] = f'"{version}"'


def with_freshness(response: Response, freshness: str) -> None:
    version = response.headers.get("etag", "").strip('"')
    response.headers["etag"] = f'"{version}{_BETWEEN}{freshness}"'


def version_of(if_match: str | None) -> str:
    """The version that is expected; empty: any. UsageError where it is no ETag of ours."""
    if if_match is None or if_match.strip() == "*":
        return ""
    version = if_match.strip().removeprefix("W/").strip('"').partition(_BETWEEN)[0]
    if not version or not version.isascii() or not version.isalnum():
        raise UsageError(f"If-Match: expected an ETag of this service, got {if_match[:100]!r}")
    return version


def is_fresh(if_none_match: str, freshness: str) -> bool:
    """Whether who asks has this very answer."""
    tags = (one.strip().removeprefix("W/").strip('"') for one in if_none_match.split(","))
    return any(tag.partition(_BETWEEN)[2] == freshness for tag in tags)
