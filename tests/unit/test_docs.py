"""What is documented is there, and what is there is documented.

About `core.letter.names`, `errors`, `cli.main`.
"""

from __future__ import annotations

import re

import pytest
import typer
from tests.house import dotted, modules, packages
from tests.paths import ROOT, SOURCES

from deadletter import errors
from deadletter.cli.main import whole_app
from deadletter.core.letter import names
from deadletter.doctor.rules import RULES

README = (ROOT / "README.md").read_text()


def _commands() -> list[str]:
    group = typer.main.get_command(whole_app())
    found: list[str] = []
    for name, command in getattr(group, "commands").items():  # noqa: B009 -- typer's own type has no such field
        below = getattr(command, "commands", None)
        found += [f"{name} {inner}" for inner in below] if below else [name]
    return found


@pytest.mark.parametrize("command", _commands())
def test_every_command_is_in_the_readme(command: str) -> None:
    group, _, inner = command.partition(" ")
    assert re.search(rf"dlq {group}\b", README)
    assert not inner or re.search(rf"`[^`]*\b{inner}\b[^`]*`", README), command


def test_every_target_of_the_makefile_in_the_docs_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    texts = [README, (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "bench/README.md").read_text()]
    for target in {found for text in texts for found in re.findall(r"\bmake ([a-z-]+)\b(?= |`|\n)", text)}:
        if target not in ("copies", "a", "it", "such", "up"):  # prose
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_error_is_drawn_in_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert re.search(rf"\b{name}\b", drawn), name


def test_every_header_a_move_writes_is_in_the_readme() -> None:
    for header in (
        names.ID,
        names.SOURCE,
        names.MOVE,
        names.DEATHS,
        names.EXPIRATION,
        names.USER_ID,
        names.CC,
    ):
        assert header in README


def test_links_between_documents_hold() -> None:
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "bench").glob("*.md"),
    ]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_modules_in_the_design_notes_exist() -> None:
    for page in (ROOT / "docs/design").glob("*.md"):
        text = page.read_text()
        assert dotted(text) - modules() - packages() == set(), page.name
        for path in re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`", text):
            assert (SOURCES / path).is_file() or (ROOT / path).is_file(), f"{page.name}: {path}"


def test_every_rule_of_the_doctor_is_in_its_page() -> None:
    page = " ".join((ROOT / "docs/doctor.md").read_text().split())
    for rule in RULES:
        assert f"**`{rule.id}`**{' *(live)*' if rule.live else ''}: {rule.summary}. {rule.why}" in page, (
            rule.id
        )
    told = set(re.findall(r"\*\*`([a-z0-9-]+)`\*\*", page))
    assert told == {rule.id for rule in RULES}
