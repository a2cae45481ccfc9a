"""The end of the demo: a shop that goes on, and the page of its service.

About `cli.demo.demo_page`.
"""

from __future__ import annotations

import io
import re

import httpx
from rich.console import Console
from tests.brokers import Vhost

from deadletter.cli.demo import demo_page


class Looking(io.StringIO):
    """Somebody who opens the address as soon as it is printed."""

    page = ""

    def write(self, text: str) -> int:
        if found := re.search(r"http://\S+", text):
            with httpx.Client(follow_redirects=True) as client:
                self.page = client.get(found[0]).text
        return super().write(text)


async def test_the_address_that_is_printed_opens_the_page(vhost: Vhost) -> None:
    told = Looking()
    assert await demo_page.show(Console(file=told, width=110), url=vhost.url, api=vhost.api, seconds=0)
    assert "<title>Overview" in told.page, told.page[:500]
