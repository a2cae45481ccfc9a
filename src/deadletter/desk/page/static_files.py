"""Scripts, styles and pictures of the page: read once, served under the hash of them all.

The hash is part of the address, so a browser may keep what it has for a year, and a new version is asked for
at once. One hash for all, because modules import each other by relative names.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

PREFIX: Final = "/static"
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"


@cache
def static_files() -> dict[str, bytes]:
    """Every one by its name."""
    found = files("deadletter.desk.page") / "static"
    return {one.name: one.read_bytes() for one in sorted(found.iterdir(), key=lambda each: each.name)}


@cache
def version() -> str:
    """The hash of all of them."""
    made = blake2b(digest_size=8)
    for name, content in static_files().items():
        made.update(f"{name}\0{len(content)}\0".encode() + content)
    return made.hexdigest()


def static_url(name: str) -> str:
    """Where a file is; KeyError where there is none of this name."""
    if name not in static_files():
        raise KeyError(name)
    return f"{PREFIX}/{version()}/{name}"


def static_routes() -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get(PREFIX + "/{of}/{name}")
    async def static(of: str, name: str) -> Response:
        content = static_files().get(name)
        if content is None:
            raise HTTPException(404)
        kind = _KINDS["." + name.rpartition(".")[2]]
        # an address from before an update still gets something, but nobody keeps it
        keep = _FOREVER if of == version() else "no-store"
        return Response(content, media_type=kind, headers={"cache-control": keep})

    return routes
