"""What is installed: all that the package needs beside its modules is in the wheel. Templates, scripts and
examples are read from the package at run time, and migrations are found by their files.

About `desk.page.frame`, `desk.page.static_files`, `desk.answers.document`, `store.preparing`.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "deadletter"
KINDS = {".css", ".html", ".js", ".json", ".py", ".svg", ".typed"}


def files() -> set[str]:
    found = (one for one in PACKAGE.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    return {one.relative_to(PACKAGE.parent).as_posix() for one in found}


def test_nothing_that_is_needed_is_left_out_of_a_wheel() -> None:
    """The builder leaves out what git ignores."""
    ours = files()
    assert {Path(one).suffix or Path(one).name for one in ours} <= {*KINDS, "py.typed"}
    assert any("/templates/" in one for one in ours)
    assert any("/migrations/versions/v0001" in one for one in ours)
    asked = "\n".join(f"src/{one}" for one in sorted(ours))
    told = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        input=asked,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert told.stdout == ""
    assert told.returncode == 1, told.stderr


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-q", "-w", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip("the builder cannot be had here: there is no index of packages")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if name.startswith("deadletter/")}
    assert inside == files()
