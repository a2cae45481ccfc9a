"""The tests of a module can be found, and the module of a test: each test file says what it is about."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.house import about, docstring, files_of_tests, modules, packages
from tests.paths import ROOT

NO_TEST = {
    "testing.node.container": "wants Docker, which the machines that run the tests do not have",
}
"""Modules that no test meets, each with its reason."""
THE_WHOLE = {"tests/unit", "tests/typing"}
"""Folders whose own files may be about everything at once; those of the folders below may not."""


def test_every_module_is_named_by_a_test() -> None:
    named = {name for path in files_of_tests() for name in about(path)}
    assert modules() - named == set(NO_TEST)


@pytest.mark.parametrize("path", files_of_tests(), ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_a_test_file_names_modules_that_exist(path: Path) -> None:
    told = about(path)
    assert told or str(path.parent.relative_to(ROOT)) in THE_WHOLE, "it does not say what it is about"
    assert told - modules() - packages() == set()
    assert len(docstring(path).partition("\n")[0]) <= 110


def test_folders_of_tests_are_rooms() -> None:
    """Below `unit`, `broker` and `property`, which say what kind of test it is."""
    for kind in ("unit", "broker", "property"):
        base = ROOT / "tests" / kind
        for path in base.rglob("test_*.py"):
            room = ".".join(path.parent.relative_to(base).parts)
            assert not room or room in packages(), path
