"""Whether what a rule waits for is well: its URL answers 2xx."""

from __future__ import annotations

from typing import Final

import httpx

TIMEOUT_S: Final = 5.0


async def is_well(url: str) -> bool:
    """An answer that does not come in time, or is a redirection, is none."""
    try:
        async with (
            httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client,
            client.stream("GET", url) as answer,
        ):
            return answer.is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
