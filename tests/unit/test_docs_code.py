"""The Python on the pages about the library runs: each page is read from top to bottom, as one program.

Where a page has tests, they are run too. What talks to a broker does not: a page's `app` is never started.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.paths import ROOT

PAGES = ("docs/consumer.md", "docs/testing.md", "README.md")


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
async def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # for `sqlite:///ids.db`
    blocks = _blocks(page)
    assert blocks
    space: dict[str, Any] = {"__name__": page}
    for number, code in enumerate(blocks, 1):
        exec(compile(code, f"{page}, block {number}", "exec", dont_inherit=True), space)
    for name in [name for name in space if name.startswith("test_")]:
        ran = space[name]()
        if inspect.isawaitable(ran):
            await ran
