"""The map (`docs/design/map.md`) is the house: rooms, layers, paths, files, names with two homes."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache

import pytest
from tests.house import dotted, modules, packages
from tests.paths import ROOT, SOURCES

PAGE = (ROOT / "docs/design/map.md").read_text()
FILES_MOST = 4
"""So many files of ours a change may touch before the house is wrong and not the change."""
_NAME = r"`[A-Za-z_]+(?:\.[A-Za-z_]+)?`"
_STATION = re.compile(rf"`([a-z_]+(?:\.[a-z_]+)+)`:\s+({_NAME}(?:(?:,| or)\s+{_NAME})*)")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def layers() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (checked,) = (each["layers"] for each in contracts if each.get("containers") == ["deadletter"])
    return [re.sub(r"[()]", "", layer) for layer in checked]


def test_every_package_is_a_room_on_the_map_and_in_order() -> None:
    rooms = re.findall(r"^\| `([a-z_/]+)` \|", section("Rooms"), re.MULTILINE)
    assert sorted(rooms) == sorted(package.replace(".", "/") for package in packages())
    above = [room for layer in layers() for room in layer.split(" | ") if room != "errors"]
    assert [room for room in rooms if "/" not in room] == above


def test_the_layers_are_the_checked_ones() -> None:
    drawn = re.search(r"```layers\n(.*?)```", PAGE, re.DOTALL)
    assert drawn
    assert drawn[1].split("\n")[:-1] == layers()
    told = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    assert f"`{' → '.join(layers())}`" in told


def test_modules_on_the_map_exist() -> None:
    assert dotted(PAGE) - modules() - packages() == set()


@cache
def names_in(module: str) -> frozenset[str]:
    """What a module defines at its top, and `Class.member` for the members of its classes."""
    tree = ast.parse((SOURCES / f"{module.replace('.', '/')}.py").read_text())
    found: set[str] = set()
    for node in tree.body:
        found |= set(_defined(node))
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in _defined(inner)}
    return frozenset(found)


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


@pytest.mark.parametrize("path", ["`dlq move`", "`dlq serve`", "The consumer library"])
def test_the_stations_of_a_path_exist(path: str) -> None:
    _, _, rest = section("The path of a letter").partition(f"### {path}\n")
    stations = _STATION.findall(rest.partition("\n### ")[0])
    assert len(stations) > 10
    for module, names in stations:
        for name in re.findall(r"`(.+?)`", names):
            assert name in names_in(module), f"{module}: {name}"


def test_each_of_ten_changes_is_few_files_that_exist() -> None:
    rows = re.findall(r"^\| (?!change|-)(.+?) \| (.+) \|$", section("Ten changes"), re.MULTILINE)
    assert len(rows) == 10
    for change, where in rows:
        files = re.findall(r"`([a-z_/]+\.py)`", where)
        assert 0 < len(files) <= FILES_MOST, change
        assert all((SOURCES / file).is_file() for file in files), change


def test_a_name_with_two_homes_is_told_with_the_reason() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        tree = ast.parse((SOURCES / f"{module.replace('.', '/')}.py").read_text())
        for node in tree.body:
            alias = isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)
            if isinstance(node, ast.ClassDef) or alias:
                for name in _defined(node):
                    homes[name].append(module)
    told = section("One name, one home")
    for name, where in homes.items():
        if len(where) > 1 and not name.startswith("_"):
            assert f"`{name}`" in told, f"{name}: {where}"
            assert all(f"`{module}`" in told for module in where), f"{name}: {where}"
