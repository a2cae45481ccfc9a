"""The pages for those who come from another library, followed to the letter on a real broker.

Each block of Python on a page is the file it names, each block of commands is typed: what is printed must
have the lines that the page shows, in any order, and `^C` is pressed where the page says so.

About `cli.running`, `consumer.app`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.paths import ROOT

PAGES = ROOT / "docs/coming-from"
PATIENCE_S = 60.0
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Step:
    """One command and what is seen of it."""

    command: str
    lines: list[str] = field(default_factory=list)
    interrupted: bool = False


def steps(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ ")))
        elif line == "^C":
            found[-1].interrupted = True
        else:
            found[-1].lines.append(line)
    return found


def shown(line: str, printed: list[str]) -> int:
    """How often this line was printed; `…` is anything."""
    pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
    return sum(1 for one in printed if pattern.fullmatch(one))


def missing(step: Step, printed: list[str]) -> list[str]:
    return [line for line in step.lines if shown(line, printed) < step.lines.count(line)]


@dataclass(frozen=True, slots=True)
class Terminal:
    """In one folder, with the environment that the page exports."""

    folder: Path
    environment: dict[str, str]

    def type(self, step: Step) -> None:
        if step.command.startswith(("export ", "pip install")):
            return  # the private broker's address is exported, and the checkout is installed
        log = self.folder / "printed.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                shlex.split(step.command), cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        try:
            self._watch(step, process, log)
        finally:
            process.kill()
            process.wait()

    def _watch(self, step: Step, process: subprocess.Popen[bytes], log: Path) -> None:
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and (step.interrupted or time.monotonic() < until):
            if step.interrupted and not missing(step, log.read_text().splitlines()):
                process.send_signal(signal.SIGINT)
                process.wait(PATIENCE_S)
                break
            assert time.monotonic() < until, f"{step.command}: {log.read_text()}"
            time.sleep(0.05)
        printed = log.read_text()
        assert not missing(step, printed.splitlines()), f"{step.command}: {printed}"
        if not step.interrupted:
            assert process.wait(PATIENCE_S) == 0, f"{step.command}: {printed}"


def test_all_of_them_are_followed() -> None:
    assert sorted(page.stem for page in PAGES.glob("*.md")) == ["celery", "faststream", "pika"]


@pytest.mark.parametrize("page", ["pika", "faststream", "celery"])
def test_a_page_is_followed(page: str, vhost: Vhost, tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    terminal = Terminal(
        tmp_path,
        {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "AMQP_URL": vhost.url,
            "AMQP_API": vhost.api,
            "DLQ_URL": vhost.url,
            "DLQ_API": vhost.api,
        },
    )
    typed = 0
    for kind, block in _BLOCK.findall((PAGES / f"{page}.md").read_text()):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            assert name, f"a block of {page}.md does not say which file it is"
            (tmp_path / name[1]).write_text(block)
        else:
            for step in steps(block):
                terminal.type(step)
                typed += 1
    assert typed >= 6
