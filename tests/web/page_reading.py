"""Pages of a desk with everything on it, as tests read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Final

import httpx
from tests.web.conftest import Desk
from tests.web.whole_desk import Everything

HTML: Final = {"accept": "text/html"}
ACTS: Final = re.compile(r"<script(?![^>]*nonce=)|<img|<style|\sstyle=|\son\w+=|javascript:", re.IGNORECASE)
HIDDEN: Final = ("\u202e", "\x1b", "\x07")


@dataclass(frozen=True, slots=True)
class Whole:
    desk: Desk
    behind: Everything

    async def page(self, path: str, status: int = 200) -> str:
        """Its text. Nothing in it acts or hides."""
        found = await self.desk.client.get(path, headers=HTML)
        assert found.status_code == status, found.text[:2_000]
        return self._read(path, found)

    async def post(self, path: str, **fields: str) -> str:
        """The page after a form."""
        answer = await self.sent(path, **fields)
        assert answer.status_code == 303, answer.text[:2_000]
        return await self.page(answer.headers["location"])

    async def refused(self, path: str, status: int, **fields: str) -> str:
        """Why a form is not taken."""
        answer = await self.sent(path, **fields)
        assert answer.status_code == status, answer.text[:2_000]
        return self._read(path, answer)

    async def sent(self, path: str, **fields: str) -> httpx.Response:
        return await self.desk.client.post(path, data={"back": "/", **fields}, headers=HTML)

    def _read(self, path: str, answer: httpx.Response) -> str:
        assert not ACTS.search(answer.text), path
        # a field sends back what it holds, so it holds exactly that
        seen = re.sub(r'(?<=\svalue=)"[^"]*"', "", answer.text)
        assert not any(hidden in seen for hidden in HIDDEN), path
        return " ".join(unescape(re.sub(r"<bdi>|</bdi>", "", answer.text)).split())


def field(page: str, name: str) -> str:
    """What a hidden field of the page holds."""
    (found,) = set(re.findall(rf'name="{name}" value="([^"]*)"', page))
    return str(found)
