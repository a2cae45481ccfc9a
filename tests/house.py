"""The house as a test reads it: the modules of `src/deadletter`, and what each test file is about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.paths import ROOT, SOURCES

_DOTTED = re.compile(r"`([a-z_0-9]+(?:\.[a-z_0-9]+)+)`")
_ABOUT = re.compile(r"^About (`.*?`)\.$", re.MULTILINE | re.DOTALL)


@cache
def modules() -> frozenset[str]:
    """Every module, by its name below `deadletter`; without packages and the store's migrations."""
    return frozenset(
        name for name, path in _named() if path.stem != "__init__" and "migrations" not in path.parts
    )


@cache
def packages() -> frozenset[str]:
    """Every package below `deadletter`, whether or not it has modules of its own."""
    return frozenset(name for name, path in _named() if path.stem == "__init__" and name)


def _named() -> Iterator[tuple[str, Path]]:
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def about(path: Path) -> set[str]:
    """What a test file says it is about: every module that its docstring names."""
    told = docstring(path)
    return dotted(told) | {name for found in _ABOUT.findall(told) for name in re.findall(r"`([^`]+)`", found)}


def dotted(text: str) -> set[str]:
    """The names of modules in backticks: dotted, and beginning with a room."""
    rooms = {name.partition(".")[0] for name in modules() | packages()}
    return {name for name in _DOTTED.findall(text) if name.partition(".")[0] in rooms}
